# SPDX-License-Identifier: Apache-2.0
"""Which steps does the planner make of an expression?

Each node of the tree becomes a step, which has a function that evaluates the node (cel-go: Interpretable). The class of a
step matters in two places. The planner folds constants and appends qualifiers to attributes. The cost tracker charges
each class in its own way.
Source: cel-go interpreter/interpretable.go.
"""

from msgspec import Struct

from dra_driver.cel.exact.attributes import Attribute, Frame, Run
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.values import Optional


class Interpretable(Struct):
    """A step. A step that is none of the subclasses below costs nothing."""

    id: int
    run: Run


class InterpretableConst(Interpretable):
    """A constant: a literal, or the result of constant folding."""

    value: object


class InterpretableCall(Interpretable):
    """A call of a function that needs the values of all its arguments."""

    function: str
    overload: str
    arguments: tuple[Interpretable, ...]


class InterpretableLogic(Interpretable):
    """A chain of `&&` or of `||`."""

    terms: tuple[Interpretable, ...]


class InterpretableFold(Interpretable):
    """A comprehension (cel-go: evalFold)."""

    range: Interpretable


class InterpretableConstructor(Interpretable):
    """A list, map or message literal with computed parts."""

    parts: tuple[Interpretable, ...]
    cost: int


class InterpretableAttribute(Interpretable):
    """A variable with its qualifiers. `test` marks has()."""

    attribute: Attribute
    test: bool = False


def step_id(step: Interpretable) -> int:
    """Return the ID under which the tracker knows the step. For an attribute it changes while qualifiers are appended."""
    return step.id if type(step) is not InterpretableAttribute or step.test else step.attribute.id


def constant(node: int, value: object) -> InterpretableConst:
    """Return the step for a constant value."""
    return InterpretableConst(node, lambda _frame: value, value)


def attribute(found: Attribute) -> InterpretableAttribute:
    """Return the step that resolves an attribute."""
    return InterpretableAttribute(found.id, found.resolve, found)


def presence(node: int, found: Attribute) -> InterpretableAttribute:
    """Return the step for has(). `found` ends with a qualifier that has `test` set."""

    def run(frame: Frame) -> object:
        value = found.resolve(frame)
        return value.present if isinstance(value, Optional) else value

    return InterpretableAttribute(node, run, found, test=True)


def logic(node: int, terms: tuple[Interpretable, ...], *, decisive: bool) -> InterpretableLogic:
    """Return the step for `&&` (`decisive` is False) or `||` (True).

    If a term is decisive, errors of other terms are ignored.
    """

    def run(frame: Frame) -> object:
        error: EvaluationError | None = None
        for term in terms:
            value = term.run(frame)
            if value is decisive:
                return decisive
            # A later term may still decide the result. If none does, the first error is the result.
            if type(value) is not bool and error is None:
                error = _as_error(value)
        return not decisive if error is None else error

    return InterpretableLogic(node, run, terms)


def _as_error(value: object) -> EvaluationError:
    return value if isinstance(value, EvaluationError) else EvaluationError("no such overload")
