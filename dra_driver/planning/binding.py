# SPDX-License-Identifier: Apache-2.0
"""Which binding conditions does the driver set?

A device can have binding conditions: the scheduler allocates it, and then waits with the pod until each of them is True in the claim's
status.devices. A device of a fabric that is attached only when it is needed is such a device. For a device that says so
(`AllocatableDevice.binds`) the driver sets the conditions itself, as soon as a claim waits for them.
"""

from dra_driver.model.api.meta import Condition
from dra_driver.model.api.resource_claim import (
    AllocatedDeviceStatus,
    DeviceRequestAllocationResult,
)
from dra_driver.model.claim import Claim
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.names import READY_CONDITION
from dra_driver.planning.prepare import NodePlace

READY_REASON = READY_CONDITION
"""As the example driver's controller writes it."""
_MESSAGE = "the device can be used"


def binds_any(inventory: Inventory) -> bool:
    """Whether there is a device whose conditions the driver sets."""
    return any(device.binds for device in inventory.devices)


def entries_to_bind(
    claim: Claim, inventory: Inventory, place: NodePlace, now: str
) -> tuple[AllocatedDeviceStatus, ...]:
    """Return the entries with all conditions that the driver sets for this claim; empty if none of them is missing.

    A condition that is True already keeps its time.
    """
    ours = [one for one in claim.results or () if _is_ours(one, inventory, place)]
    since = {
        (*_key(status), condition.type): condition.last_transition_time
        for status in claim.statuses
        for condition in status.conditions or ()
        if condition.status == "True"
    }
    wanted = {(*_key(one), name) for one in ours for name in one.binding_conditions or ()}
    if wanted <= since.keys():
        return ()
    return tuple(
        AllocatedDeviceStatus(
            driver=one.driver,
            pool=one.pool,
            device=one.device,
            share_id=one.share_id,
            conditions=[
                Condition(
                    type=name,
                    status="True",
                    reason=READY_REASON,
                    message=_MESSAGE,
                    last_transition_time=since.get((*_key(one), name)) or now,
                )
                for name in one.binding_conditions or ()
            ],
        )
        for one in ours
    )


def _is_ours(result: DeviceRequestAllocationResult, inventory: Inventory, place: NodePlace) -> bool:
    device = inventory.by_name.get(DeviceName(result.device))
    is_here = (result.driver, result.pool) == (place.driver, place.pool)
    return is_here and device is not None and device.binds and bool(result.binding_conditions)


def _key(
    entry: DeviceRequestAllocationResult | AllocatedDeviceStatus,
) -> tuple[str, str, str, str]:
    return entry.driver, entry.pool, entry.device, entry.share_id or ""
