# SPDX-License-Identifier: Apache-2.0
"""The functions of optional values: optional.of, value, hasValue, first, last, unwrap.

`or` and `orValue` are not here. These two evaluate their argument only if they need it, so the planner makes steps for them.
Source: cel-go cel/library.go.
"""

from dra_driver.cel import values
from dra_driver.cel.device import DomainMap
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.overloads import Overload
from dra_driver.cel.values import NONE, Duration, Opaque, Optional, Timestamp, TypeValue

_YEAR_ONE = -62135596800


def _is_zero(value: object) -> bool:
    if isinstance(value, Opaque | TypeValue | Optional | DomainMap):
        return False
    if isinstance(value, Timestamp):
        return (value.seconds, value.nanos) == (_YEAR_ONE, 0)
    if isinstance(value, Duration):
        return value.nanos == 0
    return not value


def _of_non_zero(value: object) -> Optional:
    return NONE if _is_zero(value) else Optional(value)


def value_of(optional: Optional) -> object:
    """Return the value. Raises EvaluationError for optional.none()."""
    if not optional.present:
        raise EvaluationError("optional.none() dereference")
    return optional.value


def _first(elements: list[object]) -> Optional:
    return Optional(elements[0]) if elements else NONE


def _last(elements: list[object]) -> Optional:
    return Optional(elements[-1]) if elements else NONE


def _unwrap(elements: list[object]) -> list[object]:
    present: list[object] = []
    for element in elements:
        if not isinstance(element, Optional):
            raise EvaluationError(f"value {values.text(element)} is not optional")
        if element.present:
            present.append(element.value)
    return present


OVERLOADS = (
    Overload("optional.of", "optional_of", "dyn", Optional),
    Overload("optional.ofNonZeroValue", "optional_ofNonZeroValue", "dyn", _of_non_zero),
    Overload("optional.none", "optional_none", "", lambda: NONE),
    Overload("value", "optional_value", "optional_type", value_of),
    Overload("hasValue", "optional_hasValue", "optional_type", lambda optional: optional.present),
    Overload("first", "list_first", "list", _first),
    Overload("last", "list_last", "list", _last),
    Overload("optional.unwrap", "optional_unwrap", "list(optional_type)", _unwrap),
    Overload("unwrapOpt", "optional_unwrapOpt", "list(optional_type)", _unwrap),
)
