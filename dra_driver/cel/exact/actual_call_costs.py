# SPDX-License-Identifier: Apache-2.0
"""How much does a call cost at run time?

The cost depends on the sizes of the arguments. Most rules charge 0.1 for each character; some charge 0.25 for each
character of a pattern, or 1 for each element. `==` between values of Kubernetes' libraries costs 1. A call without a rule
costs 1.
Source: cel-go interpreter/runtimecost.go, ext/{lists,sets}.go, k8s.io/apiserver pkg/cel/library/cost.go.
"""

import math
from collections.abc import Callable

from dra_driver.cel import golang, values, work
from dra_driver.cel.exact.interpretable import InterpretableCall
from dra_driver.cel.library.formats import Format
from dra_driver.cel.values import Opaque, Optional, WithSize

Arguments = list[object]
Rule = Callable[[Arguments, object], int]

_TRAVERSAL = 0.1  # The cost of one character or byte.
_REGEX = 0.25  # The cost of one character of a pattern.
_LIST = 10  # The cost of a new list.
_COMPARISONS = 2.0  # The cost of comparing two elements.


def price_before(function: str, overload: str) -> Rule | None:
    """Return the least cost of a call that may take minutes or gigabytes. Returns None for other functions.

    cel-go charges after the call. The exact program does not begin such a call if it would exceed the limit.
    """
    if overload in _EACH_WITH_EACH:
        return _BY_OVERLOAD_FIRST[overload]
    return _BEFORE.get(function)


def call_cost(step: InterpretableCall, arguments: Arguments, result: object) -> int:
    """Return the actual cost of a call with these arguments and this result."""
    rule = _BY_OVERLOAD_FIRST.get(step.overload) or _BY_FUNCTION.get(step.function)
    if rule is None and step.function == "_==_" and _is_opaque(arguments[0]):
        return 1
    rule = rule or _BY_OVERLOAD.get(step.overload)
    return rule(arguments, result) if rule is not None else 1


def _is_opaque(value: object) -> bool:
    return isinstance(value, Opaque)


def _size(value: object) -> int:
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    return value.size() if isinstance(value, WithSize) else 1


def _size_inside(value: object) -> int:
    while isinstance(value, Optional) and value.present:
        value = value.value
    return _size(value)


def _per_character(count: int, factor: float = _TRAVERSAL) -> int:
    return math.ceil(count * factor)


def _of_argument(index: int, factor: float = _TRAVERSAL) -> Rule:
    return lambda arguments, _result: _per_character(_size(arguments[index]), factor)


def _of_inside(index: int) -> Rule:
    return lambda arguments, _result: _per_character(_size_inside(arguments[index]))


def _all_elements(arguments: Arguments, _result: object) -> int:
    return _size_inside(arguments[1])


def _constant(cost: int) -> Rule:
    return lambda _arguments, _result: cost


def _matching(arguments: Arguments, _result: object) -> int:
    text = math.ceil((1.0 + _size_inside(arguments[0])) * _TRAVERSAL)
    return text * _per_character(_size_inside(arguments[1]), _REGEX)


def _searching(arguments: Arguments, _result: object) -> int:
    return _per_character(_size_inside(arguments[0])) * _per_character(_size_inside(arguments[1]))


def _comparing(arguments: Arguments, _result: object) -> int:
    return _per_character(min(_size_inside(arguments[0]), _size_inside(arguments[1])))


def _joining_two(arguments: Arguments, _result: object) -> int:
    return _per_character(_size_inside(arguments[0]) + _size_inside(arguments[1]))


def _traversing(arguments: Arguments, _result: object) -> int:
    return _traversal(arguments[0], lambda text: len(golang.utf8(text)))


def _traversing_at_least(arguments: Arguments, _result: object) -> int:
    """Return at most the cost of `_traversing`: the number of characters is at most the number of bytes, and it is known."""
    return _traversal(arguments[0], len)


def _traversal(value: object, size: Callable[[str], int]) -> int:
    if isinstance(value, str):
        return int(size(value) * _TRAVERSAL)
    if isinstance(value, bytes):
        return int(len(value) * _TRAVERSAL)
    if isinstance(value, list):
        work.current().elements(len(value))
        return sum(_traversal(item, size) for item in value)
    if isinstance(value, dict):
        work.current().elements(len(value))
        return sum(
            _traversal(values.key_value(k), size) + _traversal(v, size) for k, v in value.items()
        )
    return 1


def _joined(arguments: Arguments, _result: object) -> int:
    """Return the cost of join(), or 0 if join() fails."""
    parts, *separators = arguments
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        return 0
    between = sum(map(_size, separators)) * max(len(parts) - 1, 0)
    return _per_character(sum(map(len, parts)) + between, 2 * _TRAVERSAL)


def _containing_ip(*, parsed: bool) -> Rule:
    def rule(arguments: Arguments, _result: object) -> int:
        cost = _per_character(2 * _size(arguments[0]))
        return cost + (_per_character(_size(arguments[1])) if parsed else 0)

    return rule


def _containing_cidr(*, parsed: bool) -> Rule:
    contains = _containing_ip(parsed=parsed)
    return lambda arguments, result: (
        contains(arguments, result) + _per_character(_size(arguments[0])) + 1
    )


def _validating(arguments: Arguments, _result: object) -> int:
    named, text = arguments
    if not isinstance(named, Format):
        return 1
    return math.ceil((1.0 + _size(text)) * _TRAVERSAL) * _per_character(named.regex_size, _REGEX)


def _selecting(arguments: Arguments, _result: object) -> int:
    """Return the cost of parsing a selector: at most one requirement (a struct and a list) for every two characters."""
    length = _size(arguments[1])
    return 10 + _per_character(length) + math.ceil(math.ceil(length * 0.5) * 50.0)


def _new_list(factor: float, size: int) -> int:
    return int(float(size) * (factor if factor >= 0 else 1.0)) + 1 + _LIST


def _of_result(_arguments: Arguments, result: object) -> int:
    return _new_list(1.0, _size(result))


def _flattening(arguments: Arguments, _result: object) -> int:
    depth = arguments[1] if len(arguments) > 1 else 1
    return _new_list(float(depth) if isinstance(depth, int) else 1.0, _size(arguments[0]))


def _ordering(index: int) -> Rule:
    def rule(arguments: Arguments, _result: object) -> int:
        elements = arguments[index]
        if not isinstance(elements, list) or not elements:
            return _new_list(_COMPARISONS, 0)
        texts = isinstance(elements[0], str | bytes)
        factor = _COMPARISONS + _TRAVERSAL if texts else _COMPARISONS
        return _new_list(factor, len(elements) ** 2)

    return rule


def _sets(factor: int) -> Rule:
    return lambda arguments, _result: 1 + _size(arguments[0]) * _size(arguments[1]) * factor


_COMPARABLE = (
    "int",
    "uint",
    "double",
    "bool",
    values.DURATION,
    values.TIMESTAMP,
    "string",
    "bytes",
)

_BY_OVERLOAD_FIRST: dict[str, Rule] = {
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
    "list_slice": _of_result,
    "lists_range": _of_result,
    "list_reverse": _of_result,
    "list_flatten": _flattening,
    "list_flatten_int": _flattening,
    "list_distinct": _ordering(0),
    **{f"list_{kind}_sort": _ordering(0) for kind in _COMPARABLE},
    **{f"list_{kind}_sortByAssociatedKeys": _ordering(1) for kind in _COMPARABLE},
    "cidr_ip": _constant(1),
    "cidr_contains_ip_string": _containing_ip(parsed=True),
    "cidr_contains_cidr_string": _containing_cidr(parsed=True),
}

_EACH_WITH_EACH = frozenset(
    {
        "list_distinct",
        *(f"list_{kind}_sort" for kind in _COMPARABLE),
        *(f"list_{kind}_sortByAssociatedKeys" for kind in _COMPARABLE),
        "list_sets_contains_list",
        "list_sets_equivalent_list",
        "list_sets_intersects_list",
    }
)

_BY_FUNCTION: dict[str, Rule] = (
    dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _traversing
    )
    | dict.fromkeys(
        ("url", "lowerAscii", "upperAscii", "substring", "trim", "cidr", "isIP", "isCIDR", "ip"),
        _of_argument(0),
    )
    | dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver"), _of_argument(0))
    | dict.fromkeys(("replace", "split", "ip.isCanonical"), _of_argument(0, 2 * _TRAVERSAL))
    | dict.fromkeys(("find", "findAll"), _matching)
    | {
        "join": lambda _arguments, result: _per_character(_size(result), 2 * _TRAVERSAL),
        "containsIP": _containing_ip(parsed=False),
        "containsCIDR": _containing_cidr(parsed=False),
        "validate": _validating,
        "check": _constant(
            350_000
        ),  # So that one expression can make at most two authorization checks.
        "fieldSelector": _selecting,
        "labelSelector": _selecting,
    }
)

_BY_OVERLOAD: dict[str, Rule] = (
    {
        "starts_with_string": _of_inside(1),
        "ends_with_string": _of_inside(1),
        "in_list": _all_elements,
        "matches": _matching,
        "matches_string": _matching,
        "contains_string": _searching,
        "add_string": _joining_two,
        "add_bytes": _joining_two,
        "equals": _comparing,
        "not_equals": _comparing,
    }
    | dict.fromkeys(
        ("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"),
        _of_inside(0),
    )
    | {
        f"{relation}_{kind}": _comparing
        for relation in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    }
)

_BEFORE: dict[str, Rule] = (
    dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"),
        _traversing_at_least,
    )
    | {name: _BY_FUNCTION[name] for name in ("replace", "split", "find", "findAll")}
    | {"format": _of_inside(0), "join": _joined}
)
