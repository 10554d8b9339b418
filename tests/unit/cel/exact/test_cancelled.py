# SPDX-License-Identifier: Apache-2.0
"""An evaluation ends soon after nobody waits for it any more; no clock is needed to see that."""

import itertools
from collections.abc import Callable

import pytest

from dra_driver.cel import values
from dra_driver.cel.cancellation import STEPS_BETWEEN_CHECKS, Cancelled
from dra_driver.cel.compile import compile_attribute, compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.exact import actual_cost
from dra_driver.cel.exact.actual_cost import Tracker
from dra_driver.cel.exact.interpretable import constant
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.functions import FUNCTIONS
from dra_driver.cel.work import Work

DEVICE = DeviceValue("d")
LONG = "lists.range(200000).all(x, x >= 0)"  # costs more than may be, after some 990,000 steps


class Waiting:
    """Waits until it was asked so often."""

    def __init__(self, patience: int) -> None:
        self.asked = 0
        self._patience = patience

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked >= self._patience


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many steps were done."""
    counted = itertools.count()
    done = Tracker.done

    def count(tracker: Tracker, node: int, value: object, cost: int) -> None:
        next(counted)
        done(tracker, node, value, cost)

    monkeypatch.setattr(actual_cost.Tracker, "done", count)
    return lambda: next(counted)


@pytest.mark.parametrize("patience", [1, 7])
def test_an_evaluation_ends_when_nobody_waits_any_more(
    patience: int, steps: Callable[[], int]
) -> None:
    waiting = Waiting(patience)
    with pytest.raises(Cancelled):
        compile_selector(LONG).matches(DEVICE, waiting)
    assert waiting.asked == patience
    assert steps() == patience * STEPS_BETWEEN_CHECKS


DOUBLED = "'%s%s'.format([x, x])"
GROWN = "cel.bind(x, 'x', " + f"cel.bind(x, {DOUBLED}, " * 16 + "{}" + ")" * 17


@pytest.mark.parametrize(
    "expression",
    [
        "'%s'.format([[[x, x, x, x], [x, x, x, x], [x, x, x, x]]]) == ''",
        "[[x, x, x, x], [x, x, x, x]] == [[x, x, x, x], [x, x, x, x]]",
        "('%s'.format([x]) + 'y').size() > 0 && lists.range(200).all(i, x != 'y')",
    ],
)
def test_long_texts_are_not_written_or_compared_when_nobody_waits(expression: str) -> None:
    waiting = Waiting(4)
    with pytest.raises(Cancelled):
        compile_selector(GROWN.format(expression)).matches(DEVICE, waiting)
    assert waiting.asked == 4


def test_a_text_in_a_list_is_written_in_pieces() -> None:
    waiting = Waiting(3)
    with Work(waiting), pytest.raises(Cancelled):
        FUNCTIONS["format"]("%s", [["x" * 250_000]])


def test_a_compilation_ends_when_nobody_waits_any_more() -> None:
    """The macro doubles what it is called on, so few characters become many nodes."""
    doubled = "optional.of(1)" + ".optMap(x, x)" * 7 + ".hasValue()"
    for patience in (1, 2, 9):
        waiting = Waiting(patience)
        with Work(waiting), pytest.raises(Cancelled):
            compile_selector(doubled)
        assert waiting.asked == patience


def test_each_pattern_is_a_reason_to_ask() -> None:
    patterns = " || ".join(f"device.driver.matches('of its own {number}')" for number in range(9))
    waiting = Waiting(5)
    with Work(waiting), pytest.raises(Cancelled):
        compile_selector(patterns)
    assert waiting.asked == 5


def test_nothing_in_the_expression_absorbs_it() -> None:
    for expression in (f"{LONG} || true", f"[1].exists(x, {LONG}) || [1].exists(x, true)"):
        with pytest.raises(Cancelled):
            compile_selector(expression).matches(DEVICE, Waiting(2))


def test_a_derived_attribute_ends_as_well() -> None:
    with pytest.raises(Cancelled):
        compile_attribute(LONG).value(DEVICE, Waiting(2))


def test_who_always_waits_gets_the_answer() -> None:
    expression = "lists.range(device.driver.size() + 2000).all(x, x >= 0)"
    assert compile_selector(expression).matches(DEVICE)


def test_a_generated_function_is_over_before_anybody_need_be_asked() -> None:
    waiting = Waiting(1)
    assert compile_selector("[1, 2].map(x, x + 1).exists(x, x == 3)").matches(DEVICE, waiting)
    assert not waiting.asked


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(200000).distinct().size() > 0",
        "sets.contains(lists.range(200000), lists.range(200000))",
        "sets.intersects(lists.range(200000), lists.range(200000))",
        "sets.equivalent(lists.range(200000), lists.range(200000))",
    ],
)
def test_what_would_compare_each_with_each_and_exceed_the_limit_is_not_begun(
    expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = itertools.count()
    monkeypatch.setattr(values, "is_true", lambda *_: next(compared) < 0)
    with pytest.raises(EvaluationError, match=r"^operation cancelled: actual cost limit exceeded$"):
        compile_selector(expression).matches(DEVICE)
    assert next(compared) == 0


def test_what_costs_nothing_is_begun_however_long_it_takes() -> None:
    """A call whose arguments are not known any more is not counted, neither before nor after."""
    Tracker(1).afford((constant(1, value=[]),), 10)


def test_a_few_elements_are_compared() -> None:
    assert compile_selector("[1, 2, 1].distinct() == [1, 2]").matches(DEVICE)
    failing = "sets.contains(lists.range(device.driver.size() - 2), [1])"
    with pytest.raises(EvaluationError, match="non-negative"):
        compile_selector(failing).matches(DEVICE)
