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
