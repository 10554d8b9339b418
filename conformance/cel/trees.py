# SPDX-License-Identifier: Apache-2.0
"""What the generator makes and the shrinker takes apart: expressions as trees that know their own text."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from conformance.cel.types import DYN, Type


@dataclass(frozen=True, slots=True)
class Tree:
    """Text with subtrees in it; `primary` where it can stand before a dot without parentheses.

    `many` are the places of subtrees that may be left out (elements of a list), with what joins them.
    """

    parts: tuple["str | Tree | Many", ...]
    type: Type = DYN
    primary: bool = True

    def __str__(self) -> str:
        return "".join(map(str, self.parts))

    def children(self) -> Iterator["Tree"]:
        """The subtrees right below."""
        for part in self.parts:
            if isinstance(part, Tree):
                yield part
            elif isinstance(part, Many):
                yield from part.items

    def size(self) -> int:
        """How many trees there are, this one too."""
        return 1 + sum(child.size() for child in self.children())


@dataclass(frozen=True, slots=True)
class Many:
    """A list of subtrees, joined by commas."""

    items: tuple[Tree, ...] = field(default=())

    def __str__(self) -> str:
        return ", ".join(map(str, self.items))


def leaf(text: str, a_type: Type = DYN, *, primary: bool = True) -> Tree:
    """A tree without subtrees."""
    return Tree((text,), a_type, primary)


def operand(tree: Tree) -> Tree:
    """The tree, in parentheses where it needs them to be part of something else."""
    return tree if tree.primary else Tree(("(", tree, ")"), tree.type)
