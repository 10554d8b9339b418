# SPDX-License-Identifier: Apache-2.0
"""How is an expression evaluated exactly as in the scheduler, including the choice between several errors?

`program` makes the steps once (planner.py) and returns a function that evaluates them for a device. During the evaluation an
error is a value that steps return. At the end this module raises it.
Source: cel-go cel/program.go, k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from typing import Protocol

from dra_driver.cel import golang, values
from dra_driver.cel.cancellation import Check, never
from dra_driver.cel.checked_ast import CheckedAst
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.exact.actual_cost import Tracker
from dra_driver.cel.exact.attributes import Frame
from dra_driver.cel.exact.planner import Planner
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.values import Optional
from dra_driver.cel.work import Work


class Program(Protocol):
    """Evaluates an expression for a device."""

    def __call__(self, device: DeviceValue, cancelled: Check = never) -> object:
        """Return the result. Raises EvaluationError if it is an error, Cancelled if `cancelled` ends the evaluation."""


def program(checked: CheckedAst, cost_limit: int | None = None) -> Program:
    """Return the program of an expression. Raises PlanError if it cannot be made.

    With `cost_limit`, an evaluation counts its cost and ends with an error if the cost exceeds the limit.
    """
    planner = Planner(checked, counts=cost_limit is not None)
    root = planner.step(checked.parsed.root).run
    size = planner.slots

    def evaluate(device: DeviceValue, cancelled: Check = never) -> object:
        tracker = None if cost_limit is None else Tracker(cost_limit, cancelled)
        with Work(cancelled):
            result = root(Frame(device, [None] * size, tracker))
        if isinstance(result, EvaluationError):
            # A constant error can be raised for several devices, also on another thread, so each time it is a new object. Its text
            # may contain bytes that are not UTF-8.
            raise EvaluationError(golang.valid(result.message))
        return result

    return evaluate


def as_bool(value: object) -> bool:
    """Return the result of a selector as a bool. Raises EvaluationError if it is something else."""
    inner = value
    while isinstance(inner, Optional) and inner.present:
        inner = inner.value
    if isinstance(inner, bool):
        return inner
    kind = values.kind(value)
    raise EvaluationError(
        f"CEL result of type {kind} could not be converted to bool: {_not_a_bool(inner)}"
    )


_NOT_A_BOOL = {
    values.STRING: "unsupported native conversion from string to 'bool'",
    values.INT: "unsupported type conversion from 'int' to bool",
    values.UINT: "unsupported type conversion from 'uint' to bool",
    values.TYPE: "type conversion not supported for 'type'",
    values.OPTIONAL: "optional.none() dereference",
}
_GO_NAMES = {
    values.DOUBLE: "Double",
    values.BYTES: "Bytes",
    values.LIST: "list",
    values.MAP: "map",
    values.NULL: "'null_type'",
    values.DURATION: "'Duration'",
    values.TIMESTAMP: "'Timestamp'",
}


def _not_a_bool(value: object) -> str:
    kind = values.kind(value)
    name = _GO_NAMES.get(kind) or f"'{values.go_type(value).rpartition('.')[2]}'"
    return _NOT_A_BOOL.get(kind) or f"type conversion error from {name} to 'bool'"
