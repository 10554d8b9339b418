# SPDX-License-Identifier: Apache-2.0
"""Regular expressions as Go's package regexp has them.

google-re2 runs them, so that the time is linear in the text whatever the pattern is; Python's `re` is never used for a
pattern of an expression. It and Go are two implementations of one language and differ in little: `\\C` is refused here,
names of Unicode classes may be written in Go's ways, matches that are empty are counted as Go counts them, and errors
get Go's words.
Source: Go's packages regexp and regexp/syntax.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import re2

from dra_driver.cel import golang
from dra_driver.cel.failures import EvaluationError

_MEMORY = 64 << 20  # bytes that a pattern may take; Go has no limit, an expression has 10 KiB
_NO_MATCH = -1


class _Match(Protocol):
    def span(self) -> tuple[int, int]:
        """Where the match is, in bytes."""
        ...


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_search_bytes",)

    def __init__(self, search: Callable[[bytes, int], _Match | None]) -> None:
        self._search_bytes = search

    def _search(self, content: bytes, position: int) -> _Match | None:
        """The next match; RE2 may find an empty one between the bytes of a character, which is none for Go."""
        match = self._search_bytes(content, position)
        while match is not None and _inside_character(content, *match.span()):
            match = self._search_bytes(content, match.span()[0] + 1)
        return match

    def matches(self, text: str) -> bool:
        """Whether the pattern is found anywhere."""
        return self._search(golang.utf8(text), 0) is not None

    def find(self, text: str) -> str:
        """The first match, "" if there is none."""
        content = golang.utf8(text)
        match = self._search(content, 0)
        if match is None:
            return ""
        start, end = match.span()
        return golang.from_utf8(content[start:end])

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """All matches that do not overlap, at most `limit` unless it is negative.

        An empty match that touches the one before does not count.
        """
        content = golang.utf8(text)
        found: list[str] = []
        position, last_end = 0, _NO_MATCH
        while position <= len(content) and len(found) != limit:
            match = self._search(content, position)
            if match is None:
                break
            start, end = match.span()
            if end > position or start != last_end:
                found.append(golang.from_utf8(content[start:end]))
            position = end if end > position else position + _width(content, position)
            last_end = end
        return found


def _inside_character(content: bytes, start: int, end: int) -> bool:
    return start == end < len(content) and content[start] & 0xC0 == 0x80  # noqa: PLR2004  a byte that continues one


def _width(content: bytes, position: int) -> int:
    """Bytes of the character there; a byte that is no UTF-8 counts as one."""
    for width in range(1, 5):
        try:
            content[position : position + width].decode()
        except UnicodeDecodeError:
            continue
        return width
    return 1


@lru_cache(maxsize=512)
def compile_pattern(pattern: str) -> Pattern:
    """Read a pattern; raises EvaluationError with Go's text."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        compiled = re2.compile(golang.utf8(_TOKENS.sub(_translated, pattern)), options)
    except re2.error as error:
        raise EvaluationError(f"error parsing regexp: {_in_go(error, pattern)}") from error
    if r"\C" in _TOKENS.findall(pattern):
        raise EvaluationError(r"error parsing regexp: invalid escape sequence: `\C`")
    return Pattern(compiled.search)


def check(pattern: str) -> None:
    """Raise EvaluationError if Go refuses the pattern."""
    compile_pattern(pattern)


# --- what RE2 and Go write differently --------------------------------------------------------------------------------

_TOKENS = re.compile(r"\\Q.*?(?:\\E|\Z)|\\[pP]\{\^?[^{}]*\}|\\.", re.DOTALL)
_CATEGORIES = {
    "other": "C",
    "control": "Cc",
    "format": "Cf",
    "privateuse": "Co",
    "surrogate": "Cs",
    "letter": "L",
    "lowercaseletter": "Ll",
    "modifierletter": "Lm",
    "otherletter": "Lo",
    "titlecaseletter": "Lt",
    "uppercaseletter": "Lu",
    "mark": "M",
    "combiningmark": "M",
    "spacingmark": "Mc",
    "enclosingmark": "Me",
    "nonspacingmark": "Mn",
    "number": "N",
    "decimalnumber": "Nd",
    "digit": "Nd",
    "letternumber": "Nl",
    "othernumber": "No",
    "punctuation": "P",
    "punct": "P",
    "connectorpunctuation": "Pc",
    "dashpunctuation": "Pd",
    "closepunctuation": "Pe",
    "finalpunctuation": "Pf",
    "initialpunctuation": "Pi",
    "otherpunctuation": "Po",
    "openpunctuation": "Ps",
    "symbol": "S",
    "currencysymbol": "Sc",
    "modifiersymbol": "Sk",
    "mathsymbol": "Sm",
    "othersymbol": "So",
    "separator": "Z",
    "lineseparator": "Zl",
    "paragraphseparator": "Zp",
    "spaceseparator": "Zs",
}


def _translated(match: re.Match[str]) -> str:
    token = match[0]
    if not token.startswith((r"\p{", r"\P{")):
        return token
    name = token[3:-1].removeprefix("^")
    plain = name.translate(_SEPARATORS).lower()
    known = _CATEGORIES.get(plain) or ("Any" if plain == "any" else _script(name))
    return token.replace(name, known) if name else token


_SEPARATORS = str.maketrans("", "", " _-")
_LONGEST_CATEGORY = 2


def _script(name: str) -> str:
    """Greek, Old_Italic, Lu: with capitals at the beginnings of words."""
    if len(name) <= _LONGEST_CATEGORY:
        return name[:1].upper() + name[1:].lower()
    parts = re.split(r"[ _-]", name)
    return "_".join(part[:1].upper() + part[1:] for part in parts) if name.islower() else name


_IN_GO = (
    ("no argument for repetition operator: ", "missing argument to repetition operator"),
    ("bad repetition operator: ", "invalid nested repetition operator"),
    ("invalid repetition size: ", "invalid repeat count"),
    ("missing ): ", "missing closing )"),
    ("unexpected ): ", "unexpected )"),
    ("missing ]: ", "missing closing ]"),
    ("invalid perl operator: ", "invalid or unsupported Perl syntax"),
    ("invalid named capture group: ", "invalid named capture"),
    ("invalid escape sequence: ", "invalid escape sequence"),
    ("invalid character class range: ", "invalid character class range"),
    ("invalid character class: ", "invalid character class range"),
)


def _in_go(error: re2.error, pattern: str) -> str:
    """The text of an error in Go's words; RE2 quotes the same part of the pattern."""
    (message,) = error.args
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    if text.startswith("trailing "):
        return "trailing backslash at end of expression: ``"
    if text.endswith((": (?<=", ": (?<!")):
        rest = pattern[pattern.index(text[-len("(?<=") :]) :]
        return f"invalid named capture: `{rest[: rest.find('>') + 1 or None]}`"
    for ours, theirs in _IN_GO:
        if text.startswith(ours):
            return f"{theirs}: `{text.removeprefix(ours)}`"
    return text
