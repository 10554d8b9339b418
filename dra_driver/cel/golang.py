# SPDX-License-Identifier: Apache-2.0
"""How does Go format values? CEL results show it: in error messages, in string(1.5), in format().

A string can contain bytes that are not UTF-8, for example after `url("/?a=%ff").getQuery()`. Python's `surrogateescape`
keeps each such byte as one character. Go also treats such a byte as one character.
Source: Go's packages strconv and fmt.
"""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from dra_driver.cel.unicode_classes import is_printable

_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
_LARGEST_EXPONENT = 6
_LOWEST_EXPONENT = -4
_DELETE = "\x7f"
_BEYOND_BMP = 0x10000
_ESCAPED_BYTES = range(0xDC80, 0xDD00)
_ENOUGH_DIGITS = 21  # One more than the largest 64-bit number has.


def integer(text: str) -> int:
    """Parse a sign and digits. If the number exceeds 64 bits, the result is another number that also exceeds them.

    int() would raise ValueError for more than 4,300 digits, leading zeros included.
    """
    digits = text.lstrip("+-").lstrip("0")[:_ENOUGH_DIGITS] or "0"
    return -int(digits) if text.startswith("-") else int(digits)


def double(value: float) -> str:
    """Return the double as %g and %v write it: with the fewest digits that parse to the same number."""
    if not math.isfinite(value):
        return _not_finite(value)
    sign, digits, exponent = _shortest(value)
    power = len(digits) + exponent - 1
    if _LOWEST_EXPONENT <= power < _LARGEST_EXPONENT:
        return double_in_full(value)
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{power:+03d}"


def double_in_full(value: float) -> str:
    """Return the double with the fewest digits that parse to the same number, and without an exponent."""
    if not math.isfinite(value):
        return _not_finite(value)
    sign, digits, exponent = _shortest(value)
    if exponent >= 0:
        return f"{sign}{digits}{'0' * exponent}"
    if len(digits) > -exponent:
        return f"{sign}{digits[:exponent]}.{digits[exponent:]}"
    return f"{sign}0.{digits.rjust(-exponent, '0')}"


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def _shortest(value: float) -> tuple[str, str, int]:
    """Return the sign, the significant digits without trailing zeros, and the power of ten of the last digit."""
    negative, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    power = int(exponent) + len(text) - len(stripped)
    return "-" if negative else "", stripped or "0", power if stripped else 0


# --- times ------------------------------------------------------------------------------------------------------------

_SECOND, _MINUTE, _HOUR = 10**9, 60 * 10**9, 3600 * 10**9
_FIRST = datetime(1, 1, 1, tzinfo=UTC)
_FIRST_SECONDS = -62135596800
_ERA = (400 * 365 + 97) * 24 * 3600


def civil(seconds: int) -> tuple[int, datetime]:
    """Return the year of a Unix time, and a datetime with the same month, day, weekday and time.

    Python's datetime ends with the year 9999. The calendar repeats after 400 years, so another year has the same days.
    """
    eras, rest = divmod(seconds - _FIRST_SECONDS, _ERA)
    moment = _FIRST + timedelta(seconds=rest)
    return moment.year + 400 * eras, moment


def moment(seconds: int, nanos: int, offset: int) -> str:
    """Return the time as %v writes it: "2023-01-02 03:04:05.5 +0200 +0200". `offset` is in seconds."""
    year, local = civil(seconds + offset)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    minutes = abs(offset) // 60
    zone = f"{'-' if offset < 0 else '+'}{minutes // 60:02d}{minutes % 60:02d}"
    name = "UTC" if offset == 0 else zone
    return f"{year:04d}-{local:%m-%d %H:%M:%S}{fraction} {zone} {name}"


def duration(nanos: int) -> str:
    """Return the duration as %v writes it: "1h0m5.5s", "15ms"."""
    sign, size = "-" if nanos < 0 else "", abs(nanos)
    if size < _SECOND:
        unit, power = next(
            ((unit, power) for unit, power in (("ms", 6), ("µs", 3)) if size >= 10**power),
            ("ns", 0),
        )
        return f"{sign}{_fraction(size, power)}{unit}" if size else "0s"
    seconds = f"{_fraction(size % _MINUTE, 9)}s"
    if size >= _HOUR:
        return f"{sign}{size // _HOUR}h{size % _HOUR // _MINUTE}m{seconds}"
    return f"{sign}{size // _MINUTE}m{seconds}" if size >= _MINUTE else sign + seconds


def _fraction(value: int, digits: int) -> str:
    whole, rest = divmod(value, 10**digits)
    return f"{whole}.{rest:0{digits}d}".rstrip("0") if rest else str(whole)


# --- strings ----------------------------------------------------------------------------------------------------------


def quote(text: str) -> str:
    """Return the text as %q writes it: in double quotes, with escapes for characters that are not printable."""
    return '"' + "".join(map(_quoted, text)) + '"'


def _quoted(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if is_printable(character):
        return character
    code = ord(character)
    if code in _ESCAPED_BYTES:
        return f"\\x{code - 0xDC00:02x}"
    if character < " " or character == _DELETE:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < _BEYOND_BMP else f"\\U{code:08x}"


def utf8(text: str) -> bytes:
    """Return the bytes of a string. Bytes that are not UTF-8 come back as they were."""
    return text.encode("utf-8", "surrogateescape")


def from_utf8(content: bytes) -> str:
    """Return the string of these bytes. Bytes that are not UTF-8 are kept as surrogates."""
    return content.decode("utf-8", "surrogateescape")


def valid(text: str) -> str:
    """Return the text with U+FFFD in place of bytes that are not UTF-8."""
    return utf8(text).decode("utf-8", "replace")
