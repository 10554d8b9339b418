# SPDX-License-Identifier: Apache-2.0
"""What an expression is after parsing: the tree that checker, cost and evaluation walk.

Operators are calls of functions with the names that cel-go gives them (`_&&_`, `_[_]`, `@in`, `_?._`, …), macros are
already expanded to comprehensions, and every node has an `id`, unique in its expression. What is known of a node
(where it stands, its type, its overloads) is kept beside the tree, by that id.
Source: cel-go common/ast/expr.go.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


class Uint(int):
    """A CEL uint, 0 to 2^64-1; never mixed up with an int of the same value by type."""

    __slots__ = ()


ConstantValue = bool | int | Uint | float | str | bytes | None


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    id: int
    value: ConstantValue


@dataclass(frozen=True, slots=True)
class Identifier:
    """A name; a leading dot stays part of it."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`; with `test_only` it is has(operand.field)."""

    id: int
    operand: "Expr"
    field: str
    test_only: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """`function(args)`, or `target.function(args)`."""

    id: int
    function: str
    args: tuple["Expr", ...]
    target: "Expr | None" = None


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """`[a, ?b]`; `optional_indices` are the places marked with a question mark."""

    id: int
    elements: tuple["Expr", ...]
    optional_indices: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class MapEntry:
    """`key: value`, or `?key: value`."""

    id: int
    key: "Expr"
    value: "Expr"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class MapLiteral:
    """`{k: v}`."""

    id: int
    entries: tuple[MapEntry, ...]


@dataclass(frozen=True, slots=True)
class StructField:
    """`field: value`, or `?field: value`."""

    id: int
    name: str
    value: "Expr"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class StructLiteral:
    """`Type{field: value}`."""

    id: int
    type_name: str
    fields: tuple[StructField, ...]


@dataclass(frozen=True, slots=True)
class Comprehension:
    """A loop over `iter_range` that folds `loop_step` into `accu_var` while `loop_condition` holds; then `result`.

    `iter_var2` is "" except in two-variable comprehensions. The accumulator is named "@result" in macros' expansions.
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


@dataclass(frozen=True, slots=True)
class Parsed:
    """A whole expression.

    `offsets` says at which character (code point, from 0) a node stands. `macros` keeps, by the id of what a macro
    was expanded to, the call as it was written; its arguments are nodes of the tree where they appear there.
    """

    expression: str
    root: Expr
    offsets: Mapping[int, int]
    macros: Mapping[int, Call] = field(default_factory=dict)


def children(node: Expr) -> tuple[Expr, ...]:
    """The nodes directly under a node, in the order in which they are written."""
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
    """All nodes, each before those under it."""
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(reversed(children(node)))
