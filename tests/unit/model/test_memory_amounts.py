# SPDX-License-Identifier: Apache-2.0
"""Amounts of memory with and without a unit."""

import pytest

from dra_driver.model.memory_amounts import amount_of, likely_amount, too_few_bytes


@pytest.mark.parametrize(
    ("text", "meant"),
    [("40", "40Gi"), ("999", "999Gi"), ("1000", "1000Mi"), ("1000001", "1000001"), ("8G", "8G")],
)
def test_a_number_has_a_likely_unit(text: str, meant: str) -> None:
    assert likely_amount(text) == meant


@pytest.mark.parametrize(
    ("name", "amount", "meant"),
    [
        ("nvidia.com/gpu-memory", "40Gi", "40Gi"),
        ("nvidia.com/gpu-memory", "40", ""),
        ("nvidia.com/gpu-memory", "40960", ""),
        ("nvidia.com/gpu-memory", "40k", ""),
        ("nvidia.com/gpu-memory", "1.2.3Gi", ""),
        ("nvidia.com/gpu-memory", "much", ""),
        ("nvidia.com/gpu.memory", "40960", "40960Mi"),
        ("nvidia.com/gpu.memory", "40", ""),
        ("nvidia.com/gpu.memory", "40G", "40G"),
        ("amd.com/gpu.memory", "40960", ""),
    ],
)
def test_a_unit_is_clear_or_not(name: str, amount: str, meant: str) -> None:
    assert amount_of(name, amount) == meant


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("40", "did you mean 40Gi?"),
        ("40960", "did you mean 40960Mi?"),
        ("40m", "did you mean 40Gi?"),
        ("40k", "write it with Mi or Gi, as in 40Gi"),
        *((text, "") for text in ("0", "1Mi", "40Gi", "1048576", "much", "-40")),
    ],
)
def test_so_few_bytes_lack_a_unit(text: str, question: str) -> None:
    assert too_few_bytes(text) == question
