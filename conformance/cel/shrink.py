# SPDX-License-Identifier: Apache-2.0
"""What is the smallest case that still shows a difference?

Delta debugging over the tree of the expression and over the device: of all cases that are one step smaller, the first
that still differs in the same way is taken, until none does. All steps of one round are asked in one batch.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from conformance.cel.trees import Many, Tree, leaf
from conformance.conversation import Line

# Asks both sides; says for each question whether they still differ in the way that matters.
Differs = Callable[[Sequence[Line]], list[bool]]
ROUNDS, STEPS = 60, 300
SIMPLEST = ("true", "1", '"a"', "[1]", "{'a': 1}", "dyn(1)")


def shrink(line: Line, tree: Tree, differs: Differs) -> Line:
    """The smallest question that is found."""
    for _ in range(ROUNDS):
        smaller = [*_smaller_questions(line, tree)][:STEPS]
        found = next(
            (at for at, still in enumerate(differs([q for q, _ in smaller])) if still), None
        )
        if found is None:
            return line
        line, tree = smaller[found]
    return line


def _smaller_questions(line: Line, tree: Tree) -> Iterator[tuple[Line, Tree]]:
    for part in ("attributes", "capacity"):
        entries: dict[str, Any] = line.get(part, {})
        if entries:
            yield {**line, part: {}}, tree
        for name in entries if len(entries) > 1 else ():
            yield (
                {**line, part: {key: value for key, value in entries.items() if key != name}},
                tree,
            )
    for part in ("features", "env", "allowMultipleAllocations"):
        if line.get(part):
            yield {key: value for key, value in line.items() if key != part}, tree
    whole = str(tree)
    for smaller in sorted(set(_smaller_trees(tree)), key=lambda other: len(str(other))):
        if len(str(smaller)) < len(whole):
            yield {**line, "expression": str(smaller)}, smaller


def _smaller_trees(tree: Tree) -> Iterator[Tree]:
    """The tree with one part taken out or made simple."""
    yield from tree.children()
    for simple in SIMPLEST:
        if len(simple) < len(str(tree)):
            yield leaf(simple)
    for place, part in enumerate(tree.parts):
        for smaller in _smaller_parts(part):
            yield dataclasses.replace(
                tree, parts=(*tree.parts[:place], smaller, *tree.parts[place + 1 :])
            )


def _smaller_parts(part: "str | Tree | Many") -> Iterator["Tree | Many"]:
    if isinstance(part, Tree):
        yield from _smaller_trees(part)
    elif isinstance(part, Many):
        for place, item in enumerate(part.items):
            others = (part.items[:place], part.items[place + 1 :])
            yield Many((*others[0], *others[1]))
            for smaller in _smaller_trees(item):
                yield Many((*others[0], smaller, *others[1]))
