# SPDX-License-Identifier: Apache-2.0
"""What does the image hold, how big is each part, and why is it there? In words, for people."""

from collections.abc import Mapping

from driverimage.debian import PACKAGES

Sizes = Mapping[str, Mapping[str, int]]
WHY: Mapping[str, str] = {
    **{name: package.why for name, package in PACKAGES.items()},
    "furniture": "the entry of root, the order of name look-ups, folders to mount on, `python3`",
    "grpcio": "the kubelet speaks gRPC",
    "protobuf": "the kubelet's messages",
    "nvidia-ml-py": "NVIDIA's library, for the hardware process only",
    "urllib3": "HTTP to the API server",
    "msgspec": "JSON of the API server",
    "structlog": "log lines",
    "prometheus-client": "/metrics",
    "google-re2": "patterns in selectors, in linear time",
    "tzdata": "time zones in selectors",
    "pyyaml": "the configuration and fault files",
    "typing-extensions": "grpcio imports it",
    "dra-driver": "the driver, with its sources, so that a traceback shows lines",
}


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.2f}"


def _by_size(parts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(parts.items(), key=lambda part: (-part[1], part[0]))


def listing(sizes: Sizes) -> str:
    """The parts for a terminal."""
    lines = []
    for layer, parts in sizes.items():
        lines.append(f"{layer:<28}{_megabytes(sum(parts.values())):>8} MB")
        lines += [f"  {name:<26}{_megabytes(size):>8} MB" for name, size in _by_size(parts)]
    return "\n".join(lines)


def page_table(sizes: Sizes) -> str:
    """The parts as the table of docs/image.md."""
    lines = ["| part | MB | why |", "| --- | --- | --- |"]
    for layer, parts in sizes.items():
        lines.append(f"| **layer {layer}** | **{_megabytes(sum(parts.values()))}** | |")
        for name, size in _by_size(parts):
            lines.append(
                f"| `{name}` | {_megabytes(size)} | {WHY.get(name, 'somebody must say')} |"
            )
    return "\n".join(lines)
