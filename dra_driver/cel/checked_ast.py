# SPDX-License-Identifier: Apache-2.0
"""What is known of an expression that makes sense."""

from collections.abc import Mapping
from dataclasses import dataclass

from dra_driver.cel.syntax.ast import Parsed
from dra_driver.cel.types import Type


@dataclass(frozen=True, slots=True)
class Reference:
    """What a node refers to: a variable or type by its full name, or the overloads of a call that fit."""

    name: str = ""
    overload_ids: tuple[str, ...] = ()
    value: int | None = None
    """Of a name that stands for a constant."""


@dataclass(frozen=True, slots=True)
class Checked:
    """An expression that makes sense: its tree as it is to be evaluated, and by node the types and references."""

    parsed: Parsed
    types: Mapping[int, Type]
    references: Mapping[int, Reference]

    @property
    def result_type(self) -> Type:
        """What the expression as a whole is."""
        return self.types[self.parsed.root.id]
