# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' list functions: isSorted, sum, min, max, indexOf, lastIndexOf and includes.

Source: k8s.io/apiserver pkg/cel/library/lists.go.
"""

from collections.abc import Callable
from itertools import pairwise

from dra_driver.cel import values
from dra_driver.cel.failures import Aborted, EvaluationError, no_such_overload
from dra_driver.cel.library import operators
from dra_driver.cel.overloads import Overload
from dra_driver.cel.syntax.ast import Uint
from dra_driver.cel.values import Duration

_COMPARABLE = {
    "int": values.INT,
    "uint": values.UINT,
    "double": values.DOUBLE,
    "bool": values.BOOL,
    "duration": values.DURATION,
    "timestamp": values.TIMESTAMP,
    "string": values.STRING,
    "bytes": values.BYTES,
}
_ZEROS: dict[str, object] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}


def _order(left: object, right: object) -> int:
    """Compare two elements. Upstream ignores an error of Compare and treats such elements as equal."""
    try:
        return values.compare(left, right)
    except Aborted:
        raise
    except EvaluationError:
        return 0


def _each_comparable(elements: list[object]) -> None:
    for element in elements:
        if values.kind(element) not in _COMPARABLE.values():
            raise no_such_overload()


def _is_sorted(elements: list[object]) -> bool:
    for left, right in pairwise(elements):
        _each_comparable([left, right])
        if _order(left, right) > 0:
            return False
    return True


def _sum_from(zero: object) -> Callable[[list[object]], object]:
    def total(elements: list[object]) -> object:
        result = zero
        for element in elements:
            result = operators.add(result, element)
        return result

    return total


def _best(name: str, prefer: int) -> Callable[[list[object]], object]:
    def choose(elements: list[object]) -> object:
        if not elements:
            raise EvaluationError(f"{name} called on empty list")
        _each_comparable(elements)
        best = elements[0]
        for element in elements[1:]:
            best = element if _order(best, element) == prefer else best
        return best

    return choose


def _index_of(elements: list[object], wanted: object) -> int:
    for index, element in enumerate(elements):
        if values.is_true(element, wanted):
            return index
    return -1


def _last_index_of(elements: list[object], wanted: object) -> int:
    index = _index_of(elements[::-1], wanted)
    return len(elements) - 1 - index if index >= 0 else -1


def _includes(target: object, wanted: object) -> bool:
    if isinstance(target, list):
        return any(values.is_true(element, wanted) for element in target)
    return values.is_true(target, wanted)


OVERLOADS = (
    *(
        Overload("isSorted", f"list_{name}_is_sorted_bool", f"list({kind})", _is_sorted)
        for name, kind in _COMPARABLE.items()
    ),
    *(
        Overload("sum", f"list_{name}_sum_{name}", f"list({_COMPARABLE[name]})", _sum_from(zero))
        for name, zero in _ZEROS.items()
    ),
    *(
        Overload(
            function, f"list_{name}_{function}_{name}", f"list({kind})", _best(function, prefer)
        )
        for function, prefer in (("max", -1), ("min", 1))
        for name, kind in _COMPARABLE.items()
    ),
    Overload("indexOf", "list_a_index_of_int", "list dyn", _index_of),
    Overload("lastIndexOf", "list_a_last_index_of_int", "list dyn", _last_index_of),
    Overload("includes", "list_includes_dyn_dyn", "dyn dyn", _includes),
)
