# SPDX-License-Identifier: Apache-2.0
"""Quantities: exact values, and the form that the API server stores."""

from decimal import Decimal

import pytest

from dra_driver.model.quantity import Quantity

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "value", "canonical"),
    [
        ("0", "0", "0"),
        ("0Gi", "0", "0"),
        ("80Gi", "85899345920", "80Gi"),
        ("81920Mi", "85899345920", "80Gi"),
        ("1.5Gi", "1610612736", "1536Mi"),
        ("1025Ki", "1049600", "1025Ki"),
        ("1.5Ki", "1536", "1536"),
        ("1023", "1023", "1023"),
        ("0.5Ki", "512", "512"),
        ("0.0001Ki", "0.1024", "102400u"),
        ("1500m", "1.5", "1500m"),
        ("1000m", "1", "1"),
        ("1000", "1000", "1k"),
        ("100k", "100000", "100k"),
        ("1.2M", "1200000", "1200k"),
        ("1E", "1000000000000000000", "1E"),
        ("1e3", "1000", "1e3"),
        ("1E3", "1000", "1e3"),
        ("1e2", "100", "100"),
        ("1e-3", "0.001", "1e-3"),
        ("1e+3", "1000", "1e3"),
        ("-5", "-5", "-5"),
        ("+5", "5", "5"),
        ("-1.5Gi", "-1610612736", "-1536Mi"),
        (".5", "0.5", "500m"),
        ("5.", "5", "5"),
        ("1n", "1e-9", "1n"),
        ("0.1n", "1e-9", "1n"),
        ("-0.1n", "-1e-9", "-1n"),
        ("1e-999", "1e-9", "1e-9"),
        ("9223372036854775807", "9223372036854775807", "9223372036854775807"),
        ("9223372036854775808", "9223372036854775808", "9223372036854775808"),
        ("-1e99", "-1e99", "-1e99"),
        ("1000e18", "1e21", "1e21"),
        ("10E", "1e19", "10E"),
        ("16Ei", "9223372036854775807", "9223372036854775807"),
    ],
)
def test_the_value_is_exact_and_the_form_canonical(text: str, value: str, canonical: str) -> None:
    quantity = Quantity.parse(text)
    assert Decimal(quantity.nanos) == Decimal(value) * 10**9
    assert str(quantity) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 Gi",
        "Gi",
        "1gi",
        "1Kib",
        "1K",
        "1e",
        "1E+",
        "1ee3",
        "1e3Ki",
        "0x10",
        "1,5",
        "1_0",
        "٣",
        "--1",
        "1Gi\n",
        "1e99999999",
    ],
)
def test_what_kubernetes_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"quantity|suffix"):
        Quantity.parse(text)


def test_quantities_of_one_value_are_equal_whatever_their_suffix() -> None:
    assert Quantity.parse("1Ki") == Quantity.parse("1024") == Quantity.parse("1.024k")
    assert len({Quantity.parse("1Ki"), Quantity.parse("1024")}) == 1


def test_quantities_are_ordered_by_value() -> None:
    small, large = Quantity.parse("79Gi"), Quantity.parse("80Gi")
    assert small < large
    assert large >= small
    assert sorted([large, small]) == [small, large]


def test_bytes_are_shown_with_a_binary_suffix() -> None:
    assert str(Quantity.of_bytes(80 * GIB)) == "80Gi"
    assert str(Quantity.of_bytes(80 * GIB + 1)) == "85899345921"


def test_a_fraction_of_a_byte_is_shown_in_decimal() -> None:
    assert str(Quantity(2000 * 10**9 + 1, "BinarySI")) == "2000000000001n"
