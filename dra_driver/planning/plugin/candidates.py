# SPDX-License-Identifier: Apache-2.0
"""Which devices can the device plugin API offer, and as what do classes see them?

Classes are written for devices as they are published. So a value that the API server would refuse is no value here either, and a
device that the driver would not publish is not offered.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

from dra_driver.model.api.resource_slice import Device
from dra_driver.model.claim import OpaqueConfig
from dra_driver.model.device import AllocatableDevice, plain
from dra_driver.model.ids import DriverName, ResourceName
from dra_driver.model.inventory import Inventory
from dra_driver.planning.plugin.problems import ResourceProblem
from dra_driver.planning.slices import PoolPlan

Report = Callable[[ResourceProblem], None]
_NO_STEP = "the device is not offered through the device plugin API; offer it through DRA"


class Candidate(Struct, frozen=True):
    """A device as it was found, and as it is published."""

    found: AllocatableDevice
    published: Device

    def said(self, name: str, driver: DriverName) -> str:
        """A string attribute of the driver's own; empty if the device has none."""
        attributes = self.published.attributes or {}
        value = plain(attributes.get(name) or attributes.get(f"{driver}/{name}"))
        return value if isinstance(value, str) else ""


class Group(Struct, frozen=True):
    """The devices of one resource, before it is decided how they are shared. `device_class` is "" for a customary name.

    `blocked` are devices that would be in the group, if no device of an earlier group were the same hardware.
    """

    resource: ResourceName
    devices: tuple[Candidate, ...]
    source: str
    configs: tuple[OpaqueConfig, ...] = ()
    device_class: str = ""
    blocked: tuple[Candidate, ...] = ()


def candidates(inventory: Inventory, plan: PoolPlan, report: Report) -> Iterator[Candidate]:
    """Yield the devices that the device plugin API can offer, in the inventory's order. `plan` is what would be published of it."""
    published = plan.devices
    for found in inventory.devices:
        device = published.get(found.name)
        if device is None:
            continue
        if device.binding_conditions and not found.binds:
            conditions = ", ".join(device.binding_conditions)
            waits = (
                f"a controller has to set {conditions} for a pod, and this API has no step for that"
            )
            report(ResourceProblem(f"device {found.name}", "bindingConditions", waits, _NO_STEP))
        else:
            yield Candidate(found, device)
