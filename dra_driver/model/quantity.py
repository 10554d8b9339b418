# SPDX-License-Identifier: Apache-2.0
"""Kubernetes quantities as exact values.

A quantity is a decimal number with a binary (Ki, Mi, …) or decimal (n, u, m, k, M, …, e3) suffix. The API server
stores the canonical form: no fraction digits, the largest suffix that needs none. `Quantity` keeps the value in
billionths, the finest step that Kubernetes knows, so comparison and canonical form are exact.
Source: k8s.io/apimachinery/pkg/api/resource/quantity.go.
"""

import re
from dataclasses import dataclass, field
from fractions import Fraction
from functools import total_ordering
from typing import Literal

Format = Literal["BinarySI", "DecimalSI", "DecimalExponent"]

_SHAPE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([a-zA-Z]*)([+-]?[0-9]*)")
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_NANO = 10**9
_EXPONENT_CHARACTERS = 4  # more would only cost memory
_LARGEST = (2**63 - 1) * _NANO


@total_ordering
@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact quantity; equal to every other quantity of the same value, whatever its suffix."""

    nanos: int
    format: Format = field(default="DecimalSI", compare=False)

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Read the API's form, for example "80Gi", "1500m", "1e3"; ValueError says what is wrong."""
        match = _SHAPE.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no quantity; write for example 80Gi, 500m or 1e3")
        number, suffix, exponent = match.groups()
        scale, form = _scale(text, suffix, exponent)
        exact = Fraction(number) * scale * _NANO
        # Kubernetes rounds away from zero what is finer than a billionth, and cuts binary ones at 2^63-1.
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


def _scale(text: str, suffix: str, exponent: str) -> tuple[Fraction, Format]:
    if suffix in ("e", "E") and exponent not in ("", "+", "-"):
        if len(exponent) > _EXPONENT_CHARACTERS:
            raise ValueError(f"{text[:80]!r} has an exponent beyond every quantity")
        return Fraction(10) ** int(exponent), "DecimalExponent"
    if exponent == "" and suffix in _BINARY:
        return Fraction(1024 ** _BINARY[suffix]), "BinarySI"
    if exponent == "" and suffix in _DECIMAL:
        return Fraction(10) ** _DECIMAL[suffix], "DecimalSI"
    raise ValueError(
        f"{text!r} has no suffix that Kubernetes knows; it knows n u m k M G T P E, Ki Mi Gi Ti Pi Ei and e<number>"
    )


def _canonical_binary(value: int) -> str:
    for suffix, power in reversed(_BINARY.items()):
        if value % 1024**power == 0:
            return f"{value // 1024**power}{suffix}"
    return str(value)


def _canonical_decimal(nanos: int, *, exponent_form: bool) -> str:
    if nanos == 0:
        return "0"
    # The last step, a billionth, divides every value.
    suffix, power = next(
        (suffix, power)
        for suffix, power in reversed(_DECIMAL.items())
        if nanos % 10 ** (power + 9) == 0
    )
    number = nanos // 10 ** (power + 9)
    if not exponent_form:
        return f"{number}{suffix}"
    while number % 1000 == 0:
        number, power = number // 1000, power + 3
    return f"{number}e{power}" if power else str(number)
