# SPDX-License-Identifier: Apache-2.0
"""Limits that end an evaluation, lowered; tests/property/test_cel_bad_input.py runs to the real ones."""

import pytest

from dra_driver.cel import values, work
from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.exact import planner
from dra_driver.cel.exact.actual_call_costs import price_before
from dra_driver.cel.exact.actual_cost import Tracker
from dra_driver.cel.exact.attributes import Frame
from dra_driver.cel.exact.interpretable import constant
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.functions import FUNCTIONS
from dra_driver.cel.library import quantity
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
    monkeypatch.setattr(work, "MOST_ELEMENTS", 20_000)
    with pytest.raises(EvaluationError, match="more than 20000 elements would have to be"):
        compile_selector(shared(parts, end)).matches(DEVICE)


def test_a_text_ends_where_it_would_be_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MOST_CHARACTERS", 10)
    selector = compile_selector("'%s%s'.format(['123456', '12345']) == dyn([])[0]")
    with pytest.raises(EvaluationError, match="the text would have more than 10 characters"):
        selector.matches(DEVICE)


LONG, OTHER, FOREIGN = ("a" * 1_000, "a" * 999 + "b", "\u00e4" * 1_000)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("format", ("%s", [[LONG] * 64])),
        ("format", ("%s", [[{LONG: LONG}] * 64])),
        ("format", ("%s" * 64, [LONG] * 64)),
        ("format", ("%.9999e" * 3, [1.0] * 3)),
        ("_==_", ([LONG] * 64, [LONG] * 64)),
        ("_!=_", ([LONG] * 64, [LONG] * 64)),
        ("@in", (LONG, [OTHER] * 64)),
        ("join", ([LONG] * 64,)),
        ("join", ([""] * 64, LONG)),
        ("join", (["", [LONG] * 64],)),
        ("join", (["", {1: [LONG] * 64}],)),
        ("replace", (LONG, "a", LONG)),
        ("replace", (LONG, "a", LONG, 64)),
        ("sort", ([FOREIGN] * 64,)),
        ("max", ([FOREIGN] * 64,)),
    ],
)
def test_long_texts_are_not_written_or_compared_without_end(
    monkeypatch: pytest.MonkeyPatch, function: str, arguments: tuple[object, ...]
) -> None:
    def outcome(most: int) -> object:
        monkeypatch.setattr(work, "MOST_CHARACTERS", most)
        try:
            with work.Work():
                return FUNCTIONS[function](*arguments)
        except EvaluationError as error:
            return error.message

    assert outcome(20_000) in (
        "more than 20000 characters would have to be looked at",
        "the text would have more than 20000 characters",
    )
    assert outcome(2_000_000) != outcome(20_000)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("flatten", ([[[1] * 1_000] * 64], 9)),
        ("_+_", ([1] * 20_000, [1])),
        ("join", (["", [[1] * 1_000] * 64],)),
    ],
)
def test_shared_lists_are_not_walked_or_copied_without_end(
    monkeypatch: pytest.MonkeyPatch, function: str, arguments: tuple[object, ...]
) -> None:
    monkeypatch.setattr(work, "MOST_ELEMENTS", 20_000)
    with (
        work.Work(),
        pytest.raises(EvaluationError, match="more than 20000 elements would have to be"),
    ):
        FUNCTIONS[function](*arguments)


@pytest.mark.parametrize("shared_list", [[[1] * 1_000] * 64, [{1: [1] * 1_000}] * 64])
def test_the_cost_of_shared_lists_is_not_counted_without_end(
    monkeypatch: pytest.MonkeyPatch, shared_list: list[object]
) -> None:
    monkeypatch.setattr(work, "MOST_ELEMENTS", 20_000)
    price = price_before("isSorted", "")
    assert price is not None
    with work.Work(), pytest.raises(EvaluationError, match="more than 20000 elements"):
        price([shared_list], None)


def test_texts_that_join_cannot_pay_for_are_not_made() -> None:
    """The estimate sees no size in the elements of a list of dyn."""
    ten_times = "".join(f"cel.bind(x, dyn([{', '.join(['x'] * 10)}]).join(), " for _ in range(9))
    selector = compile_selector(f"cel.bind(x, 'x', {ten_times}size(x) > 0){')' * 9}")
    assert selector.cost < 1_000
    with pytest.raises(EvaluationError, match="actual cost limit exceeded"):
        selector.matches(DEVICE)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("split", ["x" * 2_000, ""]),
        ("replace", ["x" * 2_000, "x", "y"]),
        ("find", ["x" * 2_000, "x+"]),
        ("findAll", ["x" * 2_000, "x+"]),
        ("format", ["x" * 2_000, []]),
        ("join", [["x" * 1_000] * 2, ""]),
        ("join", [["x"] * 100, "x" * 10]),
        ("max", [["x" * 2_000] * 2]),
        ("indexOf", [[b"x" * 2_000, {"x": "y"}], "x"]),
    ],
)
def test_a_call_that_exceeds_the_limit_is_not_begun(function: str, arguments: list[object]) -> None:
    begun = []
    tracker = Tracker(100)
    steps = tuple(constant(number, value) for number, value in enumerate(arguments))
    for step in steps:
        tracker.done(step.id, step.value, 0)
    run = planner._calling(lambda *_: begun.append(True), steps, function)
    with pytest.raises(EvaluationError, match="actual cost limit exceeded"):
        run(Frame(DEVICE, [], tracker))
    assert not begun


def test_a_join_that_fails_costs_nothing_before() -> None:
    price = price_before("join", "list_join")
    assert price is not None
    assert (price([["x", 1]], None), price(["x"], None)) == (0, 0)
    assert price([[]], None) == 0


def test_texts_are_ordered_as_their_bytes() -> None:
    """A byte that is no UTF-8 is a surrogate in Python, and comes before most characters in Go."""
    odd, emoji = "\udc80", "\U0001f600"
    assert values.compare("\u00e4" + odd, "\u00e4" + emoji) < 0
    assert values.compare("\ue000" + "a", odd + "a") > 0
    assert values.compare("a", odd) < 0
    assert values.compare("\u00e4", "\u00e4b") < 0
    assert values.compare("\u00e4b", "\u00e4b") == 0


def test_what_is_never_equal_to_itself_is_a_key_of_its_own() -> None:
    assert values.key_of(float("nan")) != values.key_of(float("nan"))
    assert values.key_of(1) == values.key_of(1) != values.key_of(True)


def test_the_smallest_quantity_is_negated_to_itself() -> None:
    assert quantity._fast_sum(Quantity(0), Quantity(INT_MIN), -1) == (INT_MIN, 0)
