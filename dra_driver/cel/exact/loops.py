# SPDX-License-Identifier: Apache-2.0
"""How are comprehensions, cel.bind and or() evaluated, which do not evaluate all their operands?

A comprehension has an accumulator. Each iteration computes a new value of the accumulator. This value can be an error, so that `exists`
can ignore the error later. The first value is computed when it is first read. So cel.bind is lazy, because it is a comprehension over
an empty list. If the first value is an empty list or map, the iterations change it in place.
Source: cel-go interpreter/interpretable.go (evalFold, folder).
"""

from collections.abc import Iterator

from msgspec import Struct

from dra_driver.cel import values
from dra_driver.cel.exact.attributes import Frame, Run
from dra_driver.cel.failures import EvaluationError, no_such_overload
from dra_driver.cel.values import LiteralMap, MutableList, MutableMap, Optional

_UNSET = object()


def reader(place: int) -> Run:
    """Read a variable."""
    return lambda frame: frame.slots[place]


def lazily(place: int, compute: Run) -> Run:
    """Read an accumulator. Its first value is computed when it is first read."""

    def run(frame: Frame) -> object:
        value = frame.slots[place]
        if value is _UNSET:
            value = frame.slots[place] = _mutable(compute(frame))
        return value

    return run


def _mutable(value: object) -> object:
    if isinstance(value, list) and not value:
        return MutableList()
    if isinstance(value, dict) and not value:
        return MutableMap()
    return value


def _immutable(value: object) -> object:
    if isinstance(value, MutableList):
        return list(value)
    return LiteralMap(value) if isinstance(value, MutableMap) else value


def alternative(first: Run, second: Run, *, unwraps: bool) -> Run:
    """Evaluate or() or orValue(): the first operand if it has a value, else the second. orValue() `unwraps` the value."""

    def run(frame: Frame) -> object:
        value = first(frame)
        if isinstance(value, EvaluationError):
            return value
        if not isinstance(value, Optional):
            return no_such_overload()
        if not value.present:
            return second(frame)
        return value.value if unwraps else value

    return run


class Folder(Struct, frozen=True):
    """A comprehension (cel-go: evalFold, folder). `place` is the slot of the accumulator; the variables have the next two slots.

    Without a condition it never stops early.
    """

    place: int
    two: bool
    items: Run
    condition: Run | None
    turn: Run
    result: Run

    def run(self, frame: Frame) -> object:
        """Return the result after the last iteration."""
        items = self.items(frame)
        if isinstance(items, EvaluationError):
            return items
        frame.slots[self.place] = _UNSET
        if not isinstance(items, list | dict):
            return self._not_iterable(items)
        for first, second in self._pairs(items):
            frame.slots[self.place + 1] = first
            frame.slots[self.place + 2] = second
            if self.condition is not None and self.condition(frame) is False:
                break
            frame.slots[self.place] = self.turn(frame)
        return _immutable(self.result(frame))

    def _pairs(self, items: list[object] | dict[object, object]) -> Iterator[tuple[object, object]]:
        if isinstance(items, dict):
            return ((values.key_value(key), value) for key, value in tuple(items.items()))
        if self.two:
            return enumerate(tuple(items))
        return ((item, None) for item in tuple(items))

    def _not_iterable(self, items: object) -> EvaluationError:
        go_type = values.go_type(items)
        if self.two:
            return EvaluationError(f"unsupported comprehension range type: {go_type}")
        return EvaluationError(f"got '{go_type}', expected iterable type")
