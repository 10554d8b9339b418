# SPDX-License-Identifier: Apache-2.0
"""Limits that end an evaluation, lowered; tests/property/test_cel_bad_input.py runs to the real ones."""

import pytest

from dra_driver.cel import values
from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.library import formatting, quantity
from dra_driver.cel.library.quantity import INT_MIN, Quantity

DEVICE = DeviceValue("dra.example.com")
LISTS = ("[1]", "[x, x]")
MAPS = ("{1: 1}", "{1: x, 2: x}")


def shared(parts: tuple[str, str], end: str) -> str:
    """A value that has 2^40 elements, of which only 40 were made."""
    first, doubled = parts
    return f"cel.bind(x, {first}, " + f"cel.bind(x, {doubled}, " * 40 + end + ")" * 41


@pytest.mark.parametrize(
    ("parts", "end"),
    [
        (LISTS, "x == x"),
        (LISTS, "x in [x]"),
        (LISTS, "'%s'.format([x]) == ''"),
        (MAPS, "'%s'.format([x]) == ''"),
        (MAPS, "x == x"),
    ],
)
def test_values_that_share_their_parts_are_not_looked_at_without_end(
    monkeypatch: pytest.MonkeyPatch, parts: tuple[str, str], end: str
) -> None:
    monkeypatch.setattr(values, "MOST_ELEMENTS", 20_000)
    with pytest.raises(EvaluationError, match="more than 20000 elements would have to be"):
        compile_selector(shared(parts, end)).matches(DEVICE)


def test_a_text_ends_where_it_would_be_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formatting, "MOST_WRITTEN", 10)
    selector = compile_selector("'%s%s'.format(['123456', '12345']) == ''")
    with pytest.raises(EvaluationError, match="the text would have more than 10 characters"):
        selector.matches(DEVICE)


def test_what_is_never_equal_to_itself_is_a_key_of_its_own() -> None:
    assert values.key_of(float("nan")) != values.key_of(float("nan"))
    assert values.key_of(1) == values.key_of(1) != values.key_of(True)


def test_the_smallest_quantity_is_negated_to_itself() -> None:
    assert quantity._fast_sum(Quantity(0), Quantity(INT_MIN), -1) == (INT_MIN, 0)
