# SPDX-License-Identifier: Apache-2.0
"""Quantities as the scheduler reads, compares and writes them."""

import pytest

from dra_driver.allocator.amounts import MAX_INT64, NANO, ZERO, Amount, amount
from dra_driver.allocator.failures import AllocationError


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("0", 0),
        ("5", 5 * NANO),
        (7, 7 * NANO),
        (" 1.5 ", 3 * NANO // 2),
        (".5", NANO // 2),
        ("+2k", 2000 * NANO),
        ("-2m", -2_000_000),
        ("1e3", 1000 * NANO),
        ("2E-3", 2_000_000),
        ("1E", 10**18 * NANO),
        ("3Ei", 3 * 2**60 * NANO),
        ("-1Ki", -1024 * NANO),
        ("0.5Gi", 2**29 * NANO),
        ("100E", 10**20 * NANO),
        ("1234567890123456789012", 1234567890123456789012 * NANO),
        ("0.1n", 1),
        ("-0.1n", -1),
        ("100Ei", MAX_INT64 * NANO),
        ("-100Ei", -MAX_INT64 * NANO),
    ],
)
def test_every_notation_is_read_exactly(text: str | int, nanos: int) -> None:
    assert amount(text).nanos == nanos


@pytest.mark.parametrize("text", ["", ".", "Gi", "1 Gi", "1ki", "--1", "1e", "1.2.3", "1e99999"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(AllocationError):
        amount(text)


@pytest.mark.parametrize("suffix", ["", "Gi", "e999"])
def test_a_quantity_of_thousands_of_digits_is_refused_in_brief(suffix: str) -> None:
    most = "9" * 3000 + suffix
    assert str(amount(f"{'0' * 5000}{most}")) == str(amount(most))
    for text in ("9" * 3001 + suffix, f"9.{'1' * 5000}{suffix}"):
        with pytest.raises(AllocationError, match="has more than 3,000 digits") as refused:
            amount(text)
        assert len(str(refused.value)) < 120
    with pytest.raises(AllocationError) as unread:
        amount("x" * 5000)
    assert len(str(unread.value)) < 160


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("80Gi", "80Gi"),
        ("1024Mi", "1Gi"),
        ("1025Mi", "1025Mi"),
        ("1.5", "1500m"),
        ("1.250k", "1.250k"),  # upstream takes this for the canonical form
        ("2000m", "2"),
        ("+5", "+5"),
        ("05", "05"),
        ("0.1Ki", "102400m"),
        ("0.5", "500m"),
        ("0", "0"),
    ],
)
def test_a_quantity_is_written_as_upstream_writes_it(text: str, written: str) -> None:
    assert str(amount(text)) == written


def test_equal_values_in_other_notations_differ_field_by_field() -> None:
    assert amount("1Gi") == amount("1Gi")
    assert amount("1Gi") != amount("1024Mi")
    assert amount("2") != amount("2000m")
    assert amount("0") == ZERO


def test_what_does_not_fit_into_64_bits_is_kept_as_a_decimal() -> None:
    assert amount("1Gi").scale == 0
    assert amount("2k").scale == 3
    assert [amount(text).scale for text in ("16Pi", "1.5Gi", "0.1n", "1" * 19)] == [None] * 4


def test_a_fraction_is_rounded_away_from_zero() -> None:
    assert amount("1500m").whole() == 2
    assert amount("-1500m").whole() == -2
    assert Amount(3 * NANO).whole() == 3


def test_thousandths_are_exact_or_not_at_all() -> None:
    assert amount("1500m").milli() == 1500
    assert amount("1u").milli() is None
    assert amount("9223372036854775807").milli() is None
