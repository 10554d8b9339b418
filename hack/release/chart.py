# SPDX-License-Identifier: Apache-2.0
"""How does the chart become one file that `helm push` takes, with the same bytes each time?

`helm package` writes the time of the day into the archive. So the archive is made here, with the rules that the chart needs: what
.helmignore names stays outside, and links are followed. tests/e2e/test_release.py asks helm whether it is the same chart.
"""

import fnmatch
import re
from pathlib import Path

from hack.release.archive import Content, tar_gz
from hack.release.errors import ReleaseError
from hack.release.names import CHARTS, REPOSITORY

FOLDER = "helm/dra-driver"
LICENSE = "LICENSE"
REPOSITORY_OF_IMAGE = re.compile(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)+")
BY_DIGEST = re.compile(r"(?P<repository>[^@]+)@(?P<digest>sha256:[0-9a-f]{64})")


def contents(root: Path) -> dict[str, Content]:
    """The files of the chart of a source tree by their paths in the chart."""
    chart = root / FOLDER
    lines = (chart / ".helmignore").read_text().splitlines()
    ignored = [line for line in lines if line and not line.startswith("#")]
    found = {LICENSE: Content((root / LICENSE).read_bytes())}
    # Not rglob("*") alone: it does not go into folders that are links.
    for path in sorted(path for top in chart.iterdir() for path in (top, *top.rglob("*"))):
        name = path.relative_to(chart).as_posix()
        if path.is_file() and not _is_ignored(name, ignored):
            found[name] = Content(path.read_bytes())
    return found


def _is_ignored(name: str, patterns: list[str]) -> bool:
    """By a pattern without slash for a file, or a path of a folder: the two forms that this chart uses."""
    return any(
        name.startswith(f"{pattern}/") or fnmatch.fnmatchcase(name.rpartition("/")[2], pattern)
        for pattern in patterns
    )


def _replaced(text: str, pattern: str, by: str) -> str:
    changed, count = re.subn(pattern, lambda _: by, text, count=1, flags=re.MULTILINE)
    if count != 1:
        raise ReleaseError(f"the chart has no line {pattern}; correct hack/release/chart.py")
    return changed


def require_repository(name: str) -> None:
    """Raise ReleaseError unless this is the name of an image with its registry, without tag and digest."""
    registry = name.partition("/")[0]
    if REPOSITORY_OF_IMAGE.fullmatch(name) is None or not {".", ":"} & set(registry):
        raise ReleaseError(
            f"the image is {name!r}: name where it will be pushed, by registry and without tag and digest, as in "
            "registry.example.com/dra-driver/dra-driver"
        )


def with_image(files: dict[str, Content], image: str) -> dict[str, Content]:
    """The chart with an image as its default, and as Artifact Hub shows it. Raises ReleaseError if the image has no digest."""
    given = BY_DIGEST.fullmatch(image)
    if given is None:
        raise ReleaseError(
            f"the image is {image!r}: name it by registry and digest, registry.example.com/dra-driver@sha256:…"
        )
    require_repository(given["repository"])
    values = files["values.yaml"].data.decode()
    values = _replaced(values, r"^  repository: .*$", f"  repository: {given['repository']}")
    values = _replaced(values, r'^  digest: ""$', f"  digest: {given['digest']}")
    about = files["Chart.yaml"].data.decode()
    about += f"  artifacthub.io/images: |\n    - name: driver\n      image: {image}\n"
    return {
        **files,
        "values.yaml": Content(values.encode()),
        "Chart.yaml": Content(about.encode()),
    }


def with_addresses(files: dict[str, Content]) -> dict[str, Content]:
    """The chart with the addresses of the repository, once there is one (`hack.release.names`)."""
    if ".example.com" in REPOSITORY or ".example.com" in CHARTS:
        return files
    about = files["Chart.yaml"].data.decode()
    about = about.replace(
        "\nannotations:\n", f"\nhome: {REPOSITORY}\nsources: [{REPOSITORY}]\nannotations:\n"
    )
    about += (
        f"  artifacthub.io/links: |\n    - name: docs\n      url: {REPOSITORY}/tree/main/docs\n"
    )
    return {**files, "Chart.yaml": Content(about.encode())}


def package(root: Path, target: Path, version: str, *, date: int, image: str = "") -> Path:
    """Write the chart as `dra-driver-VERSION.tgz` into a folder."""
    files = with_addresses(contents(root))
    if image:
        files = with_image(files, image)
    file = target / f"dra-driver-{version}.tgz"
    below = {f"dra-driver/{name}": content for name, content in files.items()}
    # Helm reads Chart.yaml first.
    first = sorted(below, key=lambda name: (name != "dra-driver/Chart.yaml", name))
    file.write_bytes(tar_gz({name: below[name] for name in first}, date))
    return file
