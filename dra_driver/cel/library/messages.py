# SPDX-License-Identifier: Apache-2.0
"""Message literals: google.protobuf.Int64Value{value: 1}.

The checker accepts all well-known protobuf messages. The evaluator supports only messages that wrap one value; the value of such a literal is
the wrapped value. The planner refuses the others, because no selector needs them. `device` has a message type too; an expression
cannot construct it.
Source: cel-go common/types/provider.go.
"""

from dra_driver.cel import values
from dra_driver.cel.failures import EvaluationError, PlanError
from dra_driver.cel.syntax.ast import Uint

_DEVICE = "kubernetes.DRADevice"
_ZEROS: dict[str, object] = {
    "google.protobuf.BoolValue": False,
    "google.protobuf.BytesValue": b"",
    "google.protobuf.DoubleValue": 0.0,
    "google.protobuf.Int64Value": 0,
    "google.protobuf.StringValue": "",
    "google.protobuf.UInt64Value": Uint(0),
}


def require(name: str) -> None:
    """Raise PlanError if the evaluator does not support messages with this name."""
    if name != _DEVICE and name not in _ZEROS:
        raise PlanError(f"messages of type {name} are not supported in selectors")


def make(name: str, fields: dict[str, object]) -> object:
    """Return the value of a message literal, or an error as a value."""
    if name not in _ZEROS:
        return EvaluationError(f"unknown type '{name}'")
    value = fields.get("value", _ZEROS[name])
    if type(value) is type(_ZEROS[name]):
        return value
    wanted = values.kind(_ZEROS[name])
    return EvaluationError(
        f"field type conversion error for {name}.value value type: "
        f"unsupported native conversion from {values.kind(value)} to '{wanted}'"
    )
