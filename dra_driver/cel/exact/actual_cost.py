# SPDX-License-Identifier: Apache-2.0
"""Count what an evaluation costs, and end it where the limit is exceeded.

Every step reports when it is done, with its value. The counter keeps the values of steps on a stack, and a call finds its
arguments there to know how large they are; a call whose arguments are not on the stack any more costs nothing. All of
that is as cel-go does it, because the sum decides whether a selector fails.
Source: cel-go interpreter/runtimecost.go.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from dra_driver.cel.exact import interpretable as plan
from dra_driver.cel.exact.actual_call_costs import Arguments, call_cost
from dra_driver.cel.exact.attributes import ABSENT, Condition, Frame, Qualifier
from dra_driver.cel.exact.interpretable import (
    AttributeStep,
    CallStep,
    FoldStep,
    LogicStep,
    MakeStep,
    Step,
)
from dra_driver.cel.failures import Aborted, EvaluationError

_STEP = 1


class Tracker:
    """The sum so far, and the values of the steps that were done."""

    __slots__ = ("_limit", "_places", "_stack", "cost")

    def __init__(self, limit: int) -> None:
        self.cost = 0
        self._limit = limit
        self._stack: list[tuple[int, object]] = []
        # Where on the stack each node is: in a loop the stack grows long, and most searches find nothing.
        self._places: dict[int, list[int]] = {}

    def done(self, node: int, value: object, cost: int) -> None:
        """A step is done."""
        self._places.setdefault(node, []).append(len(self._stack))
        self._stack.append((node, value))
        self.cost += cost
        if self.cost > self._limit:
            raise Aborted("operation cancelled: actual cost limit exceeded")

    def drop(self, *nodes: int) -> None:
        """Forget these steps and all that were done after them."""
        for node in nodes:
            place = self._place(node)
            if place is not None:
                self._cut(place)

    def take(self, steps: tuple[Step, ...]) -> Arguments | None:
        """Forget the steps and give their values; None if one is not there."""
        found: Arguments = []
        for step in reversed(steps):
            place = self._place(plan.step_id(step))
            if place is None:
                return None
            found.append(self._stack[place][1])
            self._cut(place)
        return found[::-1]

    def _place(self, node: int) -> int | None:
        places = self._places.get(node)
        return places[-1] if places else None

    def _cut(self, place: int) -> None:
        while len(self._stack) > place:
            node, _ = self._stack.pop()
            self._places[node].pop()


def counted(step: Step) -> Step:
    """The same step, which reports to the frame's tracker when it is done."""
    run, report = step.run, _reporter(step)

    def report_run(frame: Frame) -> object:
        value = run(frame)
        tracker = frame.tracker
        if isinstance(tracker, Tracker):
            tracker.done(plan.step_id(step), value, report(tracker, value))
        return value

    step.run = report_run
    return step


@dataclass(slots=True)
class CountedQualifier(Qualifier):
    """A qualifier that reports; one that is `computed` is neither a constant nor a path."""

    computed: bool = False

    def apply(self, frame: Frame, target: object, *, optional: bool) -> object:
        """As without counting; an optional step that finds nothing costs nothing."""
        found = Qualifier.apply(self, frame, target, optional=optional)
        missing = found is ABSENT or isinstance(found, EvaluationError)
        tracker = frame.tracker
        if isinstance(tracker, Tracker) and not (optional and missing):
            if self.computed:
                tracker.drop(self.id)
            tracker.done(self.id, found, _STEP)
        return found


def counted_qualifier(qualifier: Qualifier, *, computed: bool) -> Qualifier:
    """The same qualifier, which reports."""
    key, optional, test = qualifier.key, qualifier.optional, qualifier.test
    return CountedQualifier(qualifier.id, key, optional, test, computed)


Report = Callable[[Tracker, object], int]


def _reporter(step: Step) -> Report:
    """How a step of this kind is counted: what it takes from the stack, and what it cost."""
    if isinstance(step, CallStep):
        return partial(_call, step)
    if isinstance(step, AttributeStep):
        if isinstance(step.attribute, Condition):
            return partial(_condition, step, step.attribute)
        return partial(_path, step)
    if isinstance(step, LogicStep):
        return partial(_logic, step)
    if isinstance(step, FoldStep):
        return partial(_fold, step)
    return partial(_made, step) if isinstance(step, MakeStep) else _nothing


def _call(step: CallStep, tracker: Tracker, value: object) -> int:
    arguments = tracker.take(step.arguments)
    return 0 if arguments is None else call_cost(step, arguments, value)


def _path(step: AttributeStep, tracker: Tracker, _value: object) -> int:
    tracker.drop(step.attribute.id)
    return 0 if step.test else _STEP


def _condition(step: AttributeStep, condition: Condition, tracker: Tracker, _value: object) -> int:
    tracker.drop(condition.falsy.id, condition.truthy.id, condition.condition_id)
    return -_STEP if step.test else 0


def _logic(step: LogicStep, tracker: Tracker, _value: object) -> int:
    for term in step.terms:
        tracker.drop(plan.step_id(term))
    return 0


def _fold(step: FoldStep, tracker: Tracker, _value: object) -> int:
    tracker.drop(plan.step_id(step.range))
    return 0


def _made(step: MakeStep, tracker: Tracker, _value: object) -> int:
    tracker.take(step.parts)
    return step.cost


def _nothing(_tracker: Tracker, _value: object) -> int:
    return 0
