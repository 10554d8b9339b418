# SPDX-License-Identifier: Apache-2.0
"""Where is the version written? In `dra_driver/__init__.py`; the chart repeats it, since helm reads only its own files."""

import re
from pathlib import Path

from hack.release import changelog
from hack.release.errors import ReleaseError

INIT, CHART, CHANGELOG = "dra_driver/__init__.py", "helm/dra-driver/Chart.yaml", "CHANGELOG.md"
LINES = {
    INIT: (r'^__version__ = "(.*)"$',),
    CHART: (r"^version: (.*)$", r"^appVersion: (.*)$"),
}


def current(root: Path) -> str:
    """The version of a source tree. Raises ReleaseError if its places differ."""
    found = {
        match
        for name, patterns in LINES.items()
        for pattern in patterns
        for match in re.findall(pattern, (root / name).read_text(), re.MULTILINE)
    }
    if len(found) != 1:
        raise ReleaseError(
            f"{INIT} and {CHART} have the versions {', '.join(sorted(found))}: `python -m hack.release version VERSION` writes all"
        )
    return found.pop()


def write(root: Path, version: str, date: str) -> None:
    """Give the tree a version, and its section of the changelog a day. Raises ReleaseError, and then nothing is written."""
    if not re.fullmatch(r"\d+\.\d+\.\d+(-[0-9a-z.]+)?", version):
        raise ReleaseError(f"{version!r} is no version: give three numbers, such as 0.1.0")
    changed = changelog.dated((root / CHANGELOG).read_text(), version, date)
    for name, patterns in LINES.items():
        file = root / name
        text = file.read_text()
        for pattern in patterns:
            text = re.sub(
                pattern,
                lambda found: found[0].replace(found[1], version),
                text,
                flags=re.MULTILINE,
            )
        file.write_text(text)
    (root / CHANGELOG).write_text(changed)
