# SPDX-License-Identifier: Apache-2.0
"""Which nodes replace a macro call?

A macro looks like a function call. The parser expands it: has(a.b) becomes a field test, the others become comprehensions.
A comprehension with an empty range only gives a name to a value: the accumulator has the name, and the loop never runs.
cel.bind and optMap use this. Each expander below expands one macro.

The expansion of optMap contains its target twice, so a chain of optMap grows exponentially. The API server has no limit for
that. `MAX_NODES` is the limit of this project.
Source: cel-go parser/macro.go, cel/library.go, ext/bindings.go, ext/comprehensions.go, ext/lists.go.
"""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.cel import work
from dra_driver.cel.declarations import declarations
from dra_driver.cel.syntax.ast import (
    Call,
    Comprehension,
    Constant,
    ConstantValue,
    Expr,
    Identifier,
    ListLiteral,
    MapEntry,
    MapLiteral,
    Select,
    StructField,
    StructLiteral,
)
from dra_driver.cel.versions import Environment

MAX_NODES = 100_000
UNUSED = "#unused"
_SORT_INPUT = "@__sortBy_input__"
_HIDDEN_ACCUMULATOR = 33  # From 1.33 on, an expression cannot use the name of the accumulator.
_VISIBLE_NAME = "__result__"


class MacroError(Exception):
    """A macro with a wrong argument: the node, the API server's message, and the hint of this project."""

    def __init__(self, node: Expr, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.node = node.id
        self.message = message
        self.hint = hint


class TooManyNodesError(Exception):
    """The expansion of the macros exceeds MAX_NODES."""


class Fold(Struct, frozen=True):
    """The four parts of a comprehension: accu_init, loop_condition, loop_step and result."""

    start: Expr
    goes_on: Expr
    step: Expr
    result: Expr


class NodeFactory:
    """Makes nodes with new IDs. All nodes of an expansion have the position of the macro call, `place`."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.offsets: dict[int, int] = {}
        self.place = 0
        hidden = environment.minor >= _HIDDEN_ACCUMULATOR
        self.accumulator = "@result" if hidden else _VISIBLE_NAME

    def new_id(self, offset: int) -> int:
        """Return a new ID for a node at this index of the text."""
        number = len(self.offsets) + 1
        self.offsets[number] = offset
        return number

    def _here(self) -> int:
        if len(self.offsets) >= MAX_NODES:
            raise TooManyNodesError
        work.current().steps(1)
        return self.new_id(self.place)

    def literal(self, value: ConstantValue) -> Expr:
        return Constant(self._here(), value)

    def name(self, name: str) -> Expr:
        return Identifier(self._here(), name)

    def result(self) -> Expr:
        """Return an identifier node for the accumulator."""
        return self.name(self.accumulator)

    def sequence(self, *elements: Expr) -> Expr:
        """Return a list literal of these elements."""
        return ListLiteral(self._here(), elements)

    def empty_map(self) -> Expr:
        return MapLiteral(self._here(), ())

    def call(self, function: str, *args: Expr, target: Expr | None = None) -> Expr:
        """Return a call node; a member call if there is a target."""
        return Call(self._here(), function, args, target)

    def presence(self, selected: Select) -> Expr:
        """Return the field test for a selection: has(a.b)."""
        return Select(self._here(), selected.operand, selected.field, test_only=True)

    def loop(self, over: Expr, names: Sequence[str], fold: Fold) -> Expr:
        """Return a comprehension over `over` with one or two variables."""
        first, second = (*names, "")[:2]
        return Comprehension(
            id=self._here(),
            iter_range=over,
            iter_var=first,
            iter_var2=second,
            accu_var=self.accumulator,
            accu_init=fold.start,
            loop_condition=fold.goes_on,
            loop_step=fold.step,
            result=fold.result,
        )

    def bind(self, name: str, value: Expr, expression: Expr) -> Expr:
        """Return the expansion of cel.bind: `expression`, in which `name` is `value`."""
        return Comprehension(
            id=self._here(),
            iter_range=self.sequence(),
            iter_var=UNUSED,
            iter_var2="",
            accu_var=name,
            accu_init=value,
            loop_condition=self.literal(value=False),
            loop_step=self.name(name),
            result=expression,
        )

    def copy(self, node: Expr) -> Expr:
        """Return a copy of the tree with new IDs and the same positions."""
        place, self.place = self.place, self.offsets[node.id]
        number = self._here()
        self.place = place
        copied: Expr
        match node:
            case Select():
                copied = replace(node, id=number, operand=self.copy(node.operand))
            case Call():
                target = None if node.target is None else self.copy(node.target)
                copied = replace(node, id=number, target=target, args=self._copies(node.args))
            case ListLiteral():
                copied = replace(node, id=number, elements=self._copies(node.elements))
            case MapLiteral():
                copied = replace(node, id=number, entries=self._copied_entries(node.entries))
            case StructLiteral():
                copied = replace(node, id=number, fields=self._copied_fields(node.fields))
            case Comprehension():
                copied = self._copied_loop(number, node)
            case _:
                copied = replace(node, id=number)
        return copied

    def _copies(self, nodes: Sequence[Expr]) -> tuple[Expr, ...]:
        copies: list[Expr] = []
        for node in nodes:
            copies.append(self.copy(node))  # noqa: PERF401 - a comprehension needs one more stack frame in each level of the tree
        return tuple(copies)

    def _copied_entries(self, entries: Sequence[MapEntry]) -> tuple[MapEntry, ...]:
        copies: list[MapEntry] = []
        for entry in entries:
            key = self.copy(entry.key)
            copies.append(replace(entry, id=self._here(), key=key, value=self.copy(entry.value)))
        return tuple(copies)

    def _copied_fields(self, fields: Sequence[StructField]) -> tuple[StructField, ...]:
        copies: list[StructField] = []
        for field in fields:
            copies.append(replace(field, id=self._here(), value=self.copy(field.value)))  # noqa: PERF401 - as above: one more stack frame
        return tuple(copies)

    def _copied_loop(self, number: int, loop: Comprehension) -> Comprehension:
        return replace(
            loop,
            id=number,
            iter_range=self.copy(loop.iter_range),
            accu_init=self.copy(loop.accu_init),
            loop_condition=self.copy(loop.loop_condition),
            loop_step=self.copy(loop.loop_step),
            result=self.copy(loop.result),
        )


# An expander gets the target of the macro. A global macro has no target; its expander gets the call itself.
Expander = Callable[[NodeFactory, Expr, tuple[Expr, ...]], Expr]


def expander(call: Call, environment: Environment) -> Expander | None:
    """Return the expander if the call is a macro in this environment, else None."""
    member = call.target is not None
    if (call.function, len(call.args), member) not in declarations(environment).macros:
        return None
    # x.bind(…) with another target is an ordinary call of a function "bind", which is not declared.
    if call.function == "bind" and not _is_name(call.target, "cel"):
        return None
    return _TWO_VARIABLES.get((call.function, len(call.args))) or _EXPANDERS[call.function]


def _is_name(node: Expr | None, name: str) -> bool:
    return isinstance(node, Identifier) and node.name == name


def _has(nodes: NodeFactory, _: Expr, args: tuple[Expr, ...]) -> Expr:
    if not isinstance(args[0], Select):
        hint = "has() asks whether a field is there: has(a.b); for a key write 'key' in a, or a[?'key'].hasValue()"
        raise MacroError(args[0], "invalid argument to has() macro", hint)
    return nodes.presence(args[0])


def _variable(nodes: NodeFactory, node: Expr, otherwise: str) -> str:
    """Return the name of an iteration variable. Raises MacroError with the message `otherwise` if the argument is no name."""
    if not isinstance(node, Identifier):
        raise MacroError(node, otherwise, _VARIABLE_ADVICE)
    # 1.32 accepts the name of the accumulator here. Such a macro then overwrites its own result.
    if node.name in (nodes.accumulator, _VISIBLE_NAME) and nodes.accumulator != _VISIBLE_NAME:
        raise MacroError(node, _OVERWRITES, _VARIABLE_ADVICE)
    return node.name


def _simple(nodes: NodeFactory, args: Sequence[Expr]) -> list[str]:
    return [_variable(nodes, args[0], "argument must be a simple name")]


def _pair(nodes: NodeFactory, args: Sequence[Expr]) -> list[str]:
    """Return the names of the two iteration variables: index and element, or key and value."""
    names: list[str] = []
    for node in args[:2]:
        if not isinstance(node, Identifier):
            raise MacroError(node, "argument must be a simple name", _VARIABLE_ADVICE)
        names.append(node.name)
    if names[0] == names[1]:
        raise MacroError(args[1], f"duplicate variable name: {names[0]}", _VARIABLE_ADVICE)
    for node, name in zip(args, names, strict=False):
        if name in (nodes.accumulator, _VISIBLE_NAME):
            raise MacroError(node, _OVERWRITES, _VARIABLE_ADVICE)
    return names


def _all(nodes: NodeFactory, predicate: Expr) -> Fold:
    return Fold(
        start=nodes.literal(value=True),
        goes_on=nodes.call("@not_strictly_false", nodes.result()),
        step=nodes.call("_&&_", nodes.result(), predicate),
        result=nodes.result(),
    )


def _exists(nodes: NodeFactory, predicate: Expr) -> Fold:
    return Fold(
        start=nodes.literal(value=False),
        goes_on=nodes.call("@not_strictly_false", nodes.call("!_", nodes.result())),
        step=nodes.call("_||_", nodes.result(), predicate),
        result=nodes.result(),
    )


def _exists_one(nodes: NodeFactory, predicate: Expr) -> Fold:
    one_more = nodes.call("_+_", nodes.result(), nodes.literal(value=1))
    return Fold(
        start=nodes.literal(value=0),
        goes_on=nodes.literal(value=True),
        step=nodes.call("_?_:_", predicate, one_more, nodes.result()),
        result=nodes.call("_==_", nodes.result(), nodes.literal(value=1)),
    )


def _collect(nodes: NodeFactory, start: Expr, step: Expr, predicate: Expr | None) -> Fold:
    """Return a comprehension that takes `step` for each element, or only if `predicate` is true for the element."""
    if predicate is not None:
        step = nodes.call("_?_:_", predicate, step, nodes.result())
    return Fold(start=start, goes_on=nodes.literal(value=True), step=step, result=nodes.result())


def _append(nodes: NodeFactory, predicate: Expr | None, element: Expr) -> Fold:
    step = nodes.call("_+_", nodes.result(), nodes.sequence(element))
    return _collect(nodes, nodes.sequence(), step, predicate)


def _quantifier(
    fold: Callable[[NodeFactory, Expr], Fold],
    names: Callable[[NodeFactory, Sequence[Expr]], list[str]],
) -> Expander:
    def expand(nodes: NodeFactory, target: Expr, args: tuple[Expr, ...]) -> Expr:
        return nodes.loop(target, names(nodes, args), fold(nodes, args[-1]))

    return expand


def _map(nodes: NodeFactory, target: Expr, args: tuple[Expr, ...]) -> Expr:
    name = _variable(nodes, args[0], "argument is not an identifier")
    predicate = args[1] if len(args) > 2 else None  # noqa: PLR2004 - map(name, predicate, element)
    return nodes.loop(target, [name], _append(nodes, predicate, args[-1]))


def _filter(nodes: NodeFactory, target: Expr, args: tuple[Expr, ...]) -> Expr:
    name = _variable(nodes, args[0], "argument is not an identifier")
    return nodes.loop(target, [name], _append(nodes, args[1], args[0]))


def _transform(
    step: Callable[[NodeFactory, str, Expr], Expr], empty: Callable[[NodeFactory], Expr]
) -> Expander:
    def expand(nodes: NodeFactory, target: Expr, args: tuple[Expr, ...]) -> Expr:
        names = _pair(nodes, args)
        predicate = args[2] if len(args) > 3 else None  # noqa: PLR2004 - f(name, name, predicate, element)
        taken = step(nodes, names[0], args[-1])
        return nodes.loop(target, names, _collect(nodes, empty(nodes), taken, predicate))

    return expand


def _append_one(nodes: NodeFactory, _: str, element: Expr) -> Expr:
    return nodes.call("_+_", nodes.result(), nodes.sequence(element))


def _insert_value(nodes: NodeFactory, key: str, value: Expr) -> Expr:
    return nodes.call("cel.@mapInsert", nodes.result(), nodes.name(key), value)


def _insert_entries(nodes: NodeFactory, _: str, entries: Expr) -> Expr:
    return nodes.call("cel.@mapInsert", nodes.result(), entries)


def _bind(nodes: NodeFactory, _: Expr, args: tuple[Expr, ...]) -> Expr:
    if not isinstance(args[0], Identifier):
        message = "cel.bind() variable names must be simple identifiers"
        raise MacroError(args[0], message, _VARIABLE_ADVICE)
    return nodes.bind(args[0].name, args[1], args[2])


def _if_present(nodes: NodeFactory, function: str, target: Expr, args: tuple[Expr, ...]) -> Expr:
    """Return the expression, in which the name is the value of the optional `target`."""
    if not isinstance(args[0], Identifier):
        message = f"{function}() variable name must be a simple identifier"
        raise MacroError(args[0], message, _VARIABLE_ADVICE)
    # The target occurs twice in the expansion: here and in hasValue(). Each node needs its own ID, so this is a copy.
    value = nodes.call("value", target=nodes.copy(target))
    return nodes.bind(args[0].name, value, args[1])


def _opt_map(nodes: NodeFactory, target: Expr, args: tuple[Expr, ...]) -> Expr:
    value = nodes.call("optional.of", _if_present(nodes, "optMap", target, args))
    present = nodes.call("hasValue", target=target)
    return nodes.call("_?_:_", present, value, nodes.call("optional.none"))


def _opt_flat_map(nodes: NodeFactory, target: Expr, args: tuple[Expr, ...]) -> Expr:
    value = _if_present(nodes, "optFlatMap", target, args)
    present = nodes.call("hasValue", target=target)
    return nodes.call("_?_:_", present, value, nodes.call("optional.none"))


def _sort_by(nodes: NodeFactory, target: Expr, args: tuple[Expr, ...]) -> Expr:
    if isinstance(target, (Constant, MapLiteral, StructLiteral)):
        message = (
            "sortBy can only be applied to a list, identifier, comprehension, call or select"
            " expression"
        )
        raise MacroError(target, message)
    # cel.bind gives the list a name, so that the expression is evaluated only once.
    keys = _map(nodes, nodes.name(_SORT_INPUT), args)
    ordered = nodes.call("@sortByAssociatedKeys", keys, target=nodes.name(_SORT_INPUT))
    return nodes.bind(_SORT_INPUT, target, ordered)


_OVERWRITES = "iteration variable overwrites accumulator variable"
_VARIABLE_ADVICE = "The macro needs a new name here, which stands for each value in what follows."
_EXPANDERS: dict[str, Expander] = {
    "has": _has,
    "all": _quantifier(_all, _simple),
    "exists": _quantifier(_exists, _simple),
    "exists_one": _quantifier(_exists_one, _simple),
    "map": _map,
    "filter": _filter,
    "bind": _bind,
    "optMap": _opt_map,
    "optFlatMap": _opt_flat_map,
    "sortBy": _sort_by,
    "transformList": _transform(_append_one, NodeFactory.sequence),
    "transformMap": _transform(_insert_value, NodeFactory.empty_map),
    "transformMapEntry": _transform(_insert_entries, NodeFactory.empty_map),
}
_TWO_VARIABLES: dict[tuple[str, int], Expander] = {
    ("all", 3): _quantifier(_all, _pair),
    ("exists", 3): _quantifier(_exists, _pair),
    ("exists_one", 3): _quantifier(_exists_one, _pair),
    ("existsOne", 3): _quantifier(_exists_one, _pair),
}
