# SPDX-License-Identifier: Apache-2.0
"""What is the actual cost of an evaluation, and when does it exceed the limit?

Each step reports its value to the tracker when it is done. The tracker keeps these values on a stack. The cost of a call
depends on the sizes of its arguments, so the tracker searches the arguments on the stack. A call costs nothing if an argument is not
on the stack any more. The tracker is an exact copy of cel-go's, because the sum decides whether a selector fails.
Source: cel-go interpreter/runtimecost.go.
"""

from collections.abc import Callable
from functools import partial

from dra_driver.cel.cancellation import STEPS_BETWEEN_CHECKS, Cancelled, Check, never
from dra_driver.cel.exact.actual_call_costs import Arguments, call_cost
from dra_driver.cel.exact.attributes import ABSENT, ConditionalAttribute, Frame, Qualifier
from dra_driver.cel.exact.interpretable import (
    Interpretable,
    InterpretableAttribute,
    InterpretableCall,
    InterpretableConstructor,
    InterpretableFold,
    InterpretableLogic,
    step_id,
)
from dra_driver.cel.failures import Aborted, EvaluationError

_STEP = 1
_CHARACTERS_OF_A_STEP = 64


class Tracker:
    """The cost so far, and the stack of values (cel-go: CostTracker)."""

    __slots__ = ("_cancelled", "_limit", "_places", "_stack", "_unchecked", "cost")

    def __init__(self, limit: int, cancelled: Check = never) -> None:
        self.cost = 0
        self._limit = limit
        self._cancelled = cancelled
        self._unchecked = 0
        self._stack: list[tuple[int, object]] = []
        # Positions on the stack by node. The stack grows long in a comprehension, so a search from its end would be slow.
        self._places: dict[int, list[int]] = {}

    def done(self, node: int, value: object, cost: int) -> None:
        """Push the value of a step and add its cost. Raises Aborted if the limit is exceeded."""
        self._places.setdefault(node, []).append(len(self._stack))
        self._stack.append((node, value))
        self.cost += cost
        if self.cost > self._limit:
            raise _exceeded()
        # A step with a long text takes longer, so it is counted as several steps.
        self._unchecked += 1 + len(value) // _CHARACTERS_OF_A_STEP if type(value) is str else 1
        if self._unchecked >= STEPS_BETWEEN_CHECKS:
            self._unchecked = 0
            if self._cancelled():
                raise Cancelled

    def afford(self, arguments: tuple[Interpretable, ...], price: int) -> None:
        """End the evaluation if a call of these arguments, which has not run yet, would exceed the limit."""
        if self.cost + price > self._limit and self._are_there(arguments):
            raise _exceeded()

    def _are_there(self, steps: tuple[Interpretable, ...]) -> bool:
        """Return whether `take` would find the values of these steps on the stack."""
        end = len(self._stack)
        for step in reversed(steps):
            places = [place for place in self._places.get(step_id(step), ()) if place < end]
            if not places:
                return False
            end = places[-1]
        return True

    def drop(self, *nodes: int) -> None:
        """Remove the values of these steps, and all values above them."""
        for node in nodes:
            place = self._place(node)
            if place is not None:
                self._cut(place)

    def take(self, steps: tuple[Interpretable, ...]) -> Arguments | None:
        """Remove the values of these steps and return them. Returns None if one is not on the stack."""
        found: Arguments = []
        for step in reversed(steps):
            place = self._place(step_id(step))
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


def _exceeded() -> Aborted:
    return Aborted("operation cancelled: actual cost limit exceeded")


def counted(step: Interpretable) -> Interpretable:
    """Change the step so that it reports to the frame's tracker. Returns the same object."""
    run, report = step.run, _reporter(step)

    def report_run(frame: Frame) -> object:
        value = run(frame)
        tracker = frame.tracker
        if isinstance(tracker, Tracker):
            tracker.done(step_id(step), value, report(tracker, value))
        return value

    step.run = report_run
    return step


class CountedQualifier(Qualifier):
    """A qualifier that reports to the tracker. `computed`: its key is neither a constant nor an attribute."""

    computed: bool = False

    def apply(self, frame: Frame, target: object, *, optional: bool) -> object:
        """Apply the qualifier as Qualifier.apply does. An optional qualifier that finds nothing costs nothing."""
        found = Qualifier.apply(self, frame, target, optional=optional)
        missing = found is ABSENT or isinstance(found, EvaluationError)
        tracker = frame.tracker
        if isinstance(tracker, Tracker) and not (optional and missing):
            if self.computed:
                tracker.drop(self.id)
            tracker.done(self.id, found, _STEP)
        return found


def counted_qualifier(qualifier: Qualifier, *, computed: bool) -> Qualifier:
    """Return a copy of the qualifier that reports to the tracker."""
    key, optional, test = qualifier.key, qualifier.optional, qualifier.test
    return CountedQualifier(qualifier.id, key, optional, test, computed)


Report = Callable[[Tracker, object], int]


def _reporter(step: Interpretable) -> Report:
    """Return the function that removes the step's operands from the stack and returns the cost of the step."""
    if isinstance(step, InterpretableCall):
        return partial(_call, step)
    if isinstance(step, InterpretableAttribute):
        if isinstance(step.attribute, ConditionalAttribute):
            return partial(_condition, step, step.attribute)
        return partial(_path, step)
    if isinstance(step, InterpretableLogic):
        return partial(_logic, step)
    if isinstance(step, InterpretableFold):
        return partial(_fold, step)
    return partial(_made, step) if isinstance(step, InterpretableConstructor) else _nothing


def _call(step: InterpretableCall, tracker: Tracker, value: object) -> int:
    arguments = tracker.take(step.arguments)
    return 0 if arguments is None else call_cost(step, arguments, value)


def _path(step: InterpretableAttribute, tracker: Tracker, _value: object) -> int:
    tracker.drop(step.attribute.id)
    return 0 if step.test else _STEP


def _condition(
    step: InterpretableAttribute, condition: ConditionalAttribute, tracker: Tracker, _value: object
) -> int:
    # A bug of cel-go, kept: for has() it subtracts the cost of the attribute, which it never added for a conditional one.
    tracker.drop(condition.falsy.id, condition.truthy.id, condition.condition_id)
    return -_STEP if step.test else 0


def _logic(step: InterpretableLogic, tracker: Tracker, _value: object) -> int:
    for term in step.terms:
        tracker.drop(step_id(term))
    return 0


def _fold(step: InterpretableFold, tracker: Tracker, _value: object) -> int:
    tracker.drop(step_id(step.range))
    return 0


def _made(step: InterpretableConstructor, tracker: Tracker, _value: object) -> int:
    tracker.take(step.parts)
    return step.cost


def _nothing(_tracker: Tracker, _value: object) -> int:
    return 0
