# SPDX-License-Identifier: Apache-2.0
"""How are list, map and message literals evaluated, and `in` with a list of constants?

A literal of constants is evaluated once, when the program is made.
Source: cel-go interpreter/interpretable.go, interpreter/decorators.go.
"""

from collections.abc import Iterator

from dra_driver.cel import values
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.exact.attributes import Frame, Run
from dra_driver.cel.exact.interpretable import (
    Interpretable,
    InterpretableCall,
    InterpretableConst,
    InterpretableConstructor,
    constant,
)
from dra_driver.cel.failures import Aborted, EvaluationError, PlanError
from dra_driver.cel.library import messages
from dra_driver.cel.syntax.ast import ListLiteral, MapLiteral, StructLiteral, Uint
from dra_driver.cel.values import LiteralMap, Optional

_LIST_COST, _MAP_COST, _MESSAGE_COST = 10, 30, 40
_SKIP = object()
_PRIMITIVE = frozenset({bool, int, Uint, float, str})
_NO_DEVICE = DeviceValue("")


def _all_constant(steps: tuple[Interpretable, ...]) -> bool:
    return all(isinstance(step, InterpretableConst) for step in steps)


def _now(node: int, run: Run) -> Interpretable:
    """Return the constant step for a literal of constants.

    If its value is an error, the step returns this error for each device.
    """
    try:
        value = run(Frame(_NO_DEVICE, []))
    except Aborted as error:
        raise PlanError(*error.args) from error
    return constant(node, value)


# --- lists ------------------------------------------------------------------------------------------------------------


def list_step(node: ListLiteral, elements: tuple[Interpretable, ...]) -> Interpretable:
    """Return the step for `[a, ?b]`."""

    def run(frame: Frame) -> object:
        made: list[object] = []
        for index, step in enumerate(elements):
            value = step.run(frame)
            if index in node.optional_indices:
                value = _element(value)
            if isinstance(value, EvaluationError):
                return value
            if value is not _SKIP:
                made.append(value)
        return made

    if _all_constant(elements):
        return _now(node.id, run)
    return InterpretableConstructor(node.id, run, elements, _LIST_COST)


def _element(value: object) -> object:
    if isinstance(value, EvaluationError):
        return value
    if not isinstance(value, Optional):
        return EvaluationError(
            f"cannot initialize optional list element from non-optional value {values.text(value)}"
        )
    return value.value if value.present else _SKIP


# --- maps -------------------------------------------------------------------------------------------------------------


def map_step(
    node: MapLiteral, keys: tuple[Interpretable, ...], entries: tuple[Interpretable, ...]
) -> Interpretable:
    """Return the step for `{k: v, ?o: w}`."""
    parts = tuple(zip(keys, entries, (entry.optional for entry in node.entries), strict=True))

    def run(frame: Frame) -> object:
        made = LiteralMap()
        for key_step, value_step, optional in parts:
            key = key_step.run(frame)
            if isinstance(key, EvaluationError):
                return key
            value = value_step.run(frame)
            if optional:
                value = _entry(key, value)
            if isinstance(value, EvaluationError):
                return value
            _set(made, key, value)
        return made

    if _all_constant((*keys, *entries)):
        return _now(node.id, run)
    interleaved = tuple(step for pair in zip(keys, entries, strict=True) for step in pair)
    return InterpretableConstructor(node.id, run, interleaved, _MAP_COST)


def _set(made: LiteralMap, key: object, value: object) -> None:
    encoded = values.key_of(values.hashable(key))
    if value is _SKIP:
        made.pop(encoded, None)
    else:
        made[encoded] = value


def _entry(key: object, value: object) -> object:
    if isinstance(value, EvaluationError):
        return value
    if not isinstance(value, Optional):
        shown = values.text(value)
        return EvaluationError(
            f"cannot initialize optional entry '{values.text(key)}' from non-optional value {shown}"
        )
    return value.value if value.present else _SKIP


# --- messages ---------------------------------------------------------------------------------------------------------


def message_step(
    node: StructLiteral, made: str, fields: tuple[Interpretable, ...]
) -> Interpretable:
    """Return the step for `google.protobuf.Int64Value{value: 1}`."""
    messages.require(made)
    parts = tuple(zip(node.fields, fields, strict=True))

    def run(frame: Frame) -> object:
        given: dict[str, object] = {}
        for field, step in parts:
            value = step.run(frame)
            if field.optional:
                value = _entry(field.name, value)
            if isinstance(value, EvaluationError):
                return value
            if value is _SKIP:
                given.pop(field.name, None)
            else:
                given[field.name] = value
        return messages.make(made, given)

    return InterpretableConstructor(node.id, run, fields, _MESSAGE_COST)


# --- in ---------------------------------------------------------------------------------------------------------------


def membership(call: InterpretableCall, elements: object) -> Interpretable:
    """Return the step for `x in [constants]`. For an empty list x is not evaluated. A list of primitive values becomes a set."""
    if elements == []:
        return constant(call.id, value=False)
    if not isinstance(elements, list) or not all(
        type(element) in _PRIMITIVE for element in elements
    ):
        return call
    known = frozenset(key for element in elements for key in _keys(element))
    needle = call.arguments[0]

    def run(frame: Frame) -> object:
        value = needle.run(frame)
        if isinstance(value, EvaluationError):
            return value
        return values.key_of(values.hashable(value)) in known

    return Interpretable(call.id, run)


def _keys(element: object) -> Iterator[object]:
    """Return the keys under which `key_of` finds the element: its own key, and the keys of equal numbers of other types."""
    yield values.key_of(element)
    yield from map(values.key_of, values.numeric_twins(element))
    if isinstance(element, int) and type(element) is not bool:
        yield values.key_of(float(element))
