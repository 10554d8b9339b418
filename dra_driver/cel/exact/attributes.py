# SPDX-License-Identifier: Apache-2.0
"""What is the value of an attribute such as `device.attributes["d"].model`, `a.?b[c]`, `has(a.b)` or `(c ? a : b).x`?

In cel-go's words, an attribute is a root value and a list of qualifiers (fields and indices). The evaluator resolves all
qualifiers together, because an optional qualifier (`.?b`, `[?k]`) makes all later qualifiers optional: if one of them is missing, the
result is optional.none(). A condition passes its qualifiers to both branches, and resolves only one of them.
Functions return an error as a value, as everywhere in the evaluator.
Source: cel-go interpreter/attributes.go.
"""

import math
from collections.abc import Callable

from msgspec import Struct, field

from dra_driver.cel import values
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.failures import EvaluationError, no_such_overload
from dra_driver.cel.syntax.ast import Uint
from dra_driver.cel.values import NONE, Optional


class Frame:
    """The state of one evaluation (cel-go: ExecutionFrame): the device, the variables, and the cost tracker or None."""

    __slots__ = ("device", "slots", "tracker")

    def __init__(self, device: DeviceValue, slots: list[object], tracker: object = None) -> None:
        self.device = device
        self.slots = slots
        self.tracker = tracker


Run = Callable[[Frame], object]

ABSENT = object()
_KEYS = frozenset({str, int, Uint, bool, float})
_DEVICE_FIELDS = {
    "driver": "driver",
    "attributes": "attributes",
    "capacity": "capacity",
    "allowMultipleAllocations": "allow_multiple_allocations",
}


def invalid_key(key: object) -> str | None:
    """Return the error message if the value cannot be a qualifier, else None."""
    return None if type(key) in _KEYS else f"invalid qualifier type: {values.go_type(key)}"


def look(target: object, key: object, *, presence: bool) -> object:
    """Return the value of `target` at `key`. If the key is missing, return ABSENT with `presence`, else an error."""
    if isinstance(target, dict):
        value, found = values.find(target, key)
        if found:
            return value
    elif isinstance(target, list):
        return _element(target, key, presence=presence)
    elif isinstance(target, DeviceValue) and key in _DEVICE_FIELDS:
        return getattr(target, _DEVICE_FIELDS[str(key)])
    return ABSENT if presence else EvaluationError(f"no such key: {values.text(key)}")


def _element(elements: list[object], key: object, *, presence: bool) -> object:
    index = _index(key)
    if isinstance(index, EvaluationError):
        return index
    if 0 <= index < len(elements):
        return elements[index]
    return ABSENT if presence else EvaluationError(f"index out of bounds: {values.text(key)}")


def _index(key: object) -> int | EvaluationError:
    if isinstance(key, bool | str):
        return EvaluationError(f"unsupported index type '{values.kind(key)}' in list")
    number = key if isinstance(key, int) else None
    if isinstance(key, float) and math.isfinite(key) and key == int(key):
        number = int(key)
    if number is not None and values.INT_MIN <= number <= values.INT_MAX:
        return int(number)
    return EvaluationError(f"unsupported index value {values.text(key)} in list")


class Qualifier(Struct):
    """A field or an index. `test` marks the last qualifier of has(): it only tests whether the field exists."""

    id: int
    key: Run
    optional: bool = False
    test: bool = False

    def apply(self, frame: Frame, target: object, *, optional: bool) -> object:
        """Return the value at this qualifier, ABSENT if an optional one is missing, or an error."""
        key = self.key(frame)
        if type(key) is EvaluationError:
            return key
        found = look(target, key, presence=optional or self.test)
        if self.test and not optional and type(found) is not EvaluationError:
            return found is not ABSENT
        return found


class QualifiedAttribute(Struct):
    """A root value and its qualifiers (cel-go: absoluteAttribute, relativeAttribute)."""

    own_id: int
    root: Run
    qualifiers: list[Qualifier] = field(default_factory=list)

    @property
    def id(self) -> int:
        """The ID of the last qualifier, or of the root if there is none."""
        return self.qualifiers[-1].id if self.qualifiers else self.own_id

    def add(self, qualifier: Qualifier) -> None:
        self.qualifiers.append(qualifier)

    def resolve(self, frame: Frame) -> object:
        """Return the value at the last qualifier, or an error."""
        value = self.root(frame)
        if type(value) is EvaluationError:
            return value
        optional = type(value) is Optional
        if isinstance(value, Optional):
            if not value.present:
                return value
            value = value.value
        for qualifier in self.qualifiers:
            optional = optional or qualifier.optional
            value = qualifier.apply(frame, value, optional=optional)
            if type(value) is EvaluationError:
                return value
            if value is ABSENT:
                return NONE
        # `device` as a whole, for example in dyn(device), behaves as a map.
        if isinstance(value, DeviceValue):
            value = value.as_map()
        return Optional(value) if optional else value


class ConditionalAttribute(Struct):
    """`condition ? truthy : falsy` and the qualifiers behind it (cel-go: conditionalAttribute)."""

    own_id: int
    condition_id: int
    condition: Run
    truthy: "Attribute"
    falsy: "Attribute"

    @property
    def id(self) -> int:
        """The ID of the last qualifier, or its own if there is none."""
        return self.truthy.id if self.truthy.id == self.falsy.id else self.own_id

    def add(self, qualifier: Qualifier) -> None:
        """Append a qualifier to both branches."""
        self.truthy.add(qualifier)
        self.falsy.add(qualifier)

    def resolve(self, frame: Frame) -> object:
        """Return the value of the branch that the condition selects, or an error."""
        chosen = self.condition(frame)
        if chosen is True:
            return self.truthy.resolve(frame)
        if chosen is False:
            return self.falsy.resolve(frame)
        return chosen if type(chosen) is EvaluationError else no_such_overload()


Attribute = QualifiedAttribute | ConditionalAttribute
