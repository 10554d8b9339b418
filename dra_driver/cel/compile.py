# SPDX-License-Identifier: Apache-2.0
"""The door: from the text of an expression to an answer for each device.

Compiling is parse, check, estimate the cost, and make a program. The program has two halves that give the same answers:
one is generated as Python for the usual case, the other evaluates exactly and runs again whenever the first stumbles.
An expression has no side effects, so nobody can tell that it ran twice.
Source: k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from dra_driver.cel import attribute_result as derived
from dra_driver.cel import types
from dra_driver.cel.checked_ast import Checked
from dra_driver.cel.checking import check
from dra_driver.cel.costs import estimate as cost
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.errors import PROGRAM, CompileError
from dra_driver.cel.exact import evaluate
from dra_driver.cel.failures import PlanError
from dra_driver.cel.fast import generate
from dra_driver.cel.syntax import parser
from dra_driver.cel.types import Kind, Type
from dra_driver.cel.versions import MAX_COST, MAX_LENGTH, Environment
from dra_driver.model.api.resource_slice import DeviceAttribute

# The estimate forgets things (what string(x) writes, that `device` itself can be gone over), but not twenty times as much
# as it finds. Up to here the cost need not be counted, and generated functions do not count it.
_CHEAP = MAX_COST // 20
_SCHEDULER = Environment()
_SEMVER = "kubernetes.Semver"
_DERIVED = frozenset({Kind.BOOL, Kind.INT, Kind.STRING, Kind.ANY, Kind.DYN})


@dataclass(frozen=True, slots=True, eq=False)
class Selector:
    """An expression that says whether a device is wanted.

    `matches` raises EvaluationError where the expression fails on the device; `cost` is the most that the API server
    expects it to cost.
    """

    expression: str
    environment: Environment
    checked: Checked = field(repr=False)
    cost: int
    matches: Callable[[DeviceValue], bool]


@dataclass(frozen=True, slots=True, eq=False)
class DerivedAttribute:
    """An expression that computes an attribute of a device."""

    expression: str
    environment: Environment
    cost: int
    value: Callable[[DeviceValue], DeviceAttribute]


def compile_selector(expression: str, environment: Environment = _SCHEDULER) -> Selector:
    """An expression ready to be asked about devices. Raises CompileError."""
    checked = _checked(expression, environment)
    result = checked.result_type
    if result != types.BOOL and result.kind not in _unknown_types(environment):
        raise _refused(f"must evaluate to bool or the unknown type, not {result.declared}")
    most, exact = _program(checked, environment)

    def decide(device: DeviceValue) -> bool:
        return evaluate.as_bool(exact(device))

    matches = generate.matcher(checked, decide) if most <= _CHEAP else decide
    return Selector(expression, environment, checked, most, matches)


def compile_attribute(expression: str, environment: Environment = _SCHEDULER) -> DerivedAttribute:
    """An expression ready to compute an attribute. Raises CompileError."""
    checked = _checked(expression, environment)
    lists = environment.stored or environment.features.list_type_attributes
    if not _is_derived(checked.result_type, lists=lists):
        or_list = " or a list of these scalars" if lists else ""
        raise _refused(
            "must evaluate to a primitive scalar (string, integer, boolean, semver)"
            f"{or_list}, not {checked.result_type.declared}"
        )
    most, exact = _program(checked, environment)
    return DerivedAttribute(
        expression, environment, most, lambda device: derived.attribute_of(exact(device))
    )


def over_limit(selector: Selector | DerivedAttribute) -> bool:
    """Whether the API server refuses the object that has this expression: "too complex, exceeds cost limit"."""
    return selector.cost > MAX_COST


def too_long(expression: str) -> bool:
    """Whether the API server refuses the object before it compiles the expression."""
    return len(expression.encode()) > MAX_LENGTH


def _checked(expression: str, environment: Environment) -> Checked:
    return check.check(parser.parse(expression, environment), environment)


def _program(
    checked: Checked, environment: Environment
) -> tuple[int, Callable[[DeviceValue], object]]:
    most = cost.cost(checked, environment).high
    try:
        run = evaluate.program(checked, MAX_COST)
    except PlanError as error:
        raise _refused(PROGRAM + error.message) from error

    def exact(device: DeviceValue) -> object:
        device.convert()
        return run(device)

    return most, exact


def _refused(detail: str) -> CompileError:
    return CompileError(detail)


def _unknown_types(environment: Environment) -> frozenset[Kind]:
    """The types that an attribute alone can have; 1.36 took both."""
    if environment.list_attributes:
        return _BOTH if environment.minor == _TOOK_BOTH else _DYN
    return _ANY


_TOOK_BOTH = 36
_ANY, _DYN, _BOTH = frozenset({Kind.ANY}), frozenset({Kind.DYN}), frozenset({Kind.ANY, Kind.DYN})


def _is_derived(result: Type, *, lists: bool) -> bool:
    if lists and result.kind is Kind.LIST and len(result.parameters) == 1:
        return _is_derived(result.parameters[0], lists=False)
    return result.kind in _DERIVED or result.name == _SEMVER
