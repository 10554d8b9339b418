# SPDX-License-Identifier: Apache-2.0
"""Kubernetes quantities as exact values.

A quantity is a decimal number with a binary (Ki, Mi, …) or decimal (n, u, m, k, M, …, e3) suffix. The API server
stores the canonical form: no fraction digits, the largest suffix that needs none. `Quantity` keeps the value in
billionths, the finest step that Kubernetes knows, so comparison and canonical form are exact.
Source: k8s.io/apimachinery/pkg/api/resource/quantity.go.
"""

import re
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import total_ordering
from typing import Literal, NamedTuple

Format = Literal["BinarySI", "DecimalSI", "DecimalExponent"]

BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
"""The power of two of each binary suffix."""
DECIMAL_SUFFIXES = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
"""The power of ten of each decimal suffix."""

# Possessive quantifiers: without them, a long text that is no quantity would take quadratic time.
_SHAPE = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([a-zA-Z]*+[+-]?[0-9]*+)")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
_NANO = 10**9
_EXPONENT_CHARACTERS = 4  # more would only cost memory
_LARGEST = (2**63 - 1) * _NANO


class Parts(NamedTuple):
    """The parts of a quantity's text: its sign ("", "+", "-"), the digits before and after the point, and the suffix.

    Three things are not checked here, because the scheduler, CEL and the API server differ in them: whether there is a digit, how
    many there may be, and whether the suffix exists.
    """

    sign: str
    whole: str
    fraction: str
    suffix: str

    @property
    def exponent(self) -> str | None:
        """The exponent of a suffix like "e3", as text because it may have any length; None for another suffix."""
        match = _EXPONENT.fullmatch(self.suffix)
        return match[1] if match else None


def scan(text: str) -> Parts | None:
    """Split the text of a quantity into its parts; None if it does not have the form of one."""
    match = _SHAPE.fullmatch(text)
    return Parts(match[1], match[2], match[3] or "", match[4]) if match else None


@total_ordering
@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact quantity. Two quantities are equal if their values are, whatever their suffixes."""

    nanos: int
    format: Format = field(default="DecimalSI", compare=False)

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Read a quantity of the API, for example "80Gi", "1500m", "1e3". Raises ValueError, which says what is wrong."""
        parts = scan(text)
        if parts is None or not (parts.whole or parts.fraction):
            raise ValueError(f"{text!r} is no quantity; write for example 80Gi, 500m or 1e3")
        scale, form = _scale(text, parts)
        number = Fraction(f"{parts.sign}{parts.whole or 0}.{parts.fraction or 0}")
        exact = number * scale * _NANO
        # Kubernetes rounds digits below a billionth away from zero, and limits a value with a binary suffix to 2^63-1.
        nanos = -(-exact.numerator // exact.denominator) if exact >= 0 else exact.__floor__()
        if form == "BinarySI":
            nanos = max(-_LARGEST, min(_LARGEST, nanos))
        return cls(nanos, form)

    @classmethod
    def of_bytes(cls, count: int) -> "Quantity":
        """A memory size in bytes, shown with a binary suffix."""
        return cls(count * _NANO, "BinarySI")

    def __lt__(self, other: "Quantity") -> bool:
        return self.nanos < other.nanos

    def __str__(self) -> str:
        if (
            self.format == "BinarySI"
            and self.nanos % _NANO == 0
            and abs(self.nanos) >= 1024 * _NANO
        ):
            return _canonical_binary(self.nanos // _NANO)
        return _canonical_decimal(self.nanos, exponent_form=self.format == "DecimalExponent")


def _scale(text: str, parts: Parts) -> tuple[Fraction, Format]:
    if (exponent := parts.exponent) is not None:
        if len(exponent) > _EXPONENT_CHARACTERS:
            raise ValueError(f"{text[:80]!r} has an exponent beyond every quantity")
        return Fraction(10) ** int(exponent), "DecimalExponent"
    if parts.suffix in BINARY_SUFFIXES:
        return Fraction(2 ** BINARY_SUFFIXES[parts.suffix]), "BinarySI"
    if parts.suffix in DECIMAL_SUFFIXES:
        return Fraction(10) ** DECIMAL_SUFFIXES[parts.suffix], "DecimalSI"
    raise ValueError(
        f"{text!r} has no suffix that Kubernetes knows; it knows n u m k M G T P E, Ki Mi Gi Ti Pi Ei and e<number>"
    )


def _digits(number: int) -> str:
    """The number as text. str(number) raises ValueError for more than 4,300 digits."""
    return str(Decimal(number))


def _canonical_binary(value: int) -> str:
    for suffix, power in reversed(BINARY_SUFFIXES.items()):
        if value % 2**power == 0:
            return f"{_digits(value // 2**power)}{suffix}"
    return _digits(value)


def _canonical_decimal(nanos: int, *, exponent_form: bool) -> str:
    if nanos == 0:
        return "0"
    # The last step, a billionth, divides every value.
    suffix, power = next(
        (suffix, power)
        for suffix, power in reversed(DECIMAL_SUFFIXES.items())
        if nanos % 10 ** (power + 9) == 0
    )
    number = nanos // 10 ** (power + 9)
    if not exponent_form:
        return f"{_digits(number)}{suffix}"
    while number % 1000 == 0:
        number, power = number // 1000, power + 3
    return f"{_digits(number)}e{power}" if power else _digits(number)
