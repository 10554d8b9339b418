# SPDX-License-Identifier: Apache-2.0
"""Functions that treat lists as sets: sets.contains, sets.equivalent, sets.intersects.

Source: cel-go ext/sets.go.
"""

from dra_driver.cel import values
from dra_driver.cel.overloads import Overload


def _contains(whole: list[object], part: list[object]) -> bool:
    return all(values.contains(whole, element) for element in part)


def _equivalent(left: list[object], right: list[object]) -> bool:
    return _contains(left, right) and _contains(right, left)


def _intersects(left: list[object], right: list[object]) -> bool:
    return any(values.contains(right, element) for element in left)


OVERLOADS = (
    Overload("sets.contains", "list_sets_contains_list", "list list", _contains),
    Overload("sets.equivalent", "list_sets_equivalent_list", "list list", _equivalent),
    Overload("sets.intersects", "list_sets_intersects_list", "list list", _intersects),
)
