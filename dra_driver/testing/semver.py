# SPDX-License-Identifier: Apache-2.0
"""Semantic versions in their order, as the stand-in for CEL compares them.

Source: semver.org 2.0.0, paragraphs 9 to 11. Build metadata is read and takes no part in any comparison.
"""

import re
from dataclasses import dataclass
from functools import total_ordering

_NUMBER = r"(0|[1-9][0-9]*)"
_PRE = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD = r"[0-9A-Za-z-]+"
_SHAPE = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_PRE}(?:\.{_PRE})*))?(?:\+{_BUILD}(?:\.{_BUILD})*)?"
)


@total_ordering
@dataclass(frozen=True, slots=True)
class Semver:
    """A version. `pre` are the pre-release's parts: numbers stand before words, and any pre-release before its release."""

    numbers: tuple[int, int, int]
    pre: tuple[tuple[bool, int, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Semver":
        """Read "1.2.3-rc.1+build"; ValueError says what is wrong."""
        match = _SHAPE.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no semantic version; write for example 1.2.3")
        major, minor, patch, pre = match.groups()
        parts = pre.split(".") if pre else []
        return cls((int(major), int(minor), int(patch)), tuple(_part(part) for part in parts))

    def __lt__(self, other: "Semver") -> bool:
        return (self.numbers, not self.pre, self.pre) < (other.numbers, not other.pre, other.pre)

    def __str__(self) -> str:
        pre = ".".join(word if is_word else str(number) for is_word, number, word in self.pre)
        return ".".join(map(str, self.numbers)) + (f"-{pre}" if pre else "")


def _part(text: str) -> tuple[bool, int, str]:
    return (False, int(text), "") if text.isdigit() else (True, 0, text)
