# SPDX-License-Identifier: Apache-2.0
"""An inventory as slices within the API's limits.

The API server refuses a slice as a whole for one bad character in one attribute, and with it every device in it. So the
limits are applied here: what cannot be published costs itself only, and is told as a Problem.
Source of the limits: k8s.io/api/resource/v1, pkg/apis/resource/validation of Kubernetes 1.37.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity, DeviceTaint
from dra_driver.model.ids import DeviceName, DriverName
from dra_driver.model.inventory import Inventory
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import Devices, Problem

# The API allows 128, but 64 as soon as one device has taints, counters or a list; a pool must not be cut anew for a taint.
DEVICES_PER_SLICE = 64
ATTRIBUTES_AND_CAPACITIES = 32
ATTRIBUTE_VALUES = 48
VALUE_BYTES = 64
NAME_LENGTH = 32
DOMAIN_LENGTH = 63
VANISHED_TAINT = "vanished"
VANISHED_REASON = "not-found-on-node"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
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
_LEFT_OUT = "it was left out of the slice, everything else is published; correct it in the backend"


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The devices of each slice, and what could not be published."""

    slices: tuple[Devices, ...]
    problems: tuple[Problem, ...]

    @property
    def devices(self) -> Mapping[DeviceName, Device]:
        """All published devices by name."""
        return {DeviceName(device.name): device for devices in self.slices for device in devices}


def plan_pool(inventory: Inventory, *, kept: Sequence[Device]) -> PoolPlan:
    """Slices for all devices of the inventory, in its order, then those that vanished but must stay (`kept`).

    A node without devices has one empty slice: "no devices" is said, not left open.
    """
    problems = list(inventory.left_out)
    devices = [
        published
        for device in inventory.devices
        if (published := _published(device.api, problems.append))
    ]
    names = {device.name for device in devices}
    # A newer driver may have remembered what this one cannot write; nobody can correct that.
    known = (_published(device, _tell_nobody) for device in kept if device.name not in names)
    devices += [device for device in known if device]
    starts = range(0, max(len(devices), 1), DEVICES_PER_SLICE)
    return PoolPlan(
        tuple(tuple(devices[start : start + DEVICES_PER_SLICE]) for start in starts),
        tuple(problems),
    )


def tainted(device: Device, driver: DriverName, now: str) -> Device:
    """A device that vanished but must stay: no new claim may get it. A time that it carries already is kept."""
    # The domain is the driver's own name, as its attributes' is; the value says why.
    key = f"{driver}/{VANISHED_TAINT}"
    since = next((taint.time_added for taint in device.taints or () if taint.key == key), "") or now
    taint = DeviceTaint(key=key, value=VANISHED_REASON, effect="NoSchedule", time_added=since)
    return msgspec.structs.replace(device, taints=[taint])


def _tell_nobody(_problem: Problem) -> None:
    pass


def _published(device: Device, report: Callable[[Problem], None]) -> Device | None:
    """The device with every field that the API server will take."""
    name = DeviceName(device.name)
    if not _LABEL.fullmatch(name):
        report(Problem(name, "name", "no DNS label of at most 63 characters", _LEFT_OUT))
        return None

    def problem(subject: str, found: str) -> None:
        report(Problem(name, subject, found, _LEFT_OUT))

    # Capacity first: it is what claims select by, so it is the last to fall victim to the common limit.
    capacity = dict(_good_capacity(device.capacity or {}, problem))
    room = ATTRIBUTES_AND_CAPACITIES - len(capacity)
    return Device(
        **_good_fields(device, problem),
        attributes=_good_attributes(device.attributes or {}, room, problem) or None,
        capacity=capacity or None,
    )


def _good_fields(device: Device, problem: Callable[[str, str], None]) -> dict[str, Any]:
    """All other fields, whatever the API has: each of its own type, or left out."""
    good: dict[str, Any] = {}
    for field in _OTHER_FIELDS:
        value, wrong = _typed(getattr(device, field.name), field.type)
        if wrong:
            problem(field.encode_name, wrong)
        else:
            good[field.name] = value
    return good


def _typed(value: object, kind: Any) -> tuple[Any, str]:
    """A copy of the value, or why it is none of this type: what the type checker forbids may come all the same."""
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
    """At most `room` of them, the first ones."""
    good: dict[str, DeviceAttribute] = {}
    left = ATTRIBUTE_VALUES
    for name, attribute in attributes.items():
        wrong, values = _judged(attribute)
        wrong = _wrong_name(name) or wrong
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
    capacity: Mapping[str, DeviceCapacity], problem: Callable[[str, str], None]
) -> Iterator[tuple[str, DeviceCapacity]]:
    room = ATTRIBUTES_AND_CAPACITIES
    for name, size in capacity.items():
        good, wrong = _capacity(size)
        wrong = _wrong_name(name) or wrong
        if not wrong and not room:
            wrong = f"more than {ATTRIBUTES_AND_CAPACITIES} capacities"
        if wrong:
            problem(f"capacity {name}", wrong)
        else:
            room -= 1
            yield name, good


def _capacity(size: object) -> tuple[DeviceCapacity, str]:
    """With its value in canonical text, as the API server stores it."""
    if not isinstance(size, DeviceCapacity):
        return DeviceCapacity(), f"a {type(size).__name__} is no DeviceCapacity"
    typed, wrong = _typed(size, DeviceCapacity)
    if wrong:
        return DeviceCapacity(), wrong
    try:
        value = _canonical(str(size.value))
    except ValueError as error:
        return DeviceCapacity(), str(error)
    return msgspec.structs.replace(typed, value=value), ""


@lru_cache(maxsize=256)
def _canonical(text: str) -> str:
    return str(Quantity.parse(text))  # devices of one model have the same few sizes


def _wrong_name(name: str) -> str:
    domain, slash, identifier = name.rpartition("/")
    if not _IDENTIFIER.fullmatch(identifier) or len(identifier) > NAME_LENGTH:
        return f"the name {identifier[:80]!r} is no identifier of at most {NAME_LENGTH} characters"
    if slash and (not _DOMAIN.fullmatch(domain) or len(domain) > DOMAIN_LENGTH):
        return f"the domain {domain[:80]!r} is no lower-case DNS name of at most {DOMAIN_LENGTH} characters"
    return ""


def _judged(attribute: object) -> tuple[str, int]:
    """What is wrong with it, and how many values it has: a list has several.

    Backends are other people's code: what the type checker forbids may come all the same.
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
    """The attribute without subclasses of str and int (numpy's, an IntEnum's): msgspec refuses to write those."""
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
            # Compared, not looked up in a range: a range is searched number by number for a subclass of int.
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
