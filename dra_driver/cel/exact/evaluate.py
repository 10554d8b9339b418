# SPDX-License-Identifier: Apache-2.0
"""Evaluate an expression exactly as the scheduler does, down to which of several errors is reported.

`program` makes the steps once (planner.py), the answer is then asked for each device. An error is a value until the end:
steps return it, and here it is raised.
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


class Program(Protocol):
    """Evaluates an expression for a device."""

    def __call__(self, device: DeviceValue, cancelled: Check = never) -> object:
        """The value. Raises EvaluationError, and Cancelled where `cancelled` says so while steps are counted."""


def program(checked: CheckedAst, cost_limit: int | None = None) -> Program:
    """What evaluates the expression for a device; raises PlanError now, EvaluationError then.

    With a limit the cost is counted, and evaluation ends where it is exceeded.
    """
    planner = Planner(checked, counts=cost_limit is not None)
    root = planner.step(checked.parsed.root).run
    size = planner.slots

    def evaluate(device: DeviceValue, cancelled: Check = never) -> object:
        tracker = None if cost_limit is None else Tracker(cost_limit, cancelled)
        values.work.begin()
        result = root(Frame(device, [None] * size, tracker))
        if isinstance(result, EvaluationError):
            # The same error may be raised again, and by another thread; texts may hold bytes that are no UTF-8.
            raise EvaluationError(golang.valid(result.message))
        return result

    return evaluate


def as_bool(value: object) -> bool:
    """The answer of a selector; an error if the expression gave something else."""
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
