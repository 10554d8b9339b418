# SPDX-License-Identifier: Apache-2.0
"""The steps that an expression becomes before it runs.

Each node of the tree becomes a step with a function that evaluates it. The planner looks at the kind of a step to build
the next one (constants are folded, paths grow), and the cost counter to know what the step cost.
Source: cel-go interpreter/interpretable.go.
"""

from dataclasses import dataclass

from dra_driver.cel.exact.attributes import Attribute, Frame, Run
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.values import Optional


@dataclass(slots=True)
class Step:
    """Any step; what it costs is nothing unless it is one of the kinds below."""

    id: int
    run: Run


@dataclass(slots=True)
class ConstantStep(Step):
    """A value that is known before anything runs."""

    value: object


@dataclass(slots=True)
class CallStep(Step):
    """A call of a function that evaluates all its arguments."""

    function: str
    overload: str
    arguments: tuple[Step, ...]


@dataclass(slots=True)
class LogicStep(Step):
    """`&&` or `||`."""

    terms: tuple[Step, ...]


@dataclass(slots=True)
class FoldStep(Step):
    """A loop."""

    range: Step


@dataclass(slots=True)
class MakeStep(Step):
    """A list, map or message that is put together."""

    parts: tuple[Step, ...]
    cost: int


@dataclass(slots=True)
class AttributeStep(Step):
    """A variable or a path; `test` is has()."""

    attribute: Attribute
    test: bool = False


def step_id(step: Step) -> int:
    """A path is known by its last step, and may grow after the step is made."""
    return step.id if type(step) is not AttributeStep or step.test else step.attribute.id


def constant(node: int, value: object) -> ConstantStep:
    """A step that is always the same value."""
    return ConstantStep(node, lambda _frame: value, value)


def attribute(found: Attribute) -> AttributeStep:
    """A step that resolves a path."""
    return AttributeStep(found.id, found.resolve, found)


def presence(node: int, found: Attribute) -> AttributeStep:
    """has(): whether the path leads somewhere."""

    def run(frame: Frame) -> object:
        value = found.resolve(frame)
        return value.present if isinstance(value, Optional) else value

    return AttributeStep(node, run, found, test=True)


def logic(node: int, terms: tuple[Step, ...], *, decisive: bool) -> LogicStep:
    """`&&` (False decides) or `||` (True decides): errors are forgotten if any term decides, else the first counts."""

    def run(frame: Frame) -> object:
        error: EvaluationError | None = None
        for term in terms:
            value = term.run(frame)
            if value is decisive:
                return decisive
            if type(value) is not bool and error is None:
                error = _as_error(value)
        return not decisive if error is None else error

    return LogicStep(node, run, terms)


def _as_error(value: object) -> EvaluationError:
    return value if isinstance(value, EvaluationError) else EvaluationError("no such overload")
