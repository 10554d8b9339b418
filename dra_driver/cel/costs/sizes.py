# SPDX-License-Identifier: Apache-2.0
"""How large can a value inside `device` be?

The API limits the length of names and values and their number. So the API server can estimate the cost before any device
exists. A path says where the value is: "device", then field names, "@keys", "@values" and "@items".
Source: k8s.io/dynamic-resource-allocation/cel/compile.go (sizeEstimator), k8s.io/api/resource/v1 (limits).
"""

from collections.abc import Mapping

from msgspec import Struct, field

from dra_driver.cel.costs.bounds import Bounds

_DRIVER_LENGTH = _DOMAIN_LENGTH = 63
_NAME_LENGTH = 32
_ATTRIBUTES_AND_CAPACITIES = 32
VALUE_LENGTH = 64  # A string has at most 64 characters, a list at most 48 entries. The larger limit is used for both.


class Path:
    """The names from a variable to a value, in an array that several paths may share.

    In Go, `append` writes into the same array while the array has free capacity. cel-go appends to the path of a cel.bind or comprehension
    variable each time that an expression uses this variable. So a later use can overwrite the name that an earlier use
    appended. That is a bug in cel-go. But it changes the estimate, and the estimate decides what the API server accepts.
    """

    __slots__ = ("_length", "_names", "_room")

    def __init__(self, *names: str) -> None:
        self._names = list(names)
        self._length = self._room = len(names)

    def then(self, name: str) -> "Path":
        """Return the path with `name` appended, as Go's `append` does it."""
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
        """The names of the path now. A later `then` on a shared array can change them."""
        return tuple(self._names[: self._length])


class _Declared(Struct, frozen=True, eq=False):
    size: int
    fields: Mapping[str, "_Declared"] = field(default_factory=dict)
    key: "_Declared | None" = None
    element: "_Declared | None" = None


def _maps_of(value: _Declared) -> _Declared:
    by_name = _Declared(_ATTRIBUTES_AND_CAPACITIES, key=_Declared(_NAME_LENGTH), element=value)
    return _Declared(_ATTRIBUTES_AND_CAPACITIES, key=_Declared(_DOMAIN_LENGTH), element=by_name)


_ATTRIBUTE = _Declared(VALUE_LENGTH)
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
    """Return the size of the value at the path. Returns None if the path does not start at `device` or is not declared."""
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
    # By a field name, upstream finds only an attribute (device.attributes["d"].model), no domain and no capacity.
    return _ATTRIBUTE if place.element is _ATTRIBUTE else None
