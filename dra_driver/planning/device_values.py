# SPDX-License-Identifier: Apache-2.0
"""Which values of a device would the API server accept?

For one bad character in one attribute the API server refuses a whole slice, with every device in it. So the driver leaves out bad
values. If an attribute or a capacity is bad, only that value is left out. Any other field may restrict who gets the device (a taint,
a condition), so a device with such a bad field is left out as a whole.

Source of the limits: k8s.io/api/resource/v1, pkg/apis/resource/validation of Kubernetes 1.37.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity
from dra_driver.model.quantity import Quantity
from dra_driver.planning.field_rules import wrong_field, wrong_policy

ATTRIBUTES_AND_CAPACITIES = 32
ATTRIBUTE_VALUES = 48
VALUE_BYTES = 64
NAME_LENGTH = 32
DOMAIN_LENGTH = 63

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NUMBER = r"(0|[1-9]\d*)"
_PRE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE}(\.{_PRE})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_OTHER_FIELDS = tuple(
    field
    for field in msgspec.structs.fields(Device)
    if field.name not in ("attributes", "capacity")
)
_KINDS = tuple(field.encode_name for field in msgspec.structs.fields(DeviceAttribute))


def checked(
    device: Device, problem: Callable[[str, str], None]
) -> tuple[Device, Mapping[str, str]]:
    """Return the device with its good values only; and the reason for each bad field other than attributes and single capacities."""
    wrong: dict[str, str] = {}
    # Capacity first: attributes and capacities have a common limit, and claims need the capacities more.
    capacity = dict(_good_capacity(device, problem))
    if device.allow_multiple_allocations and len(capacity) < len(device.capacity or {}):
        # Each share takes a part of each capacity. Without one of them the number of shares has no limit.
        wrong["capacity"] = "a device with allowMultipleAllocations needs all of its capacities"
    room = ATTRIBUTES_AND_CAPACITIES - len(capacity)
    attributes = _good_attributes(device.attributes or {}, room, problem)
    good = _good_fields(device, capacity, wrong)
    return Device(**good, attributes=attributes or None, capacity=capacity or None), wrong


def _good_fields(
    device: Device, capacities: Mapping[str, DeviceCapacity], wrong: dict[str, str]
) -> dict[str, Any]:
    """Return the good values of all other fields of the API. Adds the bad fields to `wrong`, by their names in the API."""
    good: dict[str, Any] = {}
    for field in _OTHER_FIELDS:
        good[field.name], why = typed(getattr(device, field.name), field.type)
        if why:
            wrong[field.encode_name] = why
    converted = Device(**good)
    for field in _OTHER_FIELDS:
        if why := wrong_field(field.name, converted, capacities):
            wrong[field.encode_name] = why
            good[field.name] = None
    return good


def typed(value: object, kind: Any) -> tuple[Any, str]:
    """Return a copy of the value, or why it has a wrong type. A backend is other people's code, so the value may be of any type."""
    if value is None:
        return None, ""
    if kind is str and isinstance(value, str):
        return _exact(value), ""
    try:
        return msgspec.json.decode(msgspec.json.encode(value), type=kind), ""
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        return None, str(error)


def _good_attributes(
    attributes: Mapping[str, DeviceAttribute], room: int, problem: Callable[[str, str], None]
) -> dict[str, DeviceAttribute]:
    """Return the good attributes, at most `room` of them."""
    good: dict[str, DeviceAttribute] = {}
    left = ATTRIBUTE_VALUES
    for name, attribute in attributes.items():
        wrong, values = _judged(attribute)
        wrong = wrong_name(name) or wrong
        if not wrong and len(good) >= room:
            wrong = f"more than {ATTRIBUTES_AND_CAPACITIES} attributes and capacities"
        if not wrong and values > left:
            wrong = f"more than {ATTRIBUTE_VALUES} values of attributes"
        if wrong:
            problem(f"attribute {name}", wrong)
        else:
            left -= values
            good[name] = _exactly(attribute)
    return good


def _good_capacity(
    device: Device, problem: Callable[[str, str], None]
) -> Iterator[tuple[str, DeviceCapacity]]:
    room = ATTRIBUTES_AND_CAPACITIES
    shared = device.allow_multiple_allocations is True
    for name, size in (device.capacity or {}).items():
        good, wrong = _capacity(size)
        wrong = wrong_name(name) or wrong or wrong_policy(good, shared=shared)
        if not wrong and not room:
            wrong = f"more than {ATTRIBUTES_AND_CAPACITIES} capacities"
        if wrong:
            problem(f"capacity {name}", wrong)
        else:
            room -= 1
            yield name, good


def _capacity(size: object) -> tuple[DeviceCapacity, str]:
    """Return the capacity with its value in canonical text, as the API server stores it; or what is wrong with it."""
    if not isinstance(size, DeviceCapacity):
        return DeviceCapacity(), f"a {type(size).__name__} is no DeviceCapacity"
    good, wrong = typed(size, DeviceCapacity)
    if wrong:
        return DeviceCapacity(), wrong
    try:
        value = _canonical(str(size.value))
    except ValueError as error:
        return DeviceCapacity(), str(error)
    return msgspec.structs.replace(good, value=value), ""


@lru_cache(maxsize=256)
def _canonical(text: str) -> str:
    return str(Quantity.parse(text))  # devices of one model have the same few sizes


def wrong_name(name: str) -> str:
    domain, slash, identifier = name.rpartition("/")
    if not _IDENTIFIER.fullmatch(identifier) or len(identifier) > NAME_LENGTH:
        return f"the name {identifier[:80]!r} is no identifier of at most {NAME_LENGTH} characters"
    if slash and (not _DOMAIN.fullmatch(domain) or len(domain) > DOMAIN_LENGTH):
        return f"the domain {domain[:80]!r} is no lower-case DNS name of at most {DOMAIN_LENGTH} characters"
    return ""


def _judged(attribute: object) -> tuple[str, int]:
    """Return what is wrong with the attribute, and how many values it has (a list may have several).

    A backend is other people's code, so the attribute may be of any type.
    """
    if not isinstance(attribute, DeviceAttribute):
        return f"a {type(attribute).__name__} is no DeviceAttribute", 0
    values = msgspec.structs.astuple(attribute)
    if values.count(None) != len(values) - 1:
        return "exactly one value must be set", 0
    kind, value = next(
        (kind, value) for kind, value in zip(_KINDS, values, strict=True) if value is not None
    )
    if not kind.endswith("s"):
        return _wrong_value(kind, value), 1
    if not value or not isinstance(value, list):
        return "a list of values must have some", 0
    wrong = next((wrong for one in value if (wrong := _wrong_value(kind[:-1], one))), "")
    return wrong, len(value)


def _exactly(attribute: DeviceAttribute) -> DeviceAttribute:
    """Return the attribute without subclasses of str and int (from numpy, or an IntEnum), which msgspec refuses to write."""
    changed = {
        field: exact
        for field in attribute.__struct_fields__
        if (value := getattr(attribute, field)) is not None
        and (exact := _exact(value)) is not value
    }
    return msgspec.structs.replace(attribute, **changed) if changed else attribute


def _exact(value: Any) -> Any:
    match value:
        case bool():
            return value
        case int():
            return value if type(value) is int else int.__int__(value)
        case str():
            return value if type(value) is str else str.__str__(value)
        case _:
            exact = [_exact(one) for one in value]
            return value if all(map(operator.is_, exact, value)) else exact


def _wrong_value(kind: str, value: object) -> str:
    match kind, value:
        case ("bool", bool()):
            return ""
        case ("int", int()) if not isinstance(value, bool):
            # No `in range(...)`: for a subclass of int, Python would search the range number by number.
            fits = -(2**63) <= value < 2**63
            return "" if fits else f"{value} does not fit into 64 bits"
        case ("version", str(text)):
            if not _SEMVER.fullmatch(text):
                return (
                    f"{text[:80]!r} is no version of semver.org 2.0.0 (three numbers, no leading v)"
                )
            return _too_long(text)
        case ("string", str(text)):
            return _too_long(text)
        case _:
            return f"a {type(value).__name__} is neither bool, int, str nor Version"


def _too_long(text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return f"{text[:80]!a} is no text that can be encoded as UTF-8"
    return "" if size <= VALUE_BYTES else f"{text[:80]!r} is longer than {VALUE_BYTES} bytes"
