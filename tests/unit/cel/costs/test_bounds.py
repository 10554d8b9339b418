# SPDX-License-Identifier: Apache-2.0
"""Ranges of uint64 that never overflow."""

from dra_driver.cel.costs.bounds import (
    EMPTY,
    LARGEST,
    UNKNOWN,
    Bounds,
    fixed,
    quotient,
    total,
    wrapped,
)


def test_sums_and_products_stop_at_the_largest_number() -> None:
    assert Bounds(1, 2) + Bounds(3, 4) == Bounds(4, 6)
    assert UNKNOWN + fixed(1) == Bounds(1, LARGEST)
    assert Bounds(2, 3) * Bounds(4, LARGEST) == Bounds(8, LARGEST)
    assert total([fixed(1), fixed(2), UNKNOWN]) == Bounds(3, LARGEST)


def test_a_united_range_covers_both() -> None:
    assert Bounds(2, 3) | Bounds(1, 2) == Bounds(1, 3)
    assert EMPTY | Bounds(4, 5) == Bounds(4, 5)


def test_a_product_with_a_factor_is_rounded_up() -> None:
    assert Bounds(1, 11).scaled(0.1) == Bounds(1, 2)
    assert UNKNOWN.scaled(0.1) == Bounds(0, 1_844_674_407_370_955_264)
    assert UNKNOWN.scaled(2.0) == UNKNOWN


def test_a_quotient_goes_through_floating_point() -> None:
    assert quotient(7, 2) == 4
    assert quotient(LARGEST, 2) == 2**63
    assert quotient(LARGEST, 1) == 2**63  # too large for the conversion that Go does


def test_what_overflows_on_purpose_begins_again_at_nothing() -> None:
    assert wrapped(LARGEST + 3) == 2
    assert wrapped(-1) == LARGEST
