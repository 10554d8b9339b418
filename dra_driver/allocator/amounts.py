# SPDX-License-Identifier: Apache-2.0
"""How does the scheduler calculate with quantities, and how does it write them?

An Amount has the exact value as an integer in billionths (nano units). Go's Quantity has more fields than the value, and
the scheduler's results depend on them in two places. It writes an unchanged quantity with the original text. It also
compares some quantities with Go's `==`, which compares all fields. So an Amount keeps the original text and the decimal
scale. Go stores a quantity in another form if it does not fit into 64 bits, or if it has a fraction and a binary suffix.
Two such quantities are never equal under `==`; their `scale` is None.
Source: k8s.io/apimachinery/pkg/api/resource/quantity.go (ParseQuantity).
"""

from functools import lru_cache
from typing import NamedTuple

from dra_driver.allocator.failures import AllocationError
from dra_driver.model.api.meta import QuantityText
from dra_driver.model.quantity import BINARY_SUFFIXES, DECIMAL_SUFFIXES, Format, Quantity, scan

NANO = 10**9
MILLI = 10**6
MAX_INT64 = 2**63 - 1

_DIGITS = 18  # A number with at most 18 digits fits into 64 bits.
_EXPONENT_CHARACTERS = 4  # "e" and three digits. A larger exponent would only use memory.
_MOST_DIGITS = 3000
"""Python converts at most 4,300 digits (sys.set_int_max_str_digits). The other 1,300 digits are for the exponent."""
_SHOWN = 80


class Amount(NamedTuple):
    """A parsed quantity. `nanos` is the value in billionths.

    `scale` is the power of ten in Go's 64-bit form, None if Go uses the decimal form. `text` is the published text if Go
    would write it unchanged, else "".
    """

    nanos: int
    format: Format = "DecimalSI"
    scale: int | None = 0
    text: str = ""

    def __str__(self) -> str:
        return self.text or str(Quantity(self.nanos, self.format))

    def whole(self) -> int:
        """Return the value rounded away from zero to an integer, as Quantity.Value() does."""
        return _away_from_zero(self.nanos, NANO)

    def milli(self) -> int | None:
        """Return the value in thousandths. None if it is not exact or does not fit into 64 bits (safeMilliValue)."""
        value, rest = divmod(self.nanos, MILLI)
        return None if rest or abs(value) > MAX_INT64 else value


ZERO = Amount(0, "DecimalSI", 0, "0")


@lru_cache(maxsize=4096)
def amount(text: QuantityText) -> Amount:
    """Parse a quantity of an API object. Raises AllocationError if the text is no quantity or is too long."""
    found = str(text).strip()
    parts = scan(found)
    if parts is None or not (parts.whole or parts.fraction):
        raise _no_quantity(text)
    sign, digits, fraction = parts.sign, parts.whole.lstrip("0"), parts.fraction
    suffix, exponent = parts.suffix, parts.exponent
    if not (exponent or suffix in BINARY_SUFFIXES or suffix in DECIMAL_SUFFIXES):
        raise _no_quantity(text)
    if len(digits) + len(fraction) > _MOST_DIGITS:
        raise AllocationError(f"{_in_brief(text)} has more than {_MOST_DIGITS:,} digits")
    digits = digits or "0"
    if exponent is None and suffix in BINARY_SUFFIXES:
        return _binary(found, sign, digits, fraction, BINARY_SUFFIXES[suffix])
    if exponent is None:
        return _decimal(found, sign, digits, fraction, (DECIMAL_SUFFIXES[suffix], "DecimalSI"))
    if len(suffix) > _EXPONENT_CHARACTERS:
        raise AllocationError(f"{_in_brief(text)} has an exponent beyond every quantity")
    return _decimal(found, sign, digits, fraction, (int(exponent), "DecimalExponent"))


def _no_quantity(text: QuantityText) -> AllocationError:
    return AllocationError(f"{_in_brief(text)} is no quantity; write for example 80Gi, 500m or 1e3")


def _in_brief(text: QuantityText) -> str:
    shown = repr(text)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def _decimal(text: str, sign: str, digits: str, fraction: str, unit: tuple[int, Format]) -> Amount:
    # ParseQuantity keeps the number in 64 bits if all its digits fit. It keeps the text, too, if the text is canonical: the
    # scale is a multiple of three, and there are neither leading zeros nor "000" at the end.
    exponent, form = unit
    if text == "0":
        return ZERO
    shifted = digits + fraction
    scale = exponent - len(fraction)
    value = int(shifted) if sign != "-" else -int(shifted)
    if len(shifted) <= _DIGITS and scale >= -9:  # noqa: PLR2004 - 10^-9, the smallest unit of a quantity
        kept = scale % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"
        return Amount(value * 10 ** (scale + 9), form, scale, text if kept else "")
    if scale >= -9:  # noqa: PLR2004 - 10^-9, the smallest unit of a quantity
        return Amount(value * 10 ** (scale + 9), form, None)
    # A quantity below the smallest unit is rounded up, because a small request must not become a request for nothing.
    return Amount(_away_from_zero(value, 10 ** (-scale - 9)), form, None)


def _binary(text: str, sign: str, digits: str, fraction: str, exponent: int) -> Amount:
    # ParseQuantity estimates how many decimal digits are left after the shift (`precision`). If none is left, or if there is
    # a fraction, it uses the decimal form, which is capped at MaxInt64. The text is canonical if the number is not
    # divisible by 8; Go does not check for 1024.
    shifted = int(digits + fraction)
    value = shifted << exponent
    factor = -1 if sign == "-" else 1
    precision = 15 - len(digits) - exponent * 3 // 10 - 1
    if not fraction and precision >= 0:
        kept = exponent % 10 == 0 and shifted & 7
        return Amount(factor * value * NANO, "BinarySI", 0, text if kept else "")
    nanos = min(_away_from_zero(value * NANO, 10 ** len(fraction)), MAX_INT64 * NANO)
    form: Format = "DecimalSI" if 0 < nanos < NANO else "BinarySI"
    return Amount(factor * nanos, form, None)


def _away_from_zero(value: int, divisor: int) -> int:
    return -(-value // divisor) if value >= 0 else value // divisor
