# SPDX-License-Identifier: Apache-2.0
"""How much at least, how much at most?

Sizes (characters, bytes, entries) and costs are both ranges of uint64. Their arithmetic never overflows: what is more
than the largest uint64 is the largest uint64. Products with a factor go through float64 and are rounded up, each
one for itself; that is part of the number that the API server computes, so it is done the same way here.
Source: cel-go checker/cost.go.
"""

import math
from dataclasses import dataclass
from functools import reduce

LARGEST = 2**64 - 1
_BEYOND = 2.0**64
_OUT_OF_RANGE = 2**63  # what Go's conversion of a float64 beyond uint64 gives on amd64


@dataclass(frozen=True, slots=True)
class Bounds:
    """A range, both ends included."""

    low: int
    high: int

    def __add__(self, other: "Bounds") -> "Bounds":
        return Bounds(min(self.low + other.low, LARGEST), min(self.high + other.high, LARGEST))

    def __mul__(self, other: "Bounds") -> "Bounds":
        return Bounds(min(self.low * other.low, LARGEST), min(self.high * other.high, LARGEST))

    def __or__(self, other: "Bounds") -> "Bounds":
        return Bounds(min(self.low, other.low), max(self.high, other.high))

    def scaled(self, factor: float) -> "Bounds":
        """Both ends times the factor, rounded up."""
        return Bounds(_scaled(self.low, factor), _scaled(self.high, factor))


def fixed(value: int) -> Bounds:
    """Exactly so much."""
    return Bounds(value, value)


def total(bounds: list[Bounds]) -> Bounds:
    """The sum of all."""
    return reduce(Bounds.__add__, bounds, ZERO)


def _scaled(value: int, factor: float) -> int:
    product = float(value) * factor
    return LARGEST if product >= _BEYOND else math.ceil(product)


def quotient(value: int, divisor: int) -> int:
    """How often, rounded up, by way of float64."""
    found = float(value) / float(divisor)
    return _OUT_OF_RANGE if found >= _BEYOND else math.ceil(found)


def wrapped(value: int) -> int:
    """The value as a uint64 that overflows: where the API server takes no care, neither is care taken here."""
    return value & LARGEST


ZERO = fixed(0)
ONE = fixed(1)
UNKNOWN = Bounds(0, LARGEST)
EMPTY = Bounds(LARGEST, 0)  # what united with a range is that range
