# SPDX-License-Identifier: Apache-2.0
"""What somebody else wrote can be left out of a message again."""

import pytest

from dra_driver.model.quotes import left_out, quoted, without_foreign


@pytest.mark.parametrize("text", ["no", "a” b", "“a", "””““", 'x "y" z', "a\nb"])
def test_nothing_of_a_quoted_text_is_left(text: str) -> None:
    message = f"list pods: the server answered 403: {quoted(text)}; allow it"
    expected = f"list pods: the server answered 403: [{len(text)} characters left out]; allow it"
    assert without_foreign(message) == expected


def test_a_message_that_was_cut_inside_of_a_quoted_text() -> None:
    assert without_foreign("a “bc” d “efg") == "a [2 characters left out] d [3 characters left out]"


def test_nothing_is_not_quoted() -> None:
    assert (quoted(""), left_out(""), without_foreign("")) == ("", "", "")
