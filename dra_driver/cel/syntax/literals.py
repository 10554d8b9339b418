# SPDX-License-Identifier: Apache-2.0
"""What is the value of a literal?

Numbers must fit into 64 bits. A string or bytes literal can have escapes, unless it starts with r. In a literal, \\r\\n and
\\r become \\n.
Source: cel-go parser/parser.go, parser/unescape.go.
"""

import math
import re
import sys
from collections.abc import Callable

from dra_driver.cel.syntax.ast import Uint

_INT_RANGE = range(-(2**63), 2**63)
_UINT_RANGE = range(2**64)
_MOST_DIGITS = 20  # No 64-bit number has more, and int() raises ValueError for thousands of digits.


def _digits(text: str, sign: int, allowed: range) -> int | None:
    base = 16 if text.startswith("0x") else 10
    digits = text.removeprefix("0x").lstrip("0") or "0"
    if len(digits) > _MOST_DIGITS:
        return None
    value = sign * int(digits, base)
    return value if value in allowed else None


def _int(text: str, sign: int) -> int | None:
    return _digits(text, sign, _INT_RANGE)


def _uint(text: str, sign: int) -> Uint | None:
    value = _digits(text[:-1], sign, _UINT_RANGE)
    return None if value is None else Uint(value)


def _double(text: str, sign: int) -> float | None:
    value = sign * float(text)
    return value if math.isfinite(value) else None


NUMBERS: dict[str, Callable[[str, int], int | Uint | float | None]] = {
    "int": _int,
    "uint": _uint,
    "double": _double,
}
"""By kind of token: a function from the text and the sign (1 or -1) to the value. None if it does not fit."""
TOO_LARGE = {
    "int": "An int has 64 bits: -9223372036854775808 to 9223372036854775807.",
    "uint": "A uint has 64 bits: 0u to 18446744073709551615u.",
    "double": "A double has 64 bits: its largest value is about 1.8e308.",
}

_SURROGATES = range(0xD800, 0xE000)
_ASCII = range(0x80)
# The error handler "surrogateescape" encodes the code point 0xDC00 + b as the byte b.
_BYTES = 0xDC00


class LiteralError(ValueError):
    """An invalid string or bytes literal. The message is the API server's."""


def string_value(text: str, *, surrogates: bool = False) -> str:
    """Return the value of a string literal. With `surrogates`, the escape of a surrogate gives U+FFFD, as in 1.32."""

    def code_point(code: int) -> str:
        if code in _SURROGATES and surrogates:
            return "\ufffd"
        if code > sys.maxunicode or code in _SURROGATES:
            message = "unable to unescape string" if surrogates else "invalid unicode code point"
            raise LiteralError(message)
        return chr(code)

    raw, body = _body(text)
    return body if raw else _ESCAPES.sub(lambda match: _unescape(match, code_point), body)


def bytes_value(text: str) -> bytes:
    """Return the value of a bytes literal. A hexadecimal or octal escape is one byte; a character is its UTF-8 bytes."""

    def character(match: re.Match[str]) -> str:
        if match.group(1)[0] in "uU":
            message = "unable to unescape string"
            raise LiteralError(message)
        # A byte becomes a surrogate until the text is encoded. A literal cannot contain surrogates, so this is unique.
        return _unescape(match, lambda code: chr(code) if code in _ASCII else chr(_BYTES + code))

    raw, body = _body(text[1:])
    if raw:
        return body.encode()
    return _ESCAPES.sub(character, body).encode("utf-8", "surrogateescape")


def _body(text: str) -> tuple[bool, str]:
    """Return whether the literal is raw, and the text between its quotes."""
    raw = text[0] in "rR"
    quoted = text[1:] if raw else text
    marks = 3 if quoted[:3] in ('""' + '"', "'''") and len(quoted) >= 6 else 1  # noqa: PLR2004 - two times three quotes
    return raw, quoted[marks:-marks].replace("\r\n", "\n").replace("\r", "\n")


_ESCAPES = re.compile(r"\\(x..|X..|u.{4}|U.{8}|[0-3]..|.)", re.DOTALL)
_CHARACTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _unescape(match: re.Match[str], code_point: Callable[[int], str]) -> str:
    escape = match.group(1)
    if escape[0] in "xXuU":
        return code_point(int(escape[1:], 16))
    if escape[0] in "0123":
        return code_point(int(escape, 8))
    return _CHARACTERS.get(escape, escape)
