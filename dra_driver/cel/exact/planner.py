# SPDX-License-Identifier: Apache-2.0
"""How does the tree become steps, each with a function that evaluates one node?

The planner folds constants where cel-go does: list literals, conversions of a constant, regular expressions. If such a
conversion fails, the whole program fails, even if the node would never be evaluated. `x in []` is false without evaluating x,
and `x in [1, 2]` becomes a lookup in a set. Variables are resolved here: each has a slot in the frame.
Source: cel-go interpreter/planner.go, interpreter/decorators.go, cel/library.go (optional `or`).
"""

from collections.abc import Callable

from dra_driver.cel import values, work
from dra_driver.cel.checked_ast import CheckedAst
from dra_driver.cel.exact import aggregates, loops
from dra_driver.cel.exact import interpretable as plan
from dra_driver.cel.exact.actual_call_costs import price_before
from dra_driver.cel.exact.actual_cost import Tracker, counted, counted_qualifier
from dra_driver.cel.exact.attributes import (
    ConditionalAttribute,
    Frame,
    QualifiedAttribute,
    Qualifier,
    Run,
    invalid_key,
)
from dra_driver.cel.exact.interpretable import (
    Interpretable,
    InterpretableAttribute,
    InterpretableCall,
    InterpretableConst,
    constant,
)
from dra_driver.cel.failures import Aborted, EvaluationError, PlanError
from dra_driver.cel.functions import FUNCTIONS
from dra_driver.cel.library import conversions, lists, regexes
from dra_driver.cel.overloads import Dispatcher, Implementation
from dra_driver.cel.syntax.ast import (
    Call,
    Comprehension,
    Constant,
    Expr,
    Identifier,
    ListLiteral,
    MapLiteral,
    Select,
)
from dra_driver.cel.types import Kind
from dra_driver.cel.values import TypeValue

_PAIR = 2
# The evaluator does not know other type names, although the checker does.
_TYPE_NAMES = frozenset(
    {
        values.BOOL,
        values.BYTES,
        values.DOUBLE,
        values.DURATION,
        values.INT,
        values.LIST,
        values.MAP,
        values.NULL,
        values.OPTIONAL,
        values.STRING,
        values.TIMESTAMP,
        values.TYPE,
        values.UINT,
        "google.protobuf.Empty",
        "net.CIDR",
        "net.IP",
    }
)


class Planner:
    """Makes the steps of one expression. With `counts`, each step reports its cost to the tracker of the frame."""

    def __init__(self, checked: CheckedAst, *, counts: bool) -> None:
        self.slots = 0
        self._checked = checked
        self._counts = counts
        self._scope: dict[str, Run] = {}

    def step(self, node: Expr) -> Interpretable:
        """Return the step for a node. The steps for its operands are made first."""
        work.current().steps(1)
        match node:
            case Call():
                return self._call(node)
            case Select():
                return self._select(node)
            case Identifier():
                built = self._identifier(node.id, node.name)
            case Constant():
                built = constant(node.id, node.value)
            case Comprehension():
                built = self._loop(node)
            case ListLiteral():
                built = aggregates.list_step(node, self._steps(node.elements))
            case MapLiteral():
                keys = self._steps(tuple(entry.key for entry in node.entries))
                entries = self._steps(tuple(entry.value for entry in node.entries))
                built = aggregates.map_step(node, keys, entries)
            case _:
                fields = self._steps(tuple(field.value for field in node.fields))
                made = self._checked.references[node.id].name
                built = aggregates.message_step(node, made, fields)
        return self._done(built)

    def _steps(self, nodes: tuple[Expr, ...]) -> tuple[Interpretable, ...]:
        steps: list[Interpretable] = []
        for node in nodes:
            steps.append(self.step(node))  # noqa: PERF401  a comprehension would cost a frame per level
        return tuple(steps)

    def _done(self, step: Interpretable) -> Interpretable:
        return counted(step) if self._counts else step

    # --- names and paths

    def _identifier(self, node: int, name: str) -> Interpretable:
        reference = self._checked.references.get(node)
        if reference is not None and reference.value is not None:
            return constant(node, reference.value)
        variable = self._scope.get(name)
        found = self._checked.types[node]
        if found.kind is Kind.TYPE:
            if variable is not None or name not in _TYPE_NAMES:
                raise PlanError(f"reference to undefined type: {name}")
            return constant(node, TypeValue((*found.parameters, found)[0].name))
        return plan.attribute(QualifiedAttribute(node, variable or _device))

    def _path(self, step: Interpretable) -> InterpretableAttribute:
        """Return the step as an attribute, so that qualifiers can be appended."""
        if isinstance(step, InterpretableAttribute):
            return step
        begun = plan.attribute(QualifiedAttribute(step.id, step.run))
        self._done(begun)
        return begun

    def _select(self, node: Select) -> Interpretable:
        path = self._path(self.step(node.operand))
        path.attribute.add(
            self._qualifier(node.id, constant(node.id, node.field), test=node.test_only)
        )
        return self._done(plan.presence(node.id, path.attribute)) if node.test_only else path

    def _qualifier(
        self, node: int, key: Interpretable, *, optional: bool = False, test: bool = False
    ) -> Qualifier:
        if isinstance(key, InterpretableConst):
            problem = invalid_key(key.value)
            if problem is not None:
                raise PlanError(problem)
            qualifier = Qualifier(node, key.run, optional, test)
        else:
            computed = key.attribute.resolve if isinstance(key, InterpretableAttribute) else key.run
            qualifier = Qualifier(node, _valid_key(computed), optional, test)
        if not self._counts:
            return qualifier
        return counted_qualifier(
            qualifier, computed=not isinstance(key, InterpretableConst | InterpretableAttribute)
        )

    # --- calls

    def _call(self, node: Call) -> Interpretable:
        parts = node.args if node.target is None else (node.target, *node.args)
        arguments: list[Interpretable] = []
        for part in parts:
            arguments.append(self.step(part))  # noqa: PERF401  a comprehension would cost a frame per level
        build = _SPECIAL.get(node.function)
        if build is not None and (
            len(arguments) == _PAIR or node.function not in ("or", "orValue")
        ):
            return build(self, node.id, arguments)
        return self._done(self._plain(node, tuple(arguments)))

    def _plain(self, node: Call, arguments: tuple[Interpretable, ...]) -> Interpretable:
        overload = self._checked.only_overload(node.id)
        run = _calling(_implementation(node.function, overload), arguments, node.function, overload)
        call = InterpretableCall(node.id, run, node.function, overload, arguments)
        if overload == "in_list" and isinstance(arguments[1], InterpretableConst):
            return aggregates.membership(call, arguments[1].value)
        if node.function in conversions.FOLDED and isinstance(arguments[0], InterpretableConst):
            return _folded(call, arguments[0])
        pattern = arguments[1] if len(arguments) >= _PAIR else None
        if (
            node.function in regexes.WITH_CONSTANT
            and isinstance(pattern, InterpretableConst)
            and isinstance(pattern.value, str)
        ):
            call.run = _calling(_matcher(node.function, pattern.value), arguments, node.function)
        return call

    def logic(self, node: int, arguments: list[Interpretable], *, decisive: bool) -> Interpretable:
        """Return the step for `&&` (`decisive` is False) or `||` (True)."""
        return self._done(plan.logic(node, tuple(arguments), decisive=decisive))

    def equality(self, node: int, arguments: list[Interpretable], *, wanted: bool) -> Interpretable:
        """Return the step for `==` or `!=`. If values cannot be compared, `==` is an error and `!=` is true."""
        name, overload = ("_==_", "equals") if wanted else ("_!=_", "not_equals")
        run = _calling(FUNCTIONS[name], tuple(arguments))
        return self._done(InterpretableCall(node, run, name, overload, tuple(arguments)))

    def condition(self, node: int, arguments: list[Interpretable]) -> Interpretable:
        """Return the step for `c ? a : b`. It is an attribute, because qualifiers can follow."""
        chooser, *sides = arguments
        truthy, falsy = (
            side.attribute
            if isinstance(side, InterpretableAttribute)
            else QualifiedAttribute(side.id, side.run)
            for side in sides
        )
        chosen = ConditionalAttribute(node, chooser.id, chooser.run, truthy, falsy)
        chosen.condition_id = plan.step_id(chooser)
        return self._done(plan.attribute(chosen))

    def index(self, node: int, arguments: list[Interpretable], *, optional: bool) -> Interpretable:
        """Return the step for `a[k]`, `a[?k]` or `a.?k`: the attribute of a with one more qualifier."""
        path = self._path(arguments[0])
        path.attribute.add(self._qualifier(node, arguments[1], optional=optional))
        return path

    def alternative(
        self, node: int, arguments: list[Interpretable], *, unwraps: bool
    ) -> Interpretable:
        """Return the step for `a.or(b)` or `a.orValue(b)`. b is evaluated only if a is none."""
        first, second = arguments
        return self._done(
            Interpretable(node, loops.alternative(first.run, second.run, unwraps=unwraps))
        )

    # --- loops

    def _loop(self, node: Comprehension) -> Interpretable:
        init = self.step(node.accu_init)
        items = self.step(node.iter_range)
        places = range(self.slots, self.slots + 3)
        self.slots += 3
        outer = self._scope
        after = outer | {node.accu_var: loops.lazily(places[0], init.run)}
        self._scope = after | {node.iter_var: loops.reader(places[1])}
        if node.iter_var2:
            self._scope[node.iter_var2] = loops.reader(places[2])
        condition, turn = self.step(node.loop_condition), self.step(node.loop_step)
        self._scope = after
        result = self.step(node.result)
        self._scope = outer
        folder = loops.Folder(
            places[0],
            two=bool(node.iter_var2),
            items=items.run,
            condition=None
            if isinstance(condition, InterpretableConst) and condition.value is True
            else condition.run,
            turn=turn.run,
            result=result.run,
        )
        return plan.InterpretableFold(node.id, folder.run, items)


Builder = Callable[[Planner, int, list[Interpretable]], Interpretable]

_SPECIAL: dict[str, Builder] = {
    "_&&_": lambda planner, node, steps: planner.logic(node, steps, decisive=False),
    "_||_": lambda planner, node, steps: planner.logic(node, steps, decisive=True),
    "_==_": lambda planner, node, steps: planner.equality(node, steps, wanted=True),
    "_!=_": lambda planner, node, steps: planner.equality(node, steps, wanted=False),
    "_?_:_": Planner.condition,
    "_[_]": lambda planner, node, steps: planner.index(node, steps, optional=False),
    "_[?_]": lambda planner, node, steps: planner.index(node, steps, optional=True),
    "_?._": lambda planner, node, steps: planner.index(node, steps, optional=True),
    "or": lambda planner, node, steps: planner.alternative(node, steps, unwraps=False),
    "orValue": lambda planner, node, steps: planner.alternative(node, steps, unwraps=True),
}


def _device(frame: Frame) -> object:
    return frame.device


def _valid_key(compute: Run) -> Run:
    def run(frame: Frame) -> object:
        key = compute(frame)
        problem = None if type(key) is EvaluationError else invalid_key(key)
        return key if problem is None else EvaluationError(problem)

    return run


def _implementation(function: str, overload: str) -> Implementation:
    found = FUNCTIONS[function]
    return found.overload(overload) if overload else found


def _matcher(function: str, pattern: str) -> Implementation:
    try:
        return regexes.WITH_CONSTANT[function](pattern)
    except EvaluationError as error:
        raise PlanError(*error.args) from error


def _folded(call: InterpretableCall, argument: InterpretableConst) -> Interpretable:
    given = argument.value
    if not isinstance(given, EvaluationError):
        given = _answer(_implementation(call.function, call.overload), (given,))
    if isinstance(given, EvaluationError):
        raise PlanError(*given.args)
    return constant(call.id, given)


def _answer(implementation: Implementation, arguments: tuple[object, ...]) -> object:
    try:
        return implementation(*arguments)
    except Aborted:
        raise
    except EvaluationError as error:
        return error


def _calling(
    implementation: Implementation,
    steps: tuple[Interpretable, ...],
    function: str = "",
    overload: str = "",
) -> Run:
    """Return a function that evaluates the arguments and calls the implementation.

    cel-go has steps for one and for two arguments; they evaluate both arguments even if the first one is an error. cel-go's step
    for any number of arguments stops at the first error, and `format` also has this step. A call that can take long does not
    begin if the call would exceed the cost limit.
    """
    if implementation is FUNCTIONS["@not_strictly_false"]:
        return _asking(implementation, steps[0])
    stops = (
        len(steps) > _PAIR or isinstance(implementation, Dispatcher) or overload == "string_format"
    )
    place = lists.counted_argument(overload)
    price = price_before(function, overload)

    def run(frame: Frame) -> object:
        arguments: list[object] = []
        error: EvaluationError | None = None
        for step in steps:
            value = step.run(frame)
            if isinstance(value, EvaluationError):
                error = error or value
                if stops:
                    return error
            arguments.append(value)
        if place is not None:
            lists.require_countable(overload, arguments[place])
        if price is not None and error is None and isinstance(frame.tracker, Tracker):
            frame.tracker.afford(steps, price(arguments, None))
        return _answer(implementation, tuple(arguments)) if error is None else error

    return run


def _asking(implementation: Implementation, step: Interpretable) -> Run:
    """Return a function that calls @not_strictly_false, the only function that accepts an error as its argument."""
    return lambda frame: _answer(implementation, (step.run(frame),))
