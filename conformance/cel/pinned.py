# SPDX-License-Identifier: Apache-2.0
"""What is the value of a call? A case that holds for one value only.

The oracle answers true, false or an error, but no value. A call that is compared with itself therefore says nothing about its value. Here
the driver evaluates the call first, and the case compares the call with that value, written as a literal: where the oracle has
another value, it gives another answer.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from conformance.cel.trees import Tree, operand
from conformance.cel.types import BOOL
from dra_driver.cel.compile import compile_attribute
from dra_driver.cel.errors import CompileError
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.versions import NEWEST
from dra_driver.model.api.resource_slice import DeviceAttribute
from dra_driver.testing.conformance.cel import Question

_AS_IT_IS = ("int", "string")
# `string()` takes these, and its text shows the whole value.
_AS_TEXT = ("uint", "double", "bytes", "google.protobuf.Timestamp", "google.protobuf.Duration")


def pinned(call: Tree, sign: str, device: Mapping[str, Any]) -> Tree | None:
    """`call SIGN value`, with the driver's value for this device. None where no literal can show the value."""
    if call.type.name in _AS_IT_IS:
        shown = operand(call)
    elif call.type.name in _AS_TEXT:
        shown = Tree(("string(", call, ")"))
    else:
        return None
    value = _value(str(shown), device)
    if value is None:
        return None
    return Tree((shown, f" {sign} {value}"), BOOL, primary=False)


def _value(expression: str, device: Mapping[str, Any]) -> str | None:
    question = msgspec.convert({"expression": expression, **device}, Question)
    environment = question.environment(NEWEST)
    try:
        found = compile_attribute(expression, environment).value(question.device(environment))
    except (CompileError, EvaluationError):
        return None
    return _literal(found)


def _literal(attribute: DeviceAttribute) -> str | None:
    if attribute.int_value is not None:
        return str(attribute.int_value)
    if attribute.string_value is not None:
        return json.dumps(attribute.string_value, ensure_ascii=False)
    return None
