# SPDX-License-Identifier: Apache-2.0
"""Which Python values represent CEL values, and how are they compared?

| CEL | Python |
| --- | --- |
| bool, int, double, string, bytes, null | bool, int, float, str, bytes, None |
| uint | Uint, a subclass of int that never equals an int as a map key |
| list, map | any list, any dict; `key_of` encodes the keys of a map |
| duration, timestamp, type, optional | the classes below |
| Quantity, Semver, IP, … | an `Opaque` of its library |

The static type can be dyn, so each operation checks the types of its values at run time.
Source: cel-go common/types.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

from msgspec import Struct

from dra_driver.cel import golang, work
from dra_driver.cel.failures import Aborted, EvaluationError, no_such_overload
from dra_driver.cel.syntax.ast import Uint

INT_MIN, INT_MAX, UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1
SECOND = 10**9  # In nanoseconds, the unit of Duration.

BOOL, INT, UINT, DOUBLE, STRING, BYTES = "bool", "int", "uint", "double", "string", "bytes"
NULL, LIST, MAP, TYPE, OPTIONAL = "null_type", "list", "map", "type", "optional_type"
DURATION, TIMESTAMP = "google.protobuf.Duration", "google.protobuf.Timestamp"


class Duration(Struct, frozen=True):
    """A duration in nanoseconds."""

    nanos: int

    def __str__(self) -> str:
        return golang.duration(self.nanos)


class Timestamp(Struct, frozen=True):
    """A Unix time with nanoseconds. `offset` from UTC, in seconds, only matters for the text form."""

    seconds: int
    nanos: int
    offset: int = 0

    def __str__(self) -> str:
        return golang.moment(self.seconds, self.nanos, self.offset)


class TypeValue(Struct, frozen=True):
    """A type used as a value: `type(1)` or `int`."""

    name: str


class Optional(Struct, frozen=True, eq=False):
    """An optional value: `value` if `present`, else optional.none()."""

    value: object = None
    present: bool = True


NONE = Optional(present=False)


class Opaque(Struct, frozen=True, eq=False):
    """A value of a Kubernetes library. `hashable` is False if Go panics when the value is a map key."""

    type_name = ""
    go_name = ""
    hashable = True

    def go_type(self) -> str:
        """Return the type name in cel-go's error messages."""
        return self.go_name

    def equals(self, other: object) -> bool:
        """Return whether both values are equal. Raises EvaluationError ("no such overload") if `other` has another type."""
        raise NotImplementedError

    def as_key(self) -> object:
        """Return what is equal for equal keys of a map. In Go most of these values have a pointer, which equals itself only."""
        return id(self)


@runtime_checkable
class WithSize(Protocol):
    """An opaque value with a size for the cost. CEL's size() does not accept it."""

    def size(self) -> int:
        """Return the size in bytes."""
        ...


class PublishedList(list[object]):
    """A list that a device publishes."""

    __slots__ = ()


class ConcatenatedList(list[object]):
    """The result of `list + list`. Comparing it with `==` does not ignore errors of its elements (concatList)."""

    __slots__ = ()


class MutableList(list[object]):
    """The list that a comprehension builds. `+` extends it in place, so that a long loop stays linear."""

    __slots__ = ()


class LiteralMap(dict[object, object]):
    """A map that an expression made. Its keys can have any type; a lookup with an unhashable key ends the evaluation."""

    __slots__ = ()


class MutableMap(LiteralMap):
    """The map that a comprehension builds. An insertion changes it in place."""

    __slots__ = ()


_KINDS: dict[type, tuple[str, str]] = {
    bool: (BOOL, "types.Bool"),
    int: (INT, "types.Int"),
    Uint: (UINT, "types.Uint"),
    float: (DOUBLE, "types.Double"),
    str: (STRING, "types.String"),
    bytes: (BYTES, "types.Bytes"),
    type(None): (NULL, "types.Null"),
    list: (LIST, "*types.baseList"),
    PublishedList: (LIST, "*types.baseList"),
    ConcatenatedList: (LIST, "*types.concatList"),
    MutableList: (LIST, "*types.mutableList"),
    dict: (MAP, "*types.baseMap"),
    LiteralMap: (MAP, "*types.baseMap"),
    MutableMap: (MAP, "*types.mutableMap"),
    TypeValue: (TYPE, "*types.Type"),
    Optional: (OPTIONAL, "*types.Optional"),
    Duration: (DURATION, "types.Duration"),
    Timestamp: (TIMESTAMP, "types.Timestamp"),
}


def _names(value: object) -> tuple[str, str]:
    names = _KINDS.get(type(value))
    if names is not None:
        return names
    if isinstance(value, Opaque):
        return value.type_name, value.go_type()
    # DomainMap in device.py. Only this map has a default.
    if hasattr(value, "__missing__"):
        return MAP, "cel.mapper"
    return _KINDS[dict if isinstance(value, dict) else list]


def kind(value: object) -> str:
    """Return the name of the type at run time: "int", "list", "kubernetes.Quantity", …"""
    return _names(value)[0]


def go_type(value: object) -> str:
    """Return the name of the value's type in cel-go's error messages."""
    return _names(value)[1]


_PARAMETERS = {LIST: "(dyn)", MAP: "(dyn, dyn)", OPTIONAL: "(dyn)"}


def type_text(value: object) -> str:
    """Return the type at run time with its parameters, which are always dyn: "list(dyn)"."""
    name = kind(value)
    return name + _PARAMETERS.get(name, "")


# --- maps -------------------------------------------------------------------------------------------------------------


class _Unequal(Struct, frozen=True, eq=False):
    """A key that equals no other key: NaN, and what Go makes anew at each access, as a list or a map of the device."""

    value: object


class _Pointer(Struct, frozen=True, eq=False):
    """A key that is a pointer in Go, and equals itself: two lists with the same elements are two keys. Or a struct, which `identity` stands for."""

    value: object
    identity: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Pointer) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)


_KEY_KINDS = frozenset({bool, int, Uint, float, Duration, Timestamp, TypeValue, type(None)})
_MISSING = object()


def hashable(value: object) -> object:
    """Return the value itself. Raises Aborted if Go would panic because the value cannot be a map key."""
    if type(value) is bytes or (isinstance(value, Opaque) and not value.hashable):
        raise Aborted(f"internal error: runtime error: hash of unhashable type {go_type(value)}")
    return value


def key_of(value: object) -> object:
    """Return the dict key for a CEL map key. In Python 1 == 1.0 == True; in a CEL map these are different keys."""
    if type(value) is str:
        return value
    if type(value) in _KEY_KINDS and value == value:  # noqa: PLR0124 - false for NaN, which equals no key
        return kind(value), value
    if isinstance(value, Opaque):
        return _Pointer(value, value.as_key())
    if isinstance(value, Optional):
        return _Pointer(value, id(value) if value.present else OPTIONAL)  # there is one "none"
    is_kept = isinstance(value, list | dict) and type(value) not in (dict, PublishedList)
    return _Pointer(value, id(value)) if is_kept else _Unequal(value)


def key_value(key: object) -> object:
    """Return the CEL map key for a dict key: the inverse of `key_of`."""
    if isinstance(key, tuple):
        value: object = key[1]
        return value
    return key.value if isinstance(key, _Unequal | _Pointer) else key


def numeric_twins(value: object) -> Iterator[object]:
    """Return the same number in the other integer types, in cel-go's order. A map lookup tries them all: {1: 2}[1u] is 2."""
    if type(value) is float and math.isfinite(value) and value == int(value):
        if INT_MIN <= value < INT_MAX:
            yield int(value)
        if 0 <= value < UINT_MAX:
            yield Uint(value)
    elif type(value) is int and value >= 0:
        yield Uint(value)
    elif type(value) is Uint and value <= INT_MAX:
        yield int(value)


def _lookup(mapping: Mapping[object, object], value: object) -> object:
    # refValMapAccessor.Find returns early for an empty map, so only other maps panic.
    if mapping and isinstance(mapping, LiteralMap):
        hashable(value)
    found = mapping.get(key_of(value), _MISSING)
    for twin in () if found is not _MISSING else numeric_twins(value):
        found = mapping.get(key_of(twin), _MISSING)
        if found is not _MISSING:
            break
    return found


def find(mapping: Mapping[object, object], value: object) -> tuple[object, bool]:
    """Return the value at a key, and whether the map has the key. A map with a default has every key."""
    found = _lookup(mapping, value)
    if found is not _MISSING:
        return found, True
    default = getattr(mapping, "__missing__", None)
    return (default(value), True) if default is not None else (None, False)


def contains_key(mapping: Mapping[object, object], value: object) -> bool:
    """Return whether the map has the key: `value in mapping`. A default value of the map does not make a key exist."""
    return _lookup(mapping, value) is not _MISSING


# --- equality ---------------------------------------------------------------------------------------------------------

_NUMBERS = frozenset({int, Uint, float})
_PLAIN = frozenset({bool, int, Uint, float, str, bytes, Duration, TypeValue})


def equal(left: object, right: object) -> bool:
    """Return `left == right`. Values of different types are unequal. But an Opaque raises EvaluationError for another type."""
    if left is None or right is None:
        return left is right
    return equal_values(left, right)


def equal_values(left: object, right: object) -> bool:
    """Return the result of the left value's Equal method, without the check for null before it."""
    kind_left, kind_right = type(left), type(right)
    if kind_left is kind_right and kind_left in _PLAIN:
        return left == right
    if kind_left in _NUMBERS and kind_right in _NUMBERS:
        return _equal_numbers(left, right)
    if isinstance(left, Opaque):
        return left.equals(right)
    if isinstance(left, list):
        return isinstance(right, list) and _equal_lists(left, right)
    if isinstance(left, dict):
        return isinstance(right, dict) and _equal_maps(left, right)
    return _equal_rest(left, right)


def _equal_rest(left: object, right: object) -> bool:
    if isinstance(left, Timestamp) and isinstance(right, Timestamp):
        return (left.seconds, left.nanos) == (right.seconds, right.nanos)
    if isinstance(left, Optional) and isinstance(right, Optional):
        if not (left.present and right.present):
            return left.present == right.present
        return equal_values(left.value, right.value)
    return left is None and right is None


def _equal_numbers(left: object, right: object) -> bool:
    return not _is_nan(left) and not _is_nan(right) and compare(left, right) == 0


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _equal_lists(left: list[object], right: list[object]) -> bool:
    if len(left) != len(right):
        return False
    work.current().elements(len(left))
    strict = isinstance(left, ConcatenatedList)
    return _all_equal(((a, b) for a, b in zip(left, right, strict=True)), strict=strict)


def _equal_maps(left: dict[object, object], right: dict[object, object]) -> bool:
    if len(left) != len(right):
        return False
    work.current().elements(len(left))
    pairs = []
    for key, value in left.items():
        other, found = find(right, key_value(key))
        if not found:
            return False
        pairs.append((value, other))
    return _all_equal(iter(pairs), strict=False)


def _all_equal(pairs: Iterator[tuple[object, object]], *, strict: bool) -> bool:
    """Return whether all pairs are equal. Unless `strict`, a pair with an error is treated as equal, because cel-go ignores errors."""
    error: EvaluationError | None = None
    for left, right in pairs:
        try:
            _count_text(left)
            if not equal(left, right):
                return False
        except Aborted:
            raise
        except EvaluationError as found:
            error = error or found
    if strict and error is not None:
        raise error
    return True


def _count_text(value: object) -> None:
    """Count the characters of a long text that is compared. A short text is already counted as an element."""
    if isinstance(value, str | bytes) and len(value) > _SHORT:
        work.current().characters(len(value))


_SHORT = 64


def is_true(left: object, right: object) -> bool:
    """Return whether the left value's Equal method returns true. Returns False if it has an error."""
    _count_text(left)
    try:
        return equal_values(left, right)
    except Aborted:
        raise
    except EvaluationError:
        return False


def contains(values: list[object], element: object) -> bool:
    """Return whether the list has the element: `element in values`."""
    return any(is_true(element, value) for value in values)


# --- order ------------------------------------------------------------------------------------------------------------

_ORDERED = frozenset({bool, bytes})


def compare(left: object, right: object) -> int:
    """Return -1, 0 or 1, as cel-go's Compare does. Raises EvaluationError if the values have no order."""
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        return _compare_numbers(left, right)
    if _is_nan(left):
        raise EvaluationError("NaN values cannot be ordered")
    if type(left) is not type(right):
        raise no_such_overload()
    if isinstance(left, str) and isinstance(right, str):
        return _compare_texts(left, right)
    return _sign(_sortable(left), _sortable(right))


def _compare_texts(left: str, right: str) -> int:
    """Compare in the order of UTF-8, as Go does.

    Code points have the same order, except for bytes that are no UTF-8. An ASCII character is smaller than any of
    these bytes. Only the characters up to the end of the shorter text are compared, so only these are converted.
    """
    if left.isascii() or right.isascii():
        return _sign((left,), (right,))
    shown = min(len(left), len(right)) + 1
    work.current().characters(shown)
    return _sign((golang.utf8(left[:shown]),), (golang.utf8(right[:shown]),))


def _sortable(value: object) -> tuple[object, ...]:
    if type(value) in _ORDERED:
        return (value,)
    if isinstance(value, Duration):
        return (value.nanos,)
    if isinstance(value, Timestamp):
        return value.seconds, value.nanos
    raise no_such_overload()


def _sign(left: tuple[object, ...], right: tuple[object, ...]) -> int:
    return (left > right) - (left < right)


def _compare_numbers(left: object, right: object) -> int:
    if _is_nan(left) or _is_nan(right):
        raise EvaluationError("NaN values cannot be ordered")
    # cel-go converts the integer to a double first, so large integers lose precision.
    if type(left) is float and isinstance(right, int):
        return _sign((left,), (float(right),))
    if type(right) is float and isinstance(left, int):
        return _sign((float(left),), (right,))
    return _sign((left,), (right,))


# --- text -------------------------------------------------------------------------------------------------------------


def text(value: object) -> str:
    """Return the value as Go's %v writes it in error messages."""
    if type(value) is str:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return golang.double(value)
    if isinstance(value, list):
        work.current().elements(len(value))
        return "[" + ", ".join(map(_inner_text, value)) + "]"
    if isinstance(value, dict):
        work.current().elements(len(value))
        shown = (f"{text(key_value(key))}: {_inner_text(item)}" for key, item in value.items())
        return "{" + ", ".join(shown) + "}"
    return _text_of_rest(value)


def _inner_text(value: object) -> str:
    _count_text(value)
    shown = text(value)
    if isinstance(value, Opaque | Optional):  # Its length is known only now.
        work.current().characters(len(shown))
    return shown


def _text_of_rest(value: object) -> str:
    if isinstance(value, bytes):
        return "[" + " ".join(map(str, value)) + "]"
    if isinstance(value, TypeValue):
        return value.name
    if isinstance(value, Optional):
        return f"optional({text(value.value)})" if value.present else "optional.none()"
    return "0" if value is None else str(value)
