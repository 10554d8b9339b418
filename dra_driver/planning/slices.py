# SPDX-License-Identifier: Apache-2.0
"""An inventory as slices within the API's limits.

The API server refuses a slice as a whole for one bad character in one attribute, and with it every device in it. So the
limits are applied here: what cannot be published costs itself only, and is told as a Problem.
Source of the limits: k8s.io/api/resource/v1, pkg/apis/resource/validation of Kubernetes 1.37.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dra_driver.model.device import AttributeValue, Device, Version
from dra_driver.model.ids import DeviceName, DriverName
from dra_driver.model.inventory import Inventory
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import Problem, PublishedDevice, Taint

# The API allows 128, but 64 as soon as one device has taints, counters or a list; a pool must not be cut anew for a taint.
DEVICES_PER_SLICE = 64
ATTRIBUTES_AND_CAPACITIES = 32
VALUE_BYTES = 64
NAME_LENGTH = 32
DOMAIN_LENGTH = 63
VANISHED_TAINT = "vanished"
VANISHED_REASON = "not-found-on-node"
INT64 = range(-(2**63), 2**63)

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NUMBER = r"(0|[1-9]\d*)"
_PRE = r"(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE}(\.{_PRE})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_LEFT_OUT = "it was left out of the slice, everything else is published; correct it in the backend"


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """The devices of each slice, and what could not be published."""

    slices: tuple[tuple[PublishedDevice, ...], ...]
    problems: tuple[Problem, ...]

    @property
    def devices(self) -> Mapping[DeviceName, PublishedDevice]:
        """All published devices by name."""
        return {device.name: device for devices in self.slices for device in devices}


def plan_pool(inventory: Inventory, *, kept: Sequence[PublishedDevice]) -> PoolPlan:
    """Slices for all devices of the inventory, in its order, then those that vanished but must stay (`kept`).

    A node without devices has one empty slice: "no devices" is said, not left open.
    """
    problems = list(inventory.left_out)
    devices = [
        published
        for device in inventory.devices
        if (published := _published(device, problems.append))
    ]
    names = {device.name for device in devices}
    devices += [device for device in kept if device.name not in names]
    starts = range(0, max(len(devices), 1), DEVICES_PER_SLICE)
    return PoolPlan(
        tuple(tuple(devices[start : start + DEVICES_PER_SLICE]) for start in starts),
        tuple(problems),
    )


def tainted(device: PublishedDevice, driver: DriverName, now: str) -> PublishedDevice:
    """A device that vanished but must stay: no new claim may get it. A time that it carries already is kept."""
    # The domain is the driver's own name, as its attributes' is; the value says why.
    key = f"{driver}/{VANISHED_TAINT}"
    since = next((taint.time_added for taint in device.taints if taint.key == key), "") or now
    return replace(device, taints=(Taint(key, VANISHED_REASON, "NoSchedule", since),))


def _published(device: Device, report: Callable[[Problem], None]) -> PublishedDevice | None:
    if not _LABEL.fullmatch(device.name):
        report(Problem(device.name, "name", "no DNS label of at most 63 characters", _LEFT_OUT))
        return None

    def problem(subject: str, found: str) -> None:
        report(Problem(device.name, subject, found, _LEFT_OUT))

    # Capacity first: it is what claims select by, so it is the last to fall victim to the common limit.
    capacity = dict(_good_capacity(device.capacity, problem))
    attributes = dict(_good_attributes(device.attributes, problem))
    return PublishedDevice(
        device.name,
        _limited(attributes, ATTRIBUTES_AND_CAPACITIES - len(capacity), problem),
        capacity,
    )


def _limited(
    attributes: Mapping[str, AttributeValue], room: int, problem: Callable[[str, str], None]
) -> dict[str, AttributeValue]:
    for name in list(attributes)[room:]:
        problem(
            f"attribute {name}", f"more than {ATTRIBUTES_AND_CAPACITIES} attributes and capacities"
        )
    return dict(list(attributes.items())[:room])


def _good_capacity(
    capacity: Mapping[str, Quantity], problem: Callable[[str, str], None]
) -> Iterator[tuple[str, Quantity]]:
    room = ATTRIBUTES_AND_CAPACITIES
    for name, value in capacity.items():
        wrong = _wrong_name(name) or _wrong_size(value)
        if not wrong and not room:
            wrong = f"more than {ATTRIBUTES_AND_CAPACITIES} capacities"
        if wrong:
            problem(f"capacity {name}", wrong)
        else:
            room -= 1
            yield name, value


def _good_attributes(
    attributes: Mapping[str, AttributeValue], problem: Callable[[str, str], None]
) -> Iterator[tuple[str, AttributeValue]]:
    for name, value in attributes.items():
        wrong = _wrong_name(name) or _wrong_value(value)
        if wrong:
            problem(f"attribute {name}", wrong)
        else:
            yield name, value


def _wrong_name(name: str) -> str:
    domain, slash, identifier = name.rpartition("/")
    if not _IDENTIFIER.fullmatch(identifier) or len(identifier) > NAME_LENGTH:
        return f"the name {identifier[:80]!r} is no identifier of at most {NAME_LENGTH} characters"
    if slash and (not _DOMAIN.fullmatch(domain) or len(domain) > DOMAIN_LENGTH):
        return f"the domain {domain[:80]!r} is no lower-case DNS name of at most {DOMAIN_LENGTH} characters"
    return ""


def _wrong_value(value: object) -> str:
    """Backends are other people's code: what the type checker forbids may come all the same."""
    match value:
        case bool():
            return ""
        case int():
            return "" if value in INT64 else f"{value} does not fit into 64 bits"
        case Version(text):
            if not _SEMVER.fullmatch(text):
                return (
                    f"{text[:80]!r} is no version of semver.org 2.0.0 (three numbers, no leading v)"
                )
            return _too_long(text)
        case str():
            return _too_long(value)
        case _:
            return f"a {type(value).__name__} is neither bool, int, str nor Version"


def _wrong_size(value: object) -> str:
    return "" if isinstance(value, Quantity) else f"a {type(value).__name__} is no Quantity"


def _too_long(text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return f"{text[:80]!a} is no text that can be encoded as UTF-8"
    return "" if size <= VALUE_BYTES else f"{text[:80]!r} is longer than {VALUE_BYTES} bytes"
