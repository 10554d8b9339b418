# SPDX-License-Identifier: Apache-2.0
"""How often may each loop turn, so that the whole evaluation surely stays far below the cost limit?

The API server's estimate (estimate.py) knows no size for an entry of a list attribute, so two loops over one list are
infinitely expensive to it. This module estimates twice. The first estimate allows texts of any length, which costs nothing where they
are compared with constants. If it is too high, the second one assumes the API server's limits for texts, and shorter lists. A
generated function checks the sizes when it runs. It leaves a larger device to the exact evaluation, which counts the cost.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import repeat

from dra_driver.cel.checked_ast import CheckedAst
from dra_driver.cel.costs.bounds import LARGEST, Bounds
from dra_driver.cel.costs.estimate import Coster, binds
from dra_driver.cel.costs.sizes import VALUE_LENGTH, Path, size_at
from dra_driver.cel.syntax.ast import Comprehension, Expr, children, walk
from dra_driver.cel.turns import NO_LOOPS, Turns
from dra_driver.cel.types import Kind
from dra_driver.cel.versions import MAX_COST, Environment

# How many entries the lists of a device may have, and how long its texts may be, in the order in which it is tried.
_SIZES = ((64, LARGEST), *((entries, VALUE_LENGTH) for entries in (64, 32, 16, 4)))
_TEXT = 2  # a bool has the size 1, a quantity 0
_ELEMENTS = frozenset({"@items", "@keys", "@values"})  # of a value of type dyn nobody knows which
_OF_A_NODE = 2  # a name that is looked up and a field of it cost one each, and the estimate leaves some of them out
# The estimate forgets things (what string(x) writes, that `device` itself can be gone over), but not twenty times as much
# as it finds. Up to here the cost need not be counted, and generated functions do not count it. Of loops all nodes are reckoned
# with, and what is forgotten is less than ten times as much.
_CHEAP, _CHEAP_LOOPS = MAX_COST // 20, MAX_COST // 10


def most_turns(checked: CheckedAst, environment: Environment, estimate: int) -> Turns | None:
    """The turns that are cheap; None where even short lists could make an evaluation too expensive.

    `estimate` is the API server's, which decides where there is no loop.
    """
    root = checked.parsed.root
    if not any(isinstance(node, Comprehension) and not binds(node) for node in walk(root)):
        return NO_LOOPS if estimate <= _CHEAP else None
    for entries, length in _SIZES:
        running = _Running(checked, environment, entries_of_lists=entries, length=length)
        cost = running.cost(root).high
        if cost + _OF_A_NODE * _visits(root, running.turns) <= _CHEAP_LOOPS:
            return Turns(running.turns, short_texts=length == VALUE_LENGTH)
    return None


@dataclass(slots=True)
class _Running(Coster):
    """The estimate for a device whose lists have no more than `entries_of_lists`, and texts no more than the `length`."""

    entries_of_lists: int = 0
    length: int = 0
    turns: dict[int, int] = field(default_factory=dict)

    def _declared(self, expr: Expr) -> Bounds | None:
        path = self._path(expr)
        found = size_at(path)
        if self._type(expr).kind is Kind.MAP or path is None:
            return found
        if found is None:
            *outer, last = path.names
            if not outer or last not in _ELEMENTS or size_at(Path(*outer)) is None:
                return None
        elif found.high < _TEXT:
            return found
        return Bounds(0, self.length)

    def turns_of(self, expr: Comprehension) -> Bounds:
        turns = Coster.turns_of(self, expr)
        over = expr.iter_range
        if self._type(over).kind is not Kind.MAP and size_at(self._path(over)) is not None:
            turns = Bounds(0, min(turns.high, self.entries_of_lists))
        self.turns[expr.id] = turns.high
        return turns


def _visits(root: Expr, turns: Mapping[int, int]) -> int:
    """How many nodes are evaluated, each as often as the loops around it turn."""
    visits = 0
    todo = [(root, 1)]
    while todo:
        node, times = todo.pop()
        visits += times
        if isinstance(node, Comprehension):
            inside = times * turns.get(node.id, 0)
            todo += [(node.loop_condition, inside), (node.loop_step, inside)]
            todo += zip((node.iter_range, node.accu_init, node.result), repeat(times))
        else:
            todo += zip(children(node), repeat(times))
    return visits
