# SPDX-License-Identifier: Apache-2.0
"""Which name was meant: only what differs is compared."""

import pytest

from dra_driver.cel.reasons.similar import likely, meant


@pytest.mark.parametrize(
    ("word", "there", "near"),
    [
        ("modle", ["numa", "model"], "model"),
        ("NUMA", ["numb", "numa"], "numa"),
        ("numa", ["numa", "numb"], ""),
        ("numa", [], ""),
        ("x", ["numa"], ""),
        ('"B200"', ['"H100"'], ""),
        ('"H10O"', ['"H100"'], '"H100"'),
        ('"mig"', ['"gpu"'], ""),
        ("gpu.example.com", ["fpga.example.com"], ""),
        ("gpuu.example.com", ["fpga.example.com", "gpu.example.com"], "gpu.example.com"),
        ("gpu.example.con", ["gpu.example.com"], "gpu.example.com"),
        ("example.com", ["gpu.example.com"], ""),
        ("gpu.example.com/nuna", ["gpu.example.com/numa"], "gpu.example.com/numa"),
        ("gpu.example.com/color", ["gpu.example.com/numa"], ""),
    ],
)
def test_the_most_similar_name_is_the_likely_one(word: str, there: list[str], near: str) -> None:
    assert likely(word, there) == near
    assert meant(word, there) == (f"did you mean {near}?" if near else "")
