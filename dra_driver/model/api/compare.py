# SPDX-License-Identifier: Apache-2.0
"""When do two API objects say the same?

The API server stores what it was given in its own words: "81920Mi" becomes "80Gi", an empty list is left out. Both are
compared by what they mean. No field is named here: what a class of `dra_driver.model.api` declares is compared, so a new
field takes part from the day on which it stands there.
"""

from collections.abc import Mapping
from functools import cache
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
    # The first comparison is quick and answers nearly always: what is published was read back from the API server.
    return some == other or canonical(some) == canonical(other)


def canonical(value: ApiValue) -> dict[str, Any]:
    """The object by its names on the wire, with quantities as values ("1Gi" is 1073741824) and without what is empty."""
    found = {
        field.wire_name: _plain(getattr(value, field.name), is_quantity=field.is_quantity)
        for field in _fields(type(value))
    }
    return {name: each for name, each in found.items() if each not in (None, [], {})}


def differences(some: ApiValue, other: ApiValue) -> tuple[str, ...]:
    """The fields that mean something else: by name on the wire, and by key where the field is a map ("attributes.uuid")."""
    return tuple(_differences(canonical(some), canonical(other)))


def _differences(some: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    # In the order in which the fields are declared; what only the other one has comes last.
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
    return _quantity(value) if is_quantity and value is not None else value


def _quantity(text: object) -> Quantity | str:
    try:
        return Quantity.parse(str(text))
    except ValueError:
        return str(text)


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
