# SPDX-License-Identifier: Apache-2.0
"""How many iterations may each loop have, so that the whole evaluation stays far below the cost limit?

The API server's estimate (estimate.py) knows no size for an entry of a list attribute, so it gives two loops over one list
an infinite cost. This module tries several assumptions. The first one allows texts of any length, which costs nothing if the texts
are compared with constants. If the estimate is too high, the next ones assume the API server's limits for texts, and shorter lists. A
generated function checks the sizes when it runs. It leaves a larger device to the exact evaluation, which counts the cost.
"""

from collections.abc import Mapping
from itertools import repeat

from msgspec import field

from dra_driver.cel.checked_ast import CheckedAst
from dra_driver.cel.costs.bounds import LARGEST, Bounds, total
from dra_driver.cel.costs.call_estimates import CallEstimate, CallSite
from dra_driver.cel.costs.estimate import Coster, binds
from dra_driver.cel.costs.sizes import VALUE_LENGTH, Path, size_at
from dra_driver.cel.syntax.ast import Call, Comprehension, Expr, children, walk
from dra_driver.cel.turns import NO_LOOPS, Turns
from dra_driver.cel.types import Kind
from dra_driver.cel.versions import MAX_COST, Environment
from dra_driver.cel.work import SHORT_TEXT

# The assumptions that are tried, in this order: entries in each list of a device, characters in each text.
_SIZES = ((64, LARGEST), *((entries, VALUE_LENGTH) for entries in (64, 32, 16, 4)))
_TEXT = 2  # A value with this size or a larger one is a text: a bool has the size 1, a quantity 0.
_ELEMENTS = frozenset(
    {"@items", "@keys", "@values"}
)  # The type of an element is not known if the value is dyn.
_OF_A_NODE = 2  # A variable and a field of it cost 1 each. The estimate leaves out some of them.
# The estimate leaves out some costs (the text that string(x) makes, a comprehension over `device` itself). These costs are less than
# twenty times the estimate. So an expression below this limit cannot exceed MAX_COST, and a generated function need not
# count its cost. With loops, `_visits` adds all nodes, and the costs left out are less than ten times the estimate.
_CHEAP, _CHEAP_LOOPS = MAX_COST // 20, MAX_COST // 10


def most_turns(checked: CheckedAst, environment: Environment) -> Turns | None:
    """Return the limits with which an evaluation is cheap. Returns None if it can be expensive even with short lists."""
    root = checked.parsed.root
    nodes = list(walk(root))
    if not any(isinstance(node, Comprehension) and not binds(node) for node in nodes):
        return NO_LOOPS if _Joining(checked, environment).cost(root).high <= _CHEAP else None
    for entries, length in _SIZES:
        running = _Running(checked, environment, entries_of_lists=entries, length=length)
        cost = running.cost(root).high
        if cost + _OF_A_NODE * _visits(root, running.turns) <= _CHEAP_LOOPS:
            return Turns(running.turns, short_texts=length == VALUE_LENGTH)
    return None


class _Joining(Coster):
    """The estimate with the size that a generated function allows for join().

    In the API server's estimate the result has no size if the elements are dyn, and any size if they are texts.
    """

    def of_overload(self, expr: Call, site: CallSite, costs: list[Bounds]) -> CallEstimate:
        found = Coster.of_overload(self, expr, site, costs)
        if site.function != "join":
            return found
        size = Bounds(0, SHORT_TEXT)
        return CallEstimate(total([size, *costs]), size)


class _Running(_Joining):
    """The estimate for a device with at most `entries_of_lists` entries in each list, and `length` characters in each text."""

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
    """Return the number of node evaluations. A node inside a loop is evaluated once in each iteration."""
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
