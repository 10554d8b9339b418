# SPDX-License-Identifier: Apache-2.0
"""A device as a backend finds it: its fields in the API, and what a container needs to use it."""

from collections.abc import Mapping

from msgspec import Struct, field, structs

from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity, DeviceTaint
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.health import UNCHECKED, Health
from dra_driver.model.ids import DeviceName
from dra_driver.model.lease import Hardware
from dra_driver.model.quantity import Quantity


class Version(Struct, frozen=True):
    """A version attribute, with the text that the hardware reports.

    The API accepts strict semantic versions only. `dra_driver.planning.slices` checks the text before publication: if it is wrong,
    only this attribute is left out.
    """

    text: str


AttributeValue = bool | int | str | Version


class AllocatableDevice(Struct, frozen=True):
    """One device of this node.

    `api` is the device as it shall be in the ResourceSlice, with any field of the API. Its name is a DNS label and must be the same
    after a restart or a reboot, because claims refer to it. DeviceClasses and claims select by its attributes and capacity. Their
    names are without domain (then the driver's own counts) or qualified ("resource.kubernetes.io/pcieRoot"). The limits of the
    API are checked when the device is published.

    The other fields are used on this node only. `uuid` identifies the device. `hardware` is the physical resource behind it; a device
    without it is a resource of its own. What a container needs to use the device is the answer of `Backend.configure`.

    `declares` are unusual edits that `configure` may return: "hooks", or the name of a variable or the path of a mount that
    `dra_driver.planning.edits` refuses otherwise. With `binds` the driver itself sets the device's binding conditions, as soon as a claim
    waits for them; without it a controller of somebody else has to. `errors` counts the errors that the hardware reported since the
    driver started, by name ("xid-31"); the driver makes a metric of them. `status_data` replaces what the driver writes about the device
    into status.devices of its claims. `not_clean` says what the hardware finds on the device although no claim should use it ("process
    4711 uses it"), empty if nothing; while no claim has the device, the driver keeps new claims away from it. `numbers` are those that the
    vendor's tools give a partition's GPU ("index", "minor"), for the labels of metrics; a slice may have no room for them. `backend` is
    the name of the backend, and `config_kinds` are the kinds that it declares; the driver sets both.
    """

    api: Device
    uuid: str
    health: Health = UNCHECKED
    hardware: Hardware | None = None
    declares: frozenset[str] = frozenset()
    binds: bool = False
    errors: Mapping[str, int] = field(default_factory=dict)
    status_data: Mapping[str, object] | None = None
    not_clean: str = ""
    numbers: Mapping[str, int] = field(default_factory=dict)
    backend: str = ""
    config_kinds: tuple[ConfigKind, ...] = ()

    @property
    def name(self) -> DeviceName:
        """The name in the ResourceSlice, unique in the pool."""
        return DeviceName(self.api.name)

    @property
    def resource(self) -> Hardware:
        """The physical resource, which claims exclude each other from."""
        return self.hardware or Hardware(self.uuid or f"device {self.name}")

    @property
    def type(self) -> str:
        """The attribute `type`, which says what kind of device this is; empty if the backend gives it none."""
        found = (self.api.attributes or {}).get("type")
        return found.string_value or "" if isinstance(found, DeviceAttribute) else ""

    @property
    def reads(self) -> tuple[ConfigKind, ...]:
        """The kinds of configuration that this device reads, among those that its backend declares."""
        if not any(kind.device_type for kind in self.config_kinds):
            return self.config_kinds
        mine = self.type
        return tuple(kind for kind in self.config_kinds if kind.device_type in ("", mine))


def attribute(value: AttributeValue) -> DeviceAttribute:
    """The value as an attribute of the API. A value of another type is kept as it is; publication refuses it."""
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
    """Attributes for `Device.attributes`, from plain values by name."""
    return {name: attribute(value) for name, value in values.items()}


def capacities(sizes: Mapping[str, Quantity]) -> dict[str, DeviceCapacity]:
    """Capacities for `Device.capacity`, from quantities by name."""
    return {name: DeviceCapacity(value=str(size)) for name, size in sizes.items()}


def plain(
    value: DeviceAttribute | None,
) -> bool | int | str | list[bool] | list[int] | list[str] | None:
    """The value of an attribute without its type; None if it has none."""
    found = () if value is None else structs.astuple(value)
    return next((each for each in found if each is not None), None)


def taint_text(taint: DeviceTaint) -> str:
    """Return a taint as kubectl writes it: key=value:effect."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"
