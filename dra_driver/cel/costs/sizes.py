# SPDX-License-Identifier: Apache-2.0
"""How large can a part of `device` be?

The API limits how long names and values are and how many there are, so the cost of an expression has a bound before
any device exists. A part is named by its path from the variable: fields by their name, the rest "@keys", "@values" and "@items".
Source: k8s.io/dynamic-resource-allocation/cel/compile.go (sizeEstimator), k8s.io/api/resource/v1 (limits).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dra_driver.cel.costs.bounds import Bounds

_DRIVER_LENGTH = _DOMAIN_LENGTH = 63
_NAME_LENGTH = 32
_ATTRIBUTES_AND_CAPACITIES = 32
_VALUE_LENGTH = 64  # of a text; a list has at most 48 entries, and which of the two it is nobody knows beforehand


class Path:
    """Names on the way from a variable, in an array that may be shared.

    A variable of cel.bind or of a comprehension stands for one path, and what its uses append is written behind it: as in
    Go, into the same array while there is room, so the use that comes last decides what an earlier one reads. That is an
    accident of the estimate, but it shows in the number, and the number decides what the API server takes.
    """

    __slots__ = ("_length", "_names", "_room")

    def __init__(self, *names: str) -> None:
        self._names = list(names)
        self._length = self._room = len(names)

    def then(self, name: str) -> "Path":
        """This path and one more name."""
        longer = Path()
        longer._length = self._length + 1
        if longer._length <= self._room:
            longer._room, longer._names = self._room, self._names
            longer._names[self._length : longer._length] = [name]
        else:
            longer._room = max(1, 2 * self._room)
            longer._names = [*self.names, name]
        return longer

    @property
    def names(self) -> tuple[str, ...]:
        """What it reads now."""
        return tuple(self._names[: self._length])


@dataclass(frozen=True, slots=True, eq=False)
class _Declared:
    size: int
    fields: Mapping[str, "_Declared"] = field(default_factory=dict)
    key: "_Declared | None" = None
    element: "_Declared | None" = None


def _maps_of(value: _Declared) -> _Declared:
    by_name = _Declared(_ATTRIBUTES_AND_CAPACITIES, key=_Declared(_NAME_LENGTH), element=value)
    return _Declared(_ATTRIBUTES_AND_CAPACITIES, key=_Declared(_DOMAIN_LENGTH), element=by_name)


_ATTRIBUTE = _Declared(_VALUE_LENGTH)
_DEVICE = _Declared(
    0,
    {
        "driver": _Declared(_DRIVER_LENGTH),
        "attributes": _maps_of(_ATTRIBUTE),
        "capacity": _maps_of(_Declared(0)),
        "allowMultipleAllocations": _Declared(1),
    },
)


def size_at(path: Path | None) -> Bounds | None:
    """The size of what the path leads to; None where it leads out of the declared."""
    if path is None or path.names[0] != "device":
        return None
    place: _Declared | None = _DEVICE
    for name in path.names[1:]:
        if place is None:
            return None
        place = _step(place, name)
    return None if place is None else Bounds(0, place.size)


def _step(place: _Declared, name: str) -> _Declared | None:
    if name in {"@items", "@values"}:
        return place.element
    if name == "@keys":
        return place.key
    if name in place.fields:
        return place.fields[name]
    # By its own name only an attribute is found, not a domain and not a capacity.
    return _ATTRIBUTE if place.element is _ATTRIBUTE else None
