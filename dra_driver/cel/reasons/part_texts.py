# SPDX-License-Identifier: Apache-2.0
"""What of an expression is the same for many devices?"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from dra_driver.cel.syntax.ast import Expr, ParsedAst
from dra_driver.cel.syntax.unparse import unparse

T = TypeVar("T")


class PartTexts:
    """The text of each part of one expression, and what else is the same for many devices. Each is made once and kept."""

    def __init__(self, parsed: ParsedAst) -> None:
        self.parsed = parsed
        self._known: dict[int, str] = {}
        self._kept: dict[tuple[object, ...], Any] = {}

    def of(self, part: Expr) -> str:
        """Return the text of `part`, a node of the parsed expression."""
        known = self._known.get(part.id)
        if known is None:
            known = self._known[part.id] = unparse(self.parsed, part)
        return known

    def kept(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return what `make` has returned for this key the first time."""
        if key not in self._kept:
            self._kept[key] = make()
        return cast(T, self._kept[key])
