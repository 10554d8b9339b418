# SPDX-License-Identifier: Apache-2.0
"""How does the text of an expression become a function that answers for a device?

This module is the entry point of the room. It parses the expression, checks its types, estimates its cost and makes a
program. The program has two implementations with the same results. The fast one is generated Python code for the common
case. If it meets anything else, for example an error, the exact one evaluates the expression from the start. That is
allowed because an expression has no side effects.
Source: k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from dra_driver.cel import types
from dra_driver.cel.cancellation import Check, never
from dra_driver.cel.checked_ast import CheckedAst
from dra_driver.cel.checking import check
from dra_driver.cel.costs import estimate as cost
from dra_driver.cel.costs.turns import most_turns
from dra_driver.cel.derived_attribute import device_attribute
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.errors import PROGRAM, CompileError
from dra_driver.cel.exact import evaluate
from dra_driver.cel.failures import PlanError
from dra_driver.cel.fast import generate
from dra_driver.cel.syntax import parser
from dra_driver.cel.types import Kind, Type
from dra_driver.cel.versions import MAX_COST, MAX_LENGTH, Environment
from dra_driver.model.api.resource_slice import DeviceAttribute

_SCHEDULER = Environment()
_SEMVER = "kubernetes.Semver"
_DERIVED = frozenset({Kind.BOOL, Kind.INT, Kind.STRING, Kind.ANY, Kind.DYN})


@dataclass(frozen=True, slots=True, eq=False)
class Selector:
    """A compiled selector.

    `matches` returns whether it selects the device. It raises EvaluationError if the evaluation fails, and Cancelled if
    the caller cancels it. `cost` is the highest cost in the API server's estimate.
    """

    expression: str
    environment: Environment
    checked: CheckedAst = field(repr=False)
    cost: int
    matches: generate.Matcher


@dataclass(frozen=True, slots=True, eq=False)
class DerivedAttribute:
    """A compiled derived attribute. `value` raises EvaluationError if the evaluation fails."""

    expression: str
    environment: Environment
    cost: int
    value: "Derivation"


class Derivation(Protocol):
    """Computes it. Raises EvaluationError, and Cancelled where `cancelled` says so before there is an answer."""

    def __call__(self, device: DeviceValue, cancelled: Check = never) -> DeviceAttribute:
        """The attribute."""


def compile_selector(expression: str, environment: Environment = _SCHEDULER) -> Selector:
    """Compile a selector. CompileError if the API server would refuse it; the cost is not checked (`over_limit`)."""
    checked = _checked(expression, environment)
    result = checked.result_type
    if result != types.BOOL and result.kind not in _unknown_types(environment):
        raise _refused(f"must evaluate to bool or the unknown type, not {result.declared}")
    most, exact = _program(checked, environment)

    def decide(device: DeviceValue, cancelled: Check = never) -> bool:
        return evaluate.as_bool(exact(device, cancelled))

    turns = most_turns(checked, environment, most)
    matches = decide if turns is None else generate.matcher(checked, decide, turns)
    return Selector(expression, environment, checked, most, matches)


def compile_attribute(expression: str, environment: Environment = _SCHEDULER) -> DerivedAttribute:
    """Compile a derived attribute. CompileError if the API server would refuse it; the cost is not checked."""
    checked = _checked(expression, environment)
    lists = environment.stored or environment.features.list_type_attributes
    if not _is_derived(checked.result_type, lists=lists):
        or_list = " or a list of these scalars" if lists else ""
        raise _refused(
            "must evaluate to a primitive scalar (string, integer, boolean, semver)"
            f"{or_list}, not {checked.result_type.declared}"
        )
    most, exact = _program(checked, environment)

    def derive(device: DeviceValue, cancelled: Check = never) -> DeviceAttribute:
        return device_attribute(exact(device, cancelled))

    return DerivedAttribute(expression, environment, most, derive)


def over_limit(selector: Selector | DerivedAttribute) -> bool:
    """Whether the API server refuses an object with this expression: "too complex, exceeds cost limit"."""
    return selector.cost > MAX_COST


def too_long(expression: str) -> bool:
    """Whether the expression exceeds the API's length limit. The API server then does not even compile it."""
    return len(expression.encode()) > MAX_LENGTH


def _checked(expression: str, environment: Environment) -> CheckedAst:
    return check.check(parser.parse(expression, environment), environment)


def _program(
    checked: CheckedAst, environment: Environment
) -> tuple[int, Callable[[DeviceValue, Check], object]]:
    most = cost.cost(checked, environment).high
    try:
        run = evaluate.program(checked, MAX_COST)
    except PlanError as error:
        raise _refused(PROGRAM + error.message) from error

    def exact(device: DeviceValue, cancelled: Check) -> object:
        # Upstream converts all attributes before it evaluates, so one invalid attribute fails every expression.
        device.convert()
        return run(device, cancelled)

    return most, exact


def _refused(detail: str) -> CompileError:
    return CompileError(detail)


def _unknown_types(environment: Environment) -> frozenset[Kind]:
    """The unknown types that a selector's result may have, depending on the release. 1.36 accepts both."""
    if environment.list_attributes:
        return _BOTH if environment.minor == _TOOK_BOTH else _DYN
    return _ANY


_TOOK_BOTH = 36
_ANY, _DYN, _BOTH = frozenset({Kind.ANY}), frozenset({Kind.DYN}), frozenset({Kind.ANY, Kind.DYN})


def _is_derived(result: Type, *, lists: bool) -> bool:
    if lists and result.kind is Kind.LIST and len(result.parameters) == 1:
        return _is_derived(result.parameters[0], lists=False)
    return result.kind in _DERIVED or result.name == _SEMVER
