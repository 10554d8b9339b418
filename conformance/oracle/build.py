# SPDX-License-Identifier: Apache-2.0
"""Where is the oracle, and for which Kubernetes release?

The oracle is the Go program of this folder, built from the modules of one Kubernetes release. Like
the test bed's programs it is kept in the cache, under a name that depends on its sources, so that a
second call costs nothing: `oracle_binary()` answers the path. By hand:

    python -m conformance.oracle.build [MINOR ...]
"""

import re
import shutil
import sys
import time
from pathlib import Path

from hack.testbed.onenode.products import BuildError, go, product, upstream_go_mod

FOLDER = Path(__file__).resolve().parent
MODULE = "k8s.io/dynamic-resource-allocation"
# Of each minor release the newest patch of which all of Kubernetes' modules can be had.
RELEASES = {
    32: "0.32.5",
    33: "0.33.13",
    34: "0.34.4",
    35: "0.35.10",
    36: "0.36.6",
    37: "0.37.1",
}
NEWEST = max(RELEASES)


def _sources() -> list[Path]:
    return sorted(FOLDER.glob("*.go"))


def _go_mod(upstream: str, version: str) -> str:
    """A module that requires what the release itself was built with, neither older nor newer."""
    language = re.search(r"^go (\S+)", upstream, re.MULTILINE)
    if language is None:
        raise BuildError(f"the go.mod of {MODULE} v{version} names no Go version")
    required = re.findall(r"^\s*(?:require )?(\S+ v\S+)(?: // indirect)?$", upstream, re.MULTILINE)
    lines = (
        "module oracle",
        f"go {language[1]}",
        f"require {MODULE} v{version}",
        "require (",
        *(f"\t{entry}" for entry in required),
        ")",
    )
    return "\n".join(lines) + "\n"


def oracle_binary(minor: int = NEWEST) -> Path:
    """The oracle of Kubernetes 1.`minor`, built now if it is not there."""
    version = RELEASES[minor]

    def make(source: Path, target: Path) -> None:
        (source / "go.mod").write_text(_go_mod(upstream_go_mod(MODULE, version, source), version))
        for path in _sources():
            shutil.copy(path, source)
        flags = ("-ldflags=-s -w", f"-tags=kubernetes{minor}")
        go("build", *flags, "-o", str(target / "oracle"), ".", cwd=source)

    recipe = b"\0".join(path.read_bytes() for path in _sources())
    return product("oracle", version, make, recipe=recipe) / "oracle"


def main() -> None:
    """Build the releases named, or all, and say where they are."""
    for minor in [int(argument) for argument in sys.argv[1:]] or RELEASES:
        started = time.monotonic()
        path = oracle_binary(minor)
        print(f"1.{minor} {time.monotonic() - started:6.1f} s {path}", flush=True)


if __name__ == "__main__":
    main()
