# SPDX-License-Identifier: Apache-2.0
"""What does CHANGELOG.md say of a version, and is it released?"""

import re
from dataclasses import dataclass

from hack.release.errors import ReleaseError

NOT_RELEASED = "not released"
HEADING = re.compile(r"^## (?P<version>\S+) - (?P<date>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Section:
    """The changes of one version; `date` is a day as 2026-01-31, or `not released`."""

    version: str
    date: str
    text: str


def sections(text: str) -> list[Section]:
    """All versions, the newest first. Raises ReleaseError for a heading that is none."""
    for line in re.findall(r"^## .*$", text, re.MULTILINE):
        found = HEADING.fullmatch(line)
        if found is None or not re.fullmatch(rf"\d{{4}}-\d\d-\d\d|{NOT_RELEASED}", found["date"]):
            raise ReleaseError(
                f"CHANGELOG.md has the heading {line!r}: write `## VERSION - 2026-01-31`, or `## VERSION - {NOT_RELEASED}`"
            )
    _, *parts = HEADING.split(text)
    return [
        Section(version, date, body.strip())
        for version, date, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    ]


def of_version(text: str, version: str) -> Section:
    """The section of a version. Raises ReleaseError if there is none."""
    found = {section.version: section for section in sections(text)}
    if version not in found:
        raise ReleaseError(
            f"CHANGELOG.md has no version {version}, only {', '.join(found)}; write what changed below `## {version} - {NOT_RELEASED}`"
        )
    return found[version]


def dated(text: str, version: str, date: str) -> str:
    """The changelog with the day on which a version is released. Raises ReleaseError if there is no such version, or the day is none."""
    section = of_version(text, version)
    changed = text.replace(f"## {version} - {section.date}\n", f"## {version} - {date}\n", 1)
    sections(changed)
    return changed
