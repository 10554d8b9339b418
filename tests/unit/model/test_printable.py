# SPDX-License-Identifier: Apache-2.0
"""What a terminal or an Event gets to see of somebody else's text."""

import pytest

from dra_driver.model.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("größer: 1 GiB\\", "größer: 1 GiB\\"),
        ("\x1b[2J\x07\x7f", "\\x1b[2J\\x07\\x7f"),
        ("\x9b31m", "\\x9b31m"),  # a terminal's other beginning of a command
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\u202etxt.exe\u2066\u2028", "\\u202etxt.exe\\u2066\\u2028"),
        ("\udc1b", "\\udc1b"),  # a byte that is no UTF-8
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_nothing_that_acts_on_a_terminal_is_left(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert shown.isprintable()


def test_a_long_text_is_cut_before_it_is_spelled_out() -> None:
    assert printable("abcd", most=4) == "abcd"
    assert printable("abcd", most=3) == "abc…"
    assert printable("\x1b" * 9, most=2) == "\\x1b\\x1b…"
