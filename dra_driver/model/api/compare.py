# SPDX-License-Identifier: Apache-2.0
"""When do two API objects have the same meaning?

The API server does not store exactly what it gets: "81920Mi" becomes "80Gi", and an empty list is left out. So objects are compared
by their meaning. This module names no field. It compares all fields that a class of `dra_driver.model.api` declares, so it also
compares a field that is added later.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from dra_driver.model.api.meta import QUANTITY, ApiValue
from dra_driver.model.quantity import Quantity


class _Field(NamedTuple):
    name: str
    wire_name: str
    is_quantity: bool


def same(some: ApiValue, other: ApiValue) -> bool:
    """Whether both mean the same."""
    # The first comparison is fast, and usually True: most slices are as the API server returned them after the last write.
    return some == other or canonical(some) == canonical(other)


def canonical(value: ApiValue) -> dict[str, Any]:
    """The object as JSON values, with quantities as numbers ("1Gi" is 1073741824) and without empty fields."""
    found = {
        field.wire_name: _plain(getattr(value, field.name), is_quantity=field.is_quantity)
        for field in _fields(type(value))
    }
    return {name: each for name, each in found.items() if each not in (None, [], {})}


def differences(some: ApiValue, other: ApiValue) -> tuple[str, ...]:
    """The fields with another meaning, by their names in JSON; for a map with the key ("attributes.uuid")."""
    return tuple(_differences(canonical(some), canonical(other)))


def _differences(some: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    # In the order in which the class declares the fields; map keys that only the second object has come last.
    found: list[str] = []
    for name in dict.fromkeys((*some, *other)):
        mine, theirs = some.get(name), other.get(name)
        if isinstance(mine or theirs, dict) and isinstance(theirs or mine, dict):
            found += [
                f"{name}.{key}"
                for key in dict.fromkeys((*(mine or ()), *(theirs or ())))
                if (mine or {}).get(key) != (theirs or {}).get(key)
            ]
        elif mine != theirs:
            found.append(name)
    return found


def _plain(value: object, *, is_quantity: bool) -> Any:
    if isinstance(value, ApiValue):
        return canonical(value)
    if isinstance(value, Mapping):
        return {key: _plain(each, is_quantity=is_quantity) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, is_quantity=is_quantity) for each in value]
    return _quantity(str(value)) if is_quantity and value is not None else value


@lru_cache(maxsize=1024)
def _quantity(text: str) -> Quantity | str:
    # The devices of a slice have the same few amounts.
    try:
        return Quantity.parse(text)
    except ValueError:
        return text


@cache
def _fields(kind: type[ApiValue]) -> tuple[_Field, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        _Field(field.name, field.encode_name, _is_quantity(hints[field.name]))
        for field in msgspec.structs.fields(kind)
    )


def _is_quantity(hint: object) -> bool:
    """Whether the type is a quantity, or a list, map or option of them."""
    return QUANTITY in getattr(hint, "__metadata__", ()) or any(map(_is_quantity, get_args(hint)))
