# SPDX-License-Identifier: Apache-2.0
"""How much does a call of a cel-go function cost at most?

A rule returns the cost of the call without its arguments, and the size of the result if it is known. The rules of the list
and set extensions come first. The rules of Kubernetes come second; they are in kubernetes_estimates.py. The rules of the
standard library come last. A call without a rule costs 1.
Sources: cel-go checker/cost.go, ext/lists.go, ext/sets.go.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from dra_driver.cel.costs.bounds import LARGEST, ONE, UNKNOWN, Bounds, fixed, wrapped
from dra_driver.cel.costs.sizes import Path, size_at
from dra_driver.cel.syntax.ast import Constant, Expr
from dra_driver.cel.types import Type

TRAVERSAL = 0.1  # The cost of one character or byte.
NEW_LIST = 10
_REGEX = 0.25  # The cost of one character of a pattern.


class Operand(Struct):
    """The target or an argument of a call (cel-go: AstNode). `path` and `size` are None if they are unknown."""

    expr: Expr | None
    type: Type
    path: Path | None
    size: Bounds | None

    @property
    def known_size(self) -> Bounds:
        """The size: from the expression, else from the declared limits, else UNKNOWN."""
        return self.size or size_at(self.path) or UNKNOWN


class CallSite(Struct):
    """A call, with one of its overloads and its operands."""

    function: str
    overload: str
    target: Operand | None
    args: list[Operand]

    @property
    def first(self) -> Operand:
        """The target, or the first argument if there is no target."""
        return self.target or self.args[0]


class CallEstimate(Struct, frozen=True):
    """The cost of a call and the size of its result (cel-go: CallEstimate). `size` is None if it is unknown."""

    cost: Bounds
    size: Bounds | None = None


Rule = Callable[[CallSite], CallEstimate | None]


# --- cel-go's extensions ----------------------------------------------------------------------------------------------


def extension(site: CallSite) -> CallEstimate | None:
    """Estimate a call by the rules of the list and set extensions. Returns None if no rule applies."""
    name = site.overload
    if name in _SETS:
        both = site.args[0].known_size * site.args[1].known_size
        return CallEstimate(both.scaled(_SETS[name]) + ONE)
    if name.startswith("list_") and name.endswith(("_sort", "_sortByAssociatedKeys")):
        factor = 2.0 + (TRAVERSAL if name.split("_")[1] in {"string", "bytes"} else 0.0)
        keys = site.args[0] if site.args else site.first
        return _new_list(keys.known_size * keys.known_size, factor)
    rule = _LISTS.get(name)
    return rule(site) if rule is not None else None


def _new_list(size: Bounds, factor: float = 1.0) -> CallEstimate:
    return CallEstimate(size.scaled(factor) + ONE + fixed(NEW_LIST), size)


def _slice(site: CallSite) -> CallEstimate:
    begin = _literal(site.args[0], otherwise=0)
    end = _literal(site.args[1], otherwise=site.first.known_size.high)
    return _new_list(fixed(wrapped(end - begin)))


def _flatten(site: CallSite) -> CallEstimate:
    depth = _literal(site.args[0], otherwise=LARGEST) if site.args else 1
    return _new_list(site.first.known_size, float(depth))


def _distinct(site: CallSite) -> CallEstimate:
    size = site.first.known_size
    return _new_list(size * size, 2.0)


def _literal(operand: Operand, *, otherwise: int) -> int:
    """Return the value of an int literal, at least 0; `otherwise` if the operand is no int literal."""
    expr = operand.expr
    if isinstance(expr, Constant) and type(expr.value) is int:
        return max(expr.value, 0)
    return otherwise


_SETS = {
    "list_sets_contains_list": 1.0,
    "list_sets_intersects_list": 1.0,
    "list_sets_equivalent_list": 2.0,
}
_LISTS: dict[str, Rule] = {
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "list_reverse": lambda site: _new_list(site.first.known_size),
    "list_distinct": _distinct,
    "lists_range": lambda site: _new_list(fixed(_literal(site.args[0], otherwise=LARGEST))),
}


# --- the standard library ---------------------------------------------------------------------------------------------


def standard(site: CallSite, size: Callable[[Operand], Bounds]) -> CallEstimate:
    """Estimate a call by the rules of CEL's standard library. `size` returns the size of an operand. Without a rule the cost is ONE."""
    rule = _STANDARD.get(site.overload)
    return CallEstimate(ONE) if rule is None else rule(site, size)


def search(text: Bounds, pattern: Bounds) -> Bounds:
    """Return the cost of searching for a pattern. With + ONE a search in an empty text also has a cost."""
    return (text + ONE).scaled(TRAVERSAL) * pattern.scaled(_REGEX)


_Sizes = Callable[[Operand], Bounds]


def _format(site: CallSite, size: _Sizes) -> CallEstimate:
    return CallEstimate(size(site.first).scaled(TRAVERSAL))


def _to_bytes(site: CallSite, size: _Sizes) -> CallEstimate:
    text = size(site.args[0])
    return CallEstimate(text.scaled(TRAVERSAL), Bounds(text.low, wrapped(4 * text.high)))


def _to_text(site: CallSite, size: _Sizes) -> CallEstimate:
    content = size(site.args[0])
    return CallEstimate(content.scaled(TRAVERSAL), Bounds(content.low // 4, content.high))


def _quote(site: CallSite, size: _Sizes) -> CallEstimate:
    text = size(site.args[0])
    longest = wrapped(2 * text.high + 2)
    return CallEstimate(text.scaled(TRAVERSAL), Bounds(wrapped(text.low + 2), longest))


def _at_an_end(site: CallSite, size: _Sizes) -> CallEstimate:
    return CallEstimate(size(site.args[0]).scaled(TRAVERSAL))


def _in_list(site: CallSite, size: _Sizes) -> CallEstimate:
    return CallEstimate(size(site.args[1]).scaled(1))


def _matches(site: CallSite, size: _Sizes) -> CallEstimate:
    return CallEstimate(search(size(site.first), size(site.args[-1])))


def _contains(site: CallSite, size: _Sizes) -> CallEstimate:
    text, part = size(site.first), size(site.args[0])
    return CallEstimate(text.scaled(TRAVERSAL) * part.scaled(TRAVERSAL))


def _concatenate(site: CallSite, size: _Sizes) -> CallEstimate:
    both = size(site.args[0]) + size(site.args[1])
    if site.overload == "add_list":
        return CallEstimate(ONE, both)
    return CallEstimate(both.scaled(TRAVERSAL), both)


def _compare(site: CallSite, size: _Sizes) -> CallEstimate:
    shorter = min(size(operand).high for operand in site.args)
    return CallEstimate(Bounds(min(1, shorter), shorter).scaled(TRAVERSAL))


_ORDERS = ("less", "greater", "less_equals", "greater_equals")
_STANDARD: Mapping[str, Callable[[CallSite, _Sizes], CallEstimate]] = {
    "string_format": _format,
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_text,
    "strings_quote": _quote,
    "starts_with_string": _at_an_end,
    "ends_with_string": _at_an_end,
    "in_list": _in_list,
    "matches": _matches,
    "matches_string": _matches,
    "contains_string": _contains,
    "add_string": _concatenate,
    "add_bytes": _concatenate,
    "add_list": _concatenate,
    "equals": _compare,
    "not_equals": _compare,
} | {f"{order}_{kind}": _compare for order in _ORDERS for kind in ("string", "bytes")}
