# SPDX-License-Identifier: Apache-2.0
"""What is kept of a release, so that later versions are tested with updates from it: its chart, and what its image is built from."""

import subprocess
import tarfile
from pathlib import Path

from hack.release import chart, distributions, version
from hack.release.archive import Content, tar_gz
from hack.release.errors import ReleaseError

FOLDER = "tests/fixtures/releases"
SOURCE = "source.tar.gz"
PARTS = (
    *("dra_driver", "deviceclasses", "docs/man", "requirements/runtime.txt"),
    *("pyproject.toml", "README.md", "LICENSE"),
)
"""What hack/image/build.py reads of a source tree."""


def freeze(root: Path) -> Path:
    """Keep chart and sources of this version; answers the folder. Raises ReleaseError if the version is tagged already."""
    number, date = version.current(root), distributions.date()
    if _tagged(root, f"v{number}"):
        raise ReleaseError(
            f"git has the tag v{number}: {FOLDER}/{number} is what people have installed, and stays as it is; if this tree is a new "
            "version, write it first with `python -m hack.release version`"
        )
    folder = root / FOLDER / number
    folder.mkdir(parents=True, exist_ok=True)
    chart.package(root, folder, number, date=date)
    (folder / SOURCE).write_bytes(tar_gz(_source(root), date))
    return folder


def _tagged(root: Path, tag: str) -> bool:
    """Not so in a tree without git."""
    command = ("git", "-C", str(root), "tag", "--list", tag)
    return bool(subprocess.run(command, capture_output=True, check=False).stdout)


def _source(root: Path) -> dict[str, Content]:
    files = [
        path
        for part in PARTS
        for path in ([root / part] if (root / part).is_file() else sorted((root / part).rglob("*")))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    return {path.relative_to(root).as_posix(): Content(path.read_bytes()) for path in files}


def chart_of(root: Path, number: str) -> Path:
    """The chart of a release that is kept."""
    return root / FOLDER / number / f"dra-driver-{number}.tgz"


def unpack_source(root: Path, number: str, target: Path) -> Path:
    """Put the sources of a release that is kept into a folder, for hack/image/build.py."""
    with tarfile.open(root / FOLDER / number / SOURCE) as opened:
        opened.extractall(target, filter="data")
    return target
