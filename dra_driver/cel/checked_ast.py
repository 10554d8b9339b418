# SPDX-License-Identifier: Apache-2.0
"""Result of type checking: the type of each node, and the overloads of each call (cel-go: common/ast, ReferenceInfo)."""

from collections.abc import Mapping

from msgspec import Struct

from dra_driver.cel.syntax.ast import ParsedAst
from dra_driver.cel.types import Type


class Reference(Struct, frozen=True):
    """What a node refers to: a variable or a type by its full name, or the overloads that a call may run."""

    name: str = ""
    overload_ids: tuple[str, ...] = ()
    value: int | None = None
    """The value, if the name is that of an enum constant."""


class CheckedAst(Struct, frozen=True):
    """An expression without type errors: the tree to evaluate, with types and references by node ID."""

    parsed: ParsedAst
    types: Mapping[int, Type]
    references: Mapping[int, Reference]

    @property
    def result_type(self) -> Type:
        """The type of the whole expression."""
        return self.types[self.parsed.root.id]

    def only_overload(self, call: int) -> str:
        """The ID of the overload of a call, if the static types leave only one; empty if the values decide."""
        ids = self.references[call].overload_ids
        return ids[0] if len(ids) == 1 else ""
