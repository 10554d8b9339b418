# SPDX-License-Identifier: Apache-2.0
"""Regular expressions as Go's package regexp has them: RE2, so the time is linear in the text whatever the pattern is.

Source: Go's package regexp/syntax.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

from dra_driver.cel import golang
from dra_driver.cel.failures import EvaluationError


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern."""

    _compiled: Any

    def matches(self, text: str) -> bool:
        """Whether the pattern is found anywhere."""
        return self._compiled.search(golang.utf8(text)) is not None

    def find(self, text: str) -> str:
        """The first match, "" if there is none."""
        match = self._compiled.search(golang.utf8(text))
        return "" if match is None else golang.from_utf8(match.group())

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """All matches that do not overlap, at most `limit` unless it is negative."""
        found: list[str] = []
        for match in self._compiled.finditer(golang.utf8(text)):
            if 0 <= limit <= len(found):
                break
            found.append(golang.from_utf8(match.group()))
        return found


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> Pattern:
    """Read a pattern; raises EvaluationError with Go's text."""
    options = re2.Options()
    options.log_errors = False
    try:
        return Pattern(re2.compile(golang.utf8(pattern), options))
    except re2.error as error:
        raise EvaluationError(f"error parsing regexp: {error}") from error


def check(pattern: str) -> None:
    """Raise EvaluationError if Go refuses the pattern."""
    compile_pattern(pattern)
