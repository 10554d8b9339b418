# SPDX-License-Identifier: Apache-2.0
"""A device as a backend found it: what the API says of it, and what a container needs to use it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import structs

from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.health import UNCHECKED, Health
from dra_driver.model.ids import DeviceName
from dra_driver.model.quantity import Quantity


@dataclass(frozen=True, slots=True)
class Version:
    """A version attribute as the hardware reports it.

    The API takes strict semver only. Whether `text` is one is decided before publication
    (`dra_driver.planning.slices`), where a bad one costs this attribute and nothing else.
    """

    text: str


AttributeValue = bool | int | str | Version


@dataclass(frozen=True, slots=True)
class AllocatableDevice:
    """One device of this node.

    `api` is the device as the ResourceSlice shall hold it, with any field of the API. Its name is a DNS label, stable across
    restarts and reboots: claims are allocated by it. Its attributes and capacity are what DeviceClasses and claims select by,
    under bare names (the driver's own domain) or qualified ones ("resource.kubernetes.io/pcieRoot"); they are checked against
    the API's limits when they are published.

    The other fields are for this node alone. `uuid` identifies the hardware and is what containers see. `edits` is the
    vendor's part of what a container gets.
    """

    api: Device
    uuid: str
    edits: ContainerEdits = field(default_factory=ContainerEdits)
    health: Health = UNCHECKED

    @property
    def name(self) -> DeviceName:
        """The name in the API, without the pool."""
        return DeviceName(self.api.name)


def attribute(value: AttributeValue) -> DeviceAttribute:
    """A plain value as the API writes it, with its type. What has another type is refused when it is published."""
    match value:
        case bool():  # before int: a bool is one
            return DeviceAttribute(bool_value=value)
        case int():
            return DeviceAttribute(int_value=value)
        case Version(text):
            return DeviceAttribute(version_value=text)
        case _:
            return DeviceAttribute(string_value=value)


def attributes(values: Mapping[str, AttributeValue]) -> dict[str, DeviceAttribute]:
    """Plain values by name, as a device of the API has them."""
    return {name: attribute(value) for name, value in values.items()}


def capacities(sizes: Mapping[str, Quantity]) -> dict[str, DeviceCapacity]:
    """Sizes by name, as a device of the API has them."""
    return {name: DeviceCapacity(value=str(size)) for name, size in sizes.items()}


def plain(
    value: DeviceAttribute | None,
) -> bool | int | str | list[bool] | list[int] | list[str] | None:
    """What an attribute says, without its type; None where it says nothing."""
    found = () if value is None else structs.astuple(value)
    return next((each for each in found if each is not None), None)
