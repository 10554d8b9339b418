# SPDX-License-Identifier: Apache-2.0
"""How does a regular expression give the same matches and errors as in Go's package regexp?

google-re2 runs the patterns. Its time is linear in the length of the text for every pattern. Python's `re` can take
exponential time, so this project never uses it for a pattern of an expression. RE2 and Go implement the same syntax with few
differences. This module removes them: it refuses `\\C`, translates character classes to Go's names and members, counts
empty matches as Go does, and changes the error messages to Go's. One difference stays: with `(?i)`, `\\p{LC}` matches U+0345.
Go has no limit of memory or time. This module limits both, with its own error messages.
Source: Go's packages regexp and regexp/syntax.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from dra_driver.cel import golang, unicode_classes, work
from dra_driver.cel.failures import EvaluationError

# re2 is imported where it is called: that takes 4 ms, and few selectors have a pattern.
if TYPE_CHECKING:
    import re2

_MEMORY = 64 << 20  # The most bytes for one pattern.
_USUAL_MEMORY = 8 << 20
"""Enough for most patterns. RE2 uses all memory up to its limit, and a search with more memory can be slower."""
_TOO_LARGE = "pattern too large"
_MOST_STEPS = (
    10**8
)  # Bytes of the text times instructions of the pattern: a few seconds in the worst case.
# Bytes. No string of a device is longer, so every pattern works on every device.
_ALWAYS_SEARCHED = 64
_NO_MATCH = -1
_BYTES_OF_A_STEP = 1024


_MOST_KEPT = 512
_LONGEST_KEPT = 20_000  # Characters. A long pattern can have few instructions: `(?:)(?:)…`.
_MOST_KEPT_INSTRUCTIONS = 1_500_000
"""The largest pattern has 1,200,000 instructions and takes up to 64 MiB. A usual pattern has less than 100 instructions."""


class PatternTooLargeError(EvaluationError):
    """The pattern needs more memory than this module allows. Go would accept it."""


class _Match(Protocol):
    def span(self) -> tuple[int, int]:
        """Return the start and the end of the match, in bytes."""
        ...


class Pattern:
    """A compiled pattern. Its methods raise EvaluationError if pattern and text together are too large."""

    __slots__ = ("_longest", "_search_bytes", "size")

    def __init__(self, search: Callable[[bytes, int], _Match | None], size: int) -> None:
        self.size = size  # In instructions.
        self._search_bytes = search
        self._longest = max(_MOST_STEPS // size, _ALWAYS_SEARCHED)

    def _search(self, content: bytes, position: int) -> _Match | None:
        """Return the next match from `position` on.

        RE2 finds empty matches inside a character; Go does not, so they are skipped.
        """
        if len(content) > self._longest:
            raise EvaluationError(
                f"the pattern is too large to be searched in {len(content)} bytes: "
                f"it may be searched in {self._longest}"
            )
        match = self._search_bytes(content, position)
        while match is not None and _inside_character(content, *match.span()):
            match = self._search_bytes(content, match.span()[0] + 1)
        return match

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches any part of the text."""
        return self._search(golang.utf8(text), 0) is not None

    def find(self, text: str) -> str:
        """Return the first match, or ""."""
        content = golang.utf8(text)
        match = self._search(content, 0)
        if match is None:
            return ""
        start, end = match.span()
        return golang.from_utf8(content[start:end])

    def find_all(self, text: str, limit: int = -1) -> list[str]:
        """Return all matches that do not overlap, at most `limit` unless it is negative.

        As in Go, an empty match right behind another match is left out.
        """
        content = golang.utf8(text)
        found: list[str] = []
        position, last_end = 0, _NO_MATCH
        while position <= len(content) and len(found) != limit:
            # A search can read all the rest of the text, even if the match is short.
            work.current().steps(1 + (len(content) - position) // _BYTES_OF_A_STEP)
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
    return start == end < len(content) and content[start] & 0xC0 == 0x80  # noqa: PLR2004 - 10xxxxxx is a continuation byte of UTF-8


def _width(content: bytes, position: int) -> int:
    """Return the length in bytes of the character at `position`; 1 for a byte that is not UTF-8."""
    for width in range(1, 5):
        try:
            content[position : position + width].decode()
        except UnicodeDecodeError:
            continue
        return width
    return 1


class Patterns:
    """A cache of compiled patterns. If all together become too large, the least recently used ones are removed."""

    def __init__(self) -> None:
        self._known: dict[str, Pattern] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._known)

    def compiled(self, pattern: str) -> Pattern:
        """Return the compiled pattern."""
        known = self._known.pop(pattern, None)
        if known is None:
            # Compiling one pattern can take two seconds.
            work.current().ask()
            known = _compile(pattern)
            if len(pattern) > _LONGEST_KEPT:
                return known
            self._size += known.size
        self._known[pattern] = known
        while len(self._known) > 1 and (
            self._size > _MOST_KEPT_INSTRUCTIONS or len(self._known) > _MOST_KEPT
        ):
            self._size -= self._known.pop(next(iter(self._known))).size
        return known


_PATTERNS = Patterns()


def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern. Raises EvaluationError with Go's message if it is invalid."""
    return _PATTERNS.compiled(pattern)


def _compile(pattern: str) -> Pattern:
    import re2  # noqa: PLC0415  see above

    translated = golang.utf8(_TOKENS.sub(_translated, pattern))
    try:
        compiled = _in_little_memory(translated)
    except re2.error as error:
        if _text(error).startswith(_TOO_LARGE):
            raise PatternTooLargeError(
                f"the pattern takes more than {_MEMORY >> 20} MiB, the most that one may take "
                "here: repeat less, or shorter parts"
            ) from error
        raise EvaluationError(f"error parsing regexp: {_in_go(error, pattern)}") from error
    if any(token[0] == r"\C" for token in _TOKENS.finditer(pattern)):
        raise EvaluationError(r"error parsing regexp: invalid escape sequence: `\C`")
    return compiled


def _in_little_memory(pattern: bytes) -> Pattern:
    import re2  # noqa: PLC0415  see above

    options = re2.Options()
    options.log_errors = False
    # No CEL function returns groups, and the search is faster without them.
    options.never_capture = True
    options.max_mem = _USUAL_MEMORY
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        if not _text(error).startswith(_TOO_LARGE):
            raise
        options.max_mem = _MEMORY
        compiled = re2.compile(pattern, options)
    return Pattern(compiled.search, compiled.programsize)


def _text(error: "re2.error") -> str:
    (message,) = error.args
    return message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)


def check(pattern: str) -> None:
    """Raise EvaluationError if Go refuses the pattern. A pattern that is too large passes; the planner refuses it later."""
    with suppress(PatternTooLargeError):
        compile_pattern(pattern)


# --- differences between RE2 and Go -----------------------------------------------------------------------------------

_UNICODE = r"\\[pP](?:\{\^?[^}]*\}|[A-Za-z])"
# A part of a bracket expression: [:alpha:], a class, a character, or a range.
_MEMBER = rf"\[:\^?\w+:\]|{_UNICODE}|\\[dDsSwW]|(?:\\.|[^\\\]])(?:-(?!\])(?:\\.|[^\\]))?+"
_MEMBERS = re.compile(rf"(?:{_MEMBER}|\])", re.DOTALL)
_TOKENS = re.compile(
    rf"\\Q.*?(?:\\E|\Z)|{_UNICODE}|\\.|(?P<opening>\[\^?+)(?P<members>\]?+(?:{_MEMBER})*+)",
    re.DOTALL,
)


def _translated(token: re.Match[str]) -> str:
    if token["opening"]:
        inside = _MEMBERS.sub(lambda member: _class(member[0]) or member[0], token["members"])
        return token["opening"] + inside
    members = _class(token[0])
    if members is None or _UNKNOWN in members:
        return members or token[0]
    return f"[{members}]"


_UNKNOWN = "{\0"
"""Marks the name of a class that Go does not know, so that RE2 refuses it, too. `_in_go` removes the mark again."""


def _class(token: str) -> str | None:
    """Return the members of the class \\p{...}, to write between brackets. Returns None if the token is no class."""
    if not re.fullmatch(_UNICODE, token, re.DOTALL):
        return None
    is_single = token[2] != "{"
    name = token[2:] if is_single else token[3:-1]
    negated = token[1] == "P"
    if name.startswith("^"):
        name, negated = name[1:], not negated
    members = unicode_classes.members(name, negated=negated)
    return members or (None if is_single else token[:2] + _UNKNOWN + token[3:])


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


def _in_go(error: "re2.error", pattern: str) -> str:
    """Return RE2's error message in Go's words. Both quote the same part of the pattern, with the exceptions below."""
    text = _text(error).replace(_UNKNOWN, "{")
    if text.startswith("trailing "):
        return "trailing backslash at end of expression: ``"
    if text.endswith((": (?<=", ": (?<!")):
        rest = pattern[pattern.index(text[-len("(?<=") :]) :]
        return f"invalid named capture: `{rest[: rest.find('>') + 1 or None]}`"
    if text.startswith(("missing ): ", "unexpected ): ")):
        text = f"{text[: text.index(':')]}: {pattern}"
    if text.startswith("missing ]: "):
        text = f"missing ]: {_unclosed(pattern)}"
    for ours, theirs in _IN_GO:
        if text.startswith(ours):
            return f"{theirs}: `{text.removeprefix(ours)}`"
    return text


def _unclosed(pattern: str) -> str:
    """Return the pattern from the bracket that is not closed."""
    return next(
        pattern[token.start() :]
        for token in _TOKENS.finditer(pattern)
        if token["opening"] and pattern[token.end() : token.end() + 1] != "]"
    )
