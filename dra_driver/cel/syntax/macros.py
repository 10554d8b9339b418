# SPDX-License-Identifier: Apache-2.0
"""What does a macro call stand for?

A macro looks like a call and is written out while parsing: has(a.b) is a test for a field, the rest are loops. A
loop (`Comprehension`) folds an accumulator over a range, and the loop over an empty list is how cel.bind and optMap give
a value a name: it is the accumulator. Each expander below writes one macro out.

optMap writes its target twice, so a chain of it doubles with each link; the API server has no bound there, and
`MAX_NODES` is ours.
Source: cel-go parser/macro.go, cel/library.go, ext/bindings.go, ext/comprehensions.go, ext/lists.go.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
_HIDDEN_ACCUMULATOR = 33  # the minor version since which no expression can name the accumulator
_VISIBLE_NAME = "__result__"


class MacroError(Exception):
    """A macro whose arguments it cannot be: the API server's text, the node that is wrong, our hint."""

    def __init__(self, node: Expr, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.node = node.id
        self.message = message
        self.hint = hint


class TooManyNodesError(Exception):
    """Macros were written out to more nodes than anybody evaluates."""


@dataclass(frozen=True, slots=True)
class Fold:
    """What a loop does: where the accumulator starts, while what it goes on, a step, and what comes out."""

    start: Expr
    goes_on: Expr
    step: Expr
    result: Expr


class Nodes:
    """Makes nodes; those of a macro all stand where its call does (`place`)."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.offsets: dict[int, int] = {}
        self.place = 0
        hidden = environment.minor >= _HIDDEN_ACCUMULATOR
        self.accumulator = "@result" if hidden else _VISIBLE_NAME

    def new_id(self, offset: int) -> int:
        """An id for a node at this character."""
        number = len(self.offsets) + 1
        self.offsets[number] = offset
        return number

    def _here(self) -> int:
        if len(self.offsets) >= MAX_NODES:
            raise TooManyNodesError
        return self.new_id(self.place)

    def literal(self, value: ConstantValue) -> Expr:
        """A constant."""
        return Constant(self._here(), value)

    def name(self, name: str) -> Expr:
        """A variable."""
        return Identifier(self._here(), name)

    def result(self) -> Expr:
        """The accumulator of a loop."""
        return self.name(self.accumulator)

    def sequence(self, *elements: Expr) -> Expr:
        """A list."""
        return ListLiteral(self._here(), elements)

    def empty_map(self) -> Expr:
        """A map without entries."""
        return MapLiteral(self._here(), ())

    def call(self, function: str, *args: Expr, target: Expr | None = None) -> Expr:
        """A call of a function or, with a target, of a member function."""
        return Call(self._here(), function, args, target)

    def presence(self, selected: Select) -> Expr:
        """has()."""
        return Select(self._here(), selected.operand, selected.field, test_only=True)

    def loop(self, over: Expr, names: Sequence[str], fold: Fold) -> Expr:
        """A fold into the accumulator."""
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
        """The expression, in which the name stands for the value."""
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
        """The same tree once more, each node at its place but with an id of its own."""
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
            copies.append(self.copy(node))  # noqa: PERF401 - a comprehension would cost a frame per level
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
            copies.append(replace(field, id=self._here(), value=self.copy(field.value)))  # noqa: PERF401 - as above
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


# The target of a global macro, which has none, is its call.
Expander = Callable[[Nodes, Expr, tuple[Expr, ...]], Expr]


def expander(call: Call, environment: Environment) -> Expander | None:
    """What writes this call out, if it is a macro where it is used."""
    member = call.target is not None
    if (call.function, len(call.args), member) not in declarations(environment).macros:
        return None
    if call.function == "bind" and not _is_name(call.target, "cel"):
        return None
    return _TWO_VARIABLES.get((call.function, len(call.args))) or _EXPANDERS[call.function]


def _is_name(node: Expr | None, name: str) -> bool:
    return isinstance(node, Identifier) and node.name == name


def _has(nodes: Nodes, _: Expr, args: tuple[Expr, ...]) -> Expr:
    if not isinstance(args[0], Select):
        hint = "has() asks whether a field is there: has(a.b). For a key write 'key' in a, or a[?'key'].hasValue()."
        raise MacroError(args[0], "invalid argument to has() macro", hint)
    return nodes.presence(args[0])


def _variable(nodes: Nodes, node: Expr, otherwise: str) -> str:
    """The name that a loop gives to the elements."""
    if not isinstance(node, Identifier):
        raise MacroError(node, otherwise, _VARIABLE_ADVICE)
    if node.name in (nodes.accumulator, _VISIBLE_NAME) and nodes.accumulator != _VISIBLE_NAME:
        raise MacroError(node, _OVERWRITES, _VARIABLE_ADVICE)
    return node.name


def _simple(nodes: Nodes, args: Sequence[Expr]) -> list[str]:
    return [_variable(nodes, args[0], "argument must be a simple name")]


def _pair(nodes: Nodes, args: Sequence[Expr]) -> list[str]:
    """The two names of a loop that gives index and element, or key and value."""
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


def _all(nodes: Nodes, predicate: Expr) -> Fold:
    return Fold(
        start=nodes.literal(value=True),
        goes_on=nodes.call("@not_strictly_false", nodes.result()),
        step=nodes.call("_&&_", nodes.result(), predicate),
        result=nodes.result(),
    )


def _exists(nodes: Nodes, predicate: Expr) -> Fold:
    return Fold(
        start=nodes.literal(value=False),
        goes_on=nodes.call("@not_strictly_false", nodes.call("!_", nodes.result())),
        step=nodes.call("_||_", nodes.result(), predicate),
        result=nodes.result(),
    )


def _exists_one(nodes: Nodes, predicate: Expr) -> Fold:
    one_more = nodes.call("_+_", nodes.result(), nodes.literal(value=1))
    return Fold(
        start=nodes.literal(value=0),
        goes_on=nodes.literal(value=True),
        step=nodes.call("_?_:_", predicate, one_more, nodes.result()),
        result=nodes.call("_==_", nodes.result(), nodes.literal(value=1)),
    )


def _collect(nodes: Nodes, start: Expr, step: Expr, predicate: Expr | None) -> Fold:
    """Take one step for each element, or only for those that the predicate holds for."""
    if predicate is not None:
        step = nodes.call("_?_:_", predicate, step, nodes.result())
    return Fold(start=start, goes_on=nodes.literal(value=True), step=step, result=nodes.result())


def _append(nodes: Nodes, predicate: Expr | None, element: Expr) -> Fold:
    step = nodes.call("_+_", nodes.result(), nodes.sequence(element))
    return _collect(nodes, nodes.sequence(), step, predicate)


def _quantifier(
    fold: Callable[[Nodes, Expr], Fold], names: Callable[[Nodes, Sequence[Expr]], list[str]]
) -> Expander:
    def expand(nodes: Nodes, target: Expr, args: tuple[Expr, ...]) -> Expr:
        return nodes.loop(target, names(nodes, args), fold(nodes, args[-1]))

    return expand


def _map(nodes: Nodes, target: Expr, args: tuple[Expr, ...]) -> Expr:
    name = _variable(nodes, args[0], "argument is not an identifier")
    predicate = args[1] if len(args) > 2 else None  # noqa: PLR2004 - (name, predicate, element)
    return nodes.loop(target, [name], _append(nodes, predicate, args[-1]))


def _filter(nodes: Nodes, target: Expr, args: tuple[Expr, ...]) -> Expr:
    name = _variable(nodes, args[0], "argument is not an identifier")
    return nodes.loop(target, [name], _append(nodes, args[1], args[0]))


def _transform(
    step: Callable[[Nodes, str, Expr], Expr], empty: Callable[[Nodes], Expr]
) -> Expander:
    def expand(nodes: Nodes, target: Expr, args: tuple[Expr, ...]) -> Expr:
        names = _pair(nodes, args)
        predicate = args[2] if len(args) > 3 else None  # noqa: PLR2004 - (name, name, predicate, element)
        taken = step(nodes, names[0], args[-1])
        return nodes.loop(target, names, _collect(nodes, empty(nodes), taken, predicate))

    return expand


def _append_one(nodes: Nodes, _: str, element: Expr) -> Expr:
    return nodes.call("_+_", nodes.result(), nodes.sequence(element))


def _insert_value(nodes: Nodes, key: str, value: Expr) -> Expr:
    return nodes.call("cel.@mapInsert", nodes.result(), nodes.name(key), value)


def _insert_entries(nodes: Nodes, _: str, entries: Expr) -> Expr:
    return nodes.call("cel.@mapInsert", nodes.result(), entries)


def _bind(nodes: Nodes, _: Expr, args: tuple[Expr, ...]) -> Expr:
    if not isinstance(args[0], Identifier):
        message = "cel.bind() variable names must be simple identifiers"
        raise MacroError(args[0], message, _VARIABLE_ADVICE)
    return nodes.bind(args[0].name, args[1], args[2])


def _if_present(nodes: Nodes, function: str, target: Expr, args: tuple[Expr, ...]) -> Expr:
    """The expression with a name for the optional's value."""
    if not isinstance(args[0], Identifier):
        message = f"{function}() variable name must be a simple identifier"
        raise MacroError(args[0], message, _VARIABLE_ADVICE)
    value = nodes.call("value", target=nodes.copy(target))
    return nodes.bind(args[0].name, value, args[1])


def _opt_map(nodes: Nodes, target: Expr, args: tuple[Expr, ...]) -> Expr:
    value = nodes.call("optional.of", _if_present(nodes, "optMap", target, args))
    present = nodes.call("hasValue", target=target)
    return nodes.call("_?_:_", present, value, nodes.call("optional.none"))


def _opt_flat_map(nodes: Nodes, target: Expr, args: tuple[Expr, ...]) -> Expr:
    value = _if_present(nodes, "optFlatMap", target, args)
    present = nodes.call("hasValue", target=target)
    return nodes.call("_?_:_", present, value, nodes.call("optional.none"))


def _sort_by(nodes: Nodes, target: Expr, args: tuple[Expr, ...]) -> Expr:
    if isinstance(target, (Constant, MapLiteral, StructLiteral)):
        message = (
            "sortBy can only be applied to a list, identifier, comprehension, call or select"
            " expression"
        )
        raise MacroError(target, message)
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
    "transformList": _transform(_append_one, Nodes.sequence),
    "transformMap": _transform(_insert_value, Nodes.empty_map),
    "transformMapEntry": _transform(_insert_entries, Nodes.empty_map),
}
_TWO_VARIABLES: dict[tuple[str, int], Expander] = {
    ("all", 3): _quantifier(_all, _pair),
    ("exists", 3): _quantifier(_exists, _pair),
    ("exists_one", 3): _quantifier(_exists_one, _pair),
    ("existsOne", 3): _quantifier(_exists_one, _pair),
}
