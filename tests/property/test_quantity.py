# SPDX-License-Identifier: Apache-2.0
"""Quantities of any shape: exact, ordered, and canonical text that reads back."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.quantity import Quantity

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9}
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3}
SUFFIXES = st.sampled_from([*DECIMAL, *BINARY, "e3", "E-2", "e+1"])
NUMBERS = st.decimals(min_value=-(10**6), max_value=10**6, places=4).map(
    lambda number: f"{number:f}"
)


def value_of(number: str, suffix: str) -> Fraction:
    if suffix in BINARY:
        return Fraction(number) * 1024 ** BINARY[suffix]
    power = DECIMAL[suffix] if suffix in DECIMAL else int(suffix[1:])
    return Fraction(number) * Fraction(10) ** power


@given(NUMBERS, SUFFIXES)
def test_the_value_is_exact_to_a_billionth_away_from_zero(number: str, suffix: str) -> None:
    exact = value_of(number, suffix) * 10**9
    nanos = Quantity.parse(number + suffix).nanos
    assert abs(nanos) >= abs(exact)
    assert abs(nanos - exact) < 1


@given(NUMBERS, SUFFIXES)
def test_the_canonical_text_reads_back_and_is_a_fixed_point(number: str, suffix: str) -> None:
    quantity = Quantity.parse(number + suffix)
    again = Quantity.parse(str(quantity))
    assert again == quantity
    assert str(Quantity(again.nanos, quantity.format)) == str(quantity)
    assert "." not in str(quantity)


@given(NUMBERS, SUFFIXES, NUMBERS, SUFFIXES)
def test_order_is_the_order_of_values(one: str, first: str, two: str, second: str) -> None:
    left, right = Quantity.parse(one + first), Quantity.parse(two + second)
    assert (left < right) == (left.nanos < right.nanos)
    assert (left == right) == (left.nanos == right.nanos)
