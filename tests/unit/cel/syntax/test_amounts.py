# SPDX-License-Identifier: Apache-2.0
"""What an amount that is written in another way stands for."""

import pytest

from dra_driver.cel.syntax import amounts


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("40Gi", "40Gi"),
        ("40G", "40G"),
        ("40k", "40k"),
        ("40K", "40Ki"),
        ("40GB", "40Gi"),
        ("40 gib", "40Gi"),
        ("40", ""),
        ("much", ""),
    ],
)
def test_the_unit_is_one_that_quantities_have(text, meant):
    assert amounts.of_text(text) == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("40", "40Gi"),
        ("39.5", "39.5Gi"),
        ("40960", "40960Mi"),
        ("42949672960", ""),
        ("0", ""),
        ("40GB", "40Gi"),
        ("40Gi", "40Gi"),
        ("much", ""),
    ],
)
def test_an_amount_of_memory_has_a_unit(text, meant):
    assert amounts.of_memory(text) == meant


@pytest.mark.parametrize(
    ("name", "memory"), [("memory", True), ("GPUMemory", True), ("slots", False)]
)
def test_only_memory_is_in_bytes(name, memory):
    assert amounts.is_memory(name) is memory


@pytest.mark.parametrize(
    ("name", "text", "meant"),
    [
        ("memory", "999", "999Gi"),
        ("memory", "1000", "1000Mi"),
        ("memory", "1000000", "1000000Mi"),
        ("memory", "1000001", "1000001"),
        ("memory", "39.5", "39.5Gi"),
        ("memory", "0", "0"),
        ("memory", "40GB", "40Gi"),
        ("memory", "much", ""),
        ("slots", "14", "14"),
        ("slots", "14.5", "14.5"),
        ("slots", "40Gi", "40Gi"),
        ("slots", "40GB", "40Gi"),
        ("slots", "4 slots", ""),
    ],
)
def test_only_an_amount_of_memory_has_a_unit_that_is_not_there(name, text, meant):
    assert amounts.quantity(name, text) == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("80GB", ("80G", "80Gi")),
        ("40K", ("40k", "40Ki")),
        ("80 G", ("80G",)),
        ("80gib", ("80Gi",)),
        ("80", ()),
        ("much", ()),
    ],
)
def test_a_unit_without_an_i_is_read_in_two_ways_if_it_is_wrong(text, meant):
    assert amounts.readings(text) == meant


def test_the_bytes_of_an_amount_are_told():
    assert amounts.bytes_in("80G") == "80 x 1000^3 bytes"
    assert amounts.bytes_in("1.5Ki") == "1.5 x 1024^1 bytes"
