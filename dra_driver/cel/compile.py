# SPDX-License-Identifier: Apache-2.0
"""How does the text of an expression become a function of a device?

This module is the entry point of the package. It parses the expression, checks its types and makes a program. The program has two
implementations with the same results. The fast one is generated Python code for the common case. In any other
case, for example an error, the exact one evaluates the expression from the start. This is safe because an expression has no
side effects.
Source: k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from msgspec.structs import replace

from dra_driver.cel import types, work
from dra_driver.cel.cancellation import Check, never
from dra_driver.cel.checked_ast import CheckedAst
from dra_driver.cel.checking import check, hints
from dra_driver.cel.costs import estimate
from dra_driver.cel.costs.turns import most_turns
from dra_driver.cel.derived_attribute import device_attribute
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.errors import PROGRAM, CompileError
from dra_driver.cel.exact import evaluate
from dra_driver.cel.failures import PlanError
from dra_driver.cel.fast import generate
from dra_driver.cel.syntax import parser
from dra_driver.cel.syntax.ast import Expr
from dra_driver.cel.types import Kind, Type
from dra_driver.cel.versions import MAX_COST, Environment
from dra_driver.model.api.resource_slice import DeviceAttribute

_SCHEDULER = Environment()
_SEMVER = "kubernetes.Semver"
_DERIVED = frozenset({Kind.BOOL, Kind.INT, Kind.STRING, Kind.ANY, Kind.DYN})


@dataclass(frozen=True, slots=True, eq=False)
class Selector:
    """A compiled selector.

    `matches` returns whether it selects the device. It raises EvaluationError if the evaluation fails, and Cancelled if
    the caller cancels it.
    """

    expression: str
    environment: Environment
    checked: CheckedAst = field(repr=False)
    matches: generate.Matcher

    @property
    def cost(self) -> int:
        """The highest cost in the API server's estimate. It is calculated on demand, because no evaluation needs it."""
        return estimate.cost(self.checked, self.environment).high


@dataclass(frozen=True, slots=True, eq=False)
class DerivedAttribute:
    """A compiled derived attribute. `value` raises EvaluationError if the evaluation fails."""

    expression: str
    environment: Environment
    checked: CheckedAst = field(repr=False)
    value: "Derivation"

    @property
    def cost(self) -> int:
        """The highest cost in the API server's estimate, calculated on demand."""
        return estimate.cost(self.checked, self.environment).high


class Derivation(Protocol):
    """Evaluates a derived attribute. EvaluationError if that fails, Cancelled if `cancelled` ends it."""

    def __call__(self, device: DeviceValue, cancelled: Check = never) -> DeviceAttribute:
        """Return the value of the attribute for this device."""


def compile_selector(expression: str, environment: Environment = _SCHEDULER) -> Selector:
    """Compile a selector. Raises CompileError if the API server would refuse it; a cost above MAX_COST is accepted."""
    return _selector(expression, environment, _checked(expression, environment))


def part_of_selector(selector: Selector, part: Expr) -> Selector:
    """Return a part of a compiled selector as a selector of its own. Raises CompileError if the part cannot be one.

    The part reuses the types that were found when the whole selector was checked. So the part is not parsed or checked again.
    """
    whole = selector.checked
    checked = replace(whole, parsed=replace(whole.parsed, root=part))
    return _selector(selector.expression, selector.environment, checked)


def _selector(expression: str, environment: Environment, checked: CheckedAst) -> Selector:
    result = checked.result_type
    if result != types.BOOL and result.kind not in _unknown_types(environment):
        raise _refused(
            f"must evaluate to bool or the unknown type, not {result.declared}",
            hints.result(result),
        )
    exact = _program(checked)

    def decide(device: DeviceValue, cancelled: Check = never) -> bool:
        return evaluate.as_bool(exact(device, cancelled))

    turns = most_turns(checked, environment)
    matches = decide if turns is None else generate.matcher(checked, decide, turns)
    return Selector(expression, environment, checked, matches)


def compile_attribute(expression: str, environment: Environment = _SCHEDULER) -> DerivedAttribute:
    """Compile a derived attribute. Raises CompileError if the API server would refuse it; a cost above MAX_COST is accepted."""
    checked = _checked(expression, environment)
    lists = environment.stored or environment.features.list_type_attributes
    if not _is_derived(checked.result_type, lists=lists):
        or_list = " or a list of these scalars" if lists else ""
        raise _refused(
            "must evaluate to a primitive scalar (string, integer, boolean, semver)"
            f"{or_list}, not {checked.result_type.declared}"
        )
    exact = _program(checked)

    def derive(device: DeviceValue, cancelled: Check = never) -> DeviceAttribute:
        return device_attribute(exact(device, cancelled))

    return DerivedAttribute(expression, environment, checked, derive)


def _checked(expression: str, environment: Environment) -> CheckedAst:
    work.current().ask()
    return check.check(parser.parse(expression, environment), environment)


def _program(checked: CheckedAst) -> Callable[[DeviceValue, Check], object]:
    try:
        run = evaluate.program(checked, MAX_COST)
    except PlanError as error:
        raise _refused(PROGRAM + error.message) from error

    def exact(device: DeviceValue, cancelled: Check) -> object:
        # Upstream converts all attributes before it evaluates, so one invalid attribute fails every expression.
        device.convert()
        return run(device, cancelled)

    return exact


def _refused(detail: str, hint: str = "") -> CompileError:
    return CompileError(detail, hint=hint)


def _unknown_types(environment: Environment) -> frozenset[Kind]:
    """Return the unknown types that a selector's result may have, depending on the release. 1.36 accepts both."""
    if environment.list_attributes:
        return _BOTH if environment.minor == _TOOK_BOTH else _DYN
    return _ANY


_TOOK_BOTH = 36
_ANY, _DYN, _BOTH = frozenset({Kind.ANY}), frozenset({Kind.DYN}), frozenset({Kind.ANY, Kind.DYN})


def _is_derived(result: Type, *, lists: bool) -> bool:
    if lists and result.kind is Kind.LIST and len(result.parameters) == 1:
        return _is_derived(result.parameters[0], lists=False)
    return result.kind in _DERIVED or result.name == _SEMVER
