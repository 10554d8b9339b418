# SPDX-License-Identifier: Apache-2.0
"""Which nodes can the tree of a parsed expression have?

An operator is a call of a function with cel-go's name for it (`_&&_`, `_[_]`, `@in`, `_?._`, …). The parser has already
expanded macros to comprehensions. Each node has an `id`, unique in its expression. The tree itself has no positions, types
or overloads: other objects map the IDs to them.
Source: cel-go common/ast/expr.go.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct, field


class Uint(int):
    """A CEL uint, 0 to 2^64-1. A class of its own, so that code can tell it from an int."""

    __slots__ = ()


ConstantValue = bool | int | Uint | float | str | bytes | None


class Constant(Struct, frozen=True):
    """A literal of a simple type."""

    id: int
    value: ConstantValue


class Identifier(Struct, frozen=True):
    """A name. A leading dot is part of it."""

    id: int
    name: str


class Select(Struct, frozen=True):
    """`operand.field`, or has(operand.field) if `test_only`."""

    id: int
    operand: "Expr"
    field: str
    test_only: bool = False


class Call(Struct, frozen=True):
    """A call `function(args)` or `target.function(args)`. An operator is a call, too."""

    id: int
    function: str
    args: tuple["Expr", ...]
    target: "Expr | None" = None


class ListLiteral(Struct, frozen=True):
    """`[a, ?b]`. `optional_indices` are the indices of the elements with a question mark."""

    id: int
    elements: tuple["Expr", ...]
    optional_indices: frozenset[int] = frozenset()


class MapEntry(Struct, frozen=True):
    """An entry of a map literal: `key: value`, or `?key: value` if `optional`."""

    id: int
    key: "Expr"
    value: "Expr"
    optional: bool = False


class MapLiteral(Struct, frozen=True):
    """A map literal `{k: v}`."""

    id: int
    entries: tuple[MapEntry, ...]


class StructField(Struct, frozen=True):
    """A field of a message literal: `field: value`, or `?field: value` if `optional`."""

    id: int
    name: str
    value: "Expr"
    optional: bool = False


class StructLiteral(Struct, frozen=True):
    """A message literal `Type{field: value}`."""

    id: int
    type_name: str
    fields: tuple[StructField, ...]


class Comprehension(Struct, frozen=True):
    """A loop over `iter_range`, to which the parser expands macros.

    `accu_var` starts as `accu_init`. Each iteration sets it to `loop_step`, as long as `loop_condition` is true. The value
    of the comprehension is `result`. `iter_var2` is "" unless the macro has two variables. Macros name the accumulator
    "@result".
    """

    id: int
    iter_range: "Expr"
    iter_var: str
    iter_var2: str
    accu_var: str
    accu_init: "Expr"
    loop_condition: "Expr"
    loop_step: "Expr"
    result: "Expr"


Expr = (
    Constant | Identifier | Select | Call | ListLiteral | MapLiteral | StructLiteral | Comprehension
)


class ParsedAst(Struct, frozen=True):
    """A parsed expression.

    `offsets` has the position of each node, as an index of code points. `macros` has the original call of each expanded
    macro, by the ID of the expansion. An argument of such a call is a node of the tree if the expansion contains it.
    """

    expression: str
    root: Expr
    offsets: Mapping[int, int]
    macros: Mapping[int, Call] = field(default_factory=dict)


def children(node: Expr) -> tuple[Expr, ...]:
    """Return the direct children of a node, in the order of the text."""
    match node:
        case Select():
            under: tuple[Expr, ...] = (node.operand,)
        case Call():
            under = node.args if node.target is None else (node.target, *node.args)
        case ListLiteral():
            under = node.elements
        case MapLiteral():
            under = tuple([part for entry in node.entries for part in (entry.key, entry.value)])
        case StructLiteral():
            under = tuple([field.value for field in node.fields])
        case Comprehension():
            fold = (node.accu_init, node.loop_condition, node.loop_step, node.result)
            under = (node.iter_range, *fold)
        case _:
            under = ()
    return under


def walk(root: Expr) -> Iterator[Expr]:
    """Return all nodes, parents before children."""
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(reversed(children(node)))
