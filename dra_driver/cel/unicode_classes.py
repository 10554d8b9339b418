# SPDX-License-Identifier: Apache-2.0
"""Which characters does a class like \\p{Latin} have, in the Go version that Kubernetes is built with?

Go, RE2 and Python follow different versions of Unicode. So the tables are generated from Go.
Source: Go's packages unicode and regexp/syntax.
"""

from bisect import bisect_right
from functools import lru_cache

from dra_driver.cel.tables import unicode

_END = 0x110000
_ASCII = 0x80
_SURROGATES = range(0xD800, 0xE000)
_SEPARATORS = str.maketrans("", "", " _-")
_Spans = tuple[tuple[int, int], ...]


def canonical(name: str) -> str:
    """Return the name in the form of Go's lookup: `latin`, `LATIN` and `La-Tin` are Latin. Go does not know `Old_Italic`."""
    return name.translate(_SEPARATORS).capitalize() if name.isascii() else ""


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    """Return the class of each canonical name."""
    aliases = dict(entry.split("=") for entry in unicode.ALIASES.split())
    return aliases | {name: name for name in (*unicode.CLASSES.split(), "Any", "Ascii", "Assigned")}


def members(name: str, *, negated: bool) -> str | None:
    """Return the members of a class, to write between brackets in an RE2 pattern. Returns None if Go does not know the name."""
    known = _names().get(canonical(name))
    if known == "Ascii":
        return "[:^ascii:]" if negated else "[:ascii:]"
    if known == "Assigned":
        known, negated = "Cn", not negated
    if known is None or known not in unicode.RANGES:
        return known and (rf"\P{{{known}}}" if negated else rf"\p{{{known}}}")
    if not negated:
        return _written(_spans(unicode.RANGES[known]))
    if known in _NOT_IN_RE2:
        return _written(_complement(_spans(unicode.RANGES[known])))
    return rf"\P{{{known}}}" + _written(_spans(unicode.NEWER))


_NOT_IN_RE2 = frozenset({"C", "Cn", "Lc"})
"""RE2 does not know these classes, or knows much smaller ones. So it cannot negate them."""


@lru_cache(maxsize=32)
def _spans(table: str) -> _Spans:
    """Return the first and the last code point of each range."""
    return tuple(
        (int(first, 16), int(last or first, 16))
        for first, _, last in (entry.partition("-") for entry in table.split())
    )


def _complement(spans: _Spans) -> _Spans:
    starts = (0, *(last + 1 for _, last in spans))
    ends = (*(first - 1 for first, _ in spans), _END - 1)
    return tuple((start, end) for start, end in zip(starts, ends, strict=True) if start <= end)


@lru_cache(maxsize=32)
def _written(spans: _Spans) -> str:
    return "".join(
        _character(first) if first == last else f"{_character(first)}-{_character(last)}"
        for first, last in spans
    )


def _character(code: int) -> str:
    """Return the character for a pattern. Only a surrogate is escaped outside ASCII, because that is shorter."""
    return chr(code) if code >= _ASCII and code not in _SURROGATES else rf"\x{{{code:x}}}"


def is_printable(character: str) -> bool:
    """Return whether Go's %q writes the character without an escape."""
    code = ord(character)
    spans = _spans(unicode.PRINTABLE)
    index = bisect_right(spans, (code, _END)) - 1
    return index >= 0 and code <= spans[index][1]
