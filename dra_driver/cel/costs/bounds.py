# SPDX-License-Identifier: Apache-2.0
"""How does the API server calculate with sizes and costs that it knows only as a range?

A size (characters, bytes, entries) or a cost is a range of uint64. A result above the largest uint64 becomes the largest
uint64. A product with a fraction is calculated in float64 and rounded up, each time. This rounding is part of the API
server's result, so this module rounds at the same places.
Source: cel-go checker/cost.go.
"""

import math
from functools import reduce

from msgspec import Struct

LARGEST = 2**64 - 1
_BEYOND = 2.0**64
_OUT_OF_RANGE = 2**63  # Go on amd64 converts a float64 above the largest uint64 to this number.


class Bounds(Struct, frozen=True):
    """A range with both ends included (cel-go: SizeEstimate, CostEstimate)."""

    low: int
    high: int

    def __add__(self, other: "Bounds") -> "Bounds":
        return Bounds(min(self.low + other.low, LARGEST), min(self.high + other.high, LARGEST))

    def __mul__(self, other: "Bounds") -> "Bounds":
        return Bounds(min(self.low * other.low, LARGEST), min(self.high * other.high, LARGEST))

    def __or__(self, other: "Bounds") -> "Bounds":
        return Bounds(min(self.low, other.low), max(self.high, other.high))

    def scaled(self, factor: float) -> "Bounds":
        """Return both ends times `factor`, rounded up."""
        return Bounds(_scaled(self.low, factor), _scaled(self.high, factor))


def fixed(value: int) -> Bounds:
    """Return the range with one value."""
    return Bounds(value, value)


def total(bounds: list[Bounds]) -> Bounds:
    """Return the sum of the ranges; ZERO if there are none."""
    return reduce(Bounds.__add__, bounds, ZERO)


def _scaled(value: int, factor: float) -> int:
    product = float(value) * factor
    return LARGEST if product >= _BEYOND else math.ceil(product)


def quotient(value: int, divisor: int) -> int:
    """Return `value / divisor` in float64, rounded up."""
    found = float(value) / float(divisor)
    return _OUT_OF_RANGE if found >= _BEYOND else math.ceil(found)


def wrapped(value: int) -> int:
    """Return the value after an overflow of uint64. The API server does not prevent an overflow in these places."""
    return value & LARGEST


ZERO = fixed(0)
ONE = fixed(1)
UNKNOWN = Bounds(0, LARGEST)
EMPTY = Bounds(LARGEST, 0)  # The neutral element of |.
