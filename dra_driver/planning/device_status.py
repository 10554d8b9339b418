# SPDX-License-Identifier: Apache-2.0
"""What does the driver say about the devices of a prepared claim, in the claim's status.devices?

Each device gets one entry with the condition Ready and with `data`: what people and programs ask of an allocated device, so that they
do not have to find it in the ResourceSlices, where it may have vanished. Only what the device's attributes, its capacity and the
claim's lease say is there; a field without a value is missing. Nothing in `data` changes while the device runs.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import structs

from dra_driver.model.api.meta import Condition
from dra_driver.model.api.resource_claim import AllocatedDeviceStatus
from dra_driver.model.claim import Claim
from dra_driver.model.device import AllocatableDevice, plain
from dra_driver.model.health import HealthStatus
from dra_driver.model.ids import DriverName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Lease
from dra_driver.model.names import READY_CONDITION
from dra_driver.model.state import PreparedClaim, PreparedDevice
from dra_driver.planning.moved import is_another, moved

PREPARED, UNHEALTHY, VANISHED = "Prepared", "Unhealthy", "Vanished"
_LONGEST_MESSAGE = 1000
_ATTRIBUTES = ("productName", "driverVersion")


def statuses_of(
    row: PreparedClaim, inventory: Inventory, driver: DriverName, pool: PoolName
) -> tuple[AllocatedDeviceStatus, ...]:
    """Return the entries for the devices of a Prepared row, without the times of their conditions. `pool` is the inventory's."""
    leases = {(lease.device, lease.share_id): lease for lease in row.leases or ()}
    return tuple(
        AllocatedDeviceStatus(
            driver=driver,
            pool=device.pool,
            device=device.device,
            share_id=device.share_id or None,
            conditions=[_ready(device, inventory, pool)],
            data=dict(
                _data(
                    device,
                    None
                    if is_another(device, inventory, pool)
                    else inventory.by_name.get(device.device),
                    leases.get((device.device, device.share_id)),
                    driver,
                )
            )
            or None,
        )
        for device in row.devices
    )


def entries_to_write(
    wanted: Iterable[AllocatedDeviceStatus], claim: Claim, driver: DriverName, now: str
) -> tuple[AllocatedDeviceStatus, ...]:
    """Return the entries with the times of their conditions; empty if the claim has them all already.

    A condition keeps its time for as long as its status does not change.
    """
    present = {_key(entry): entry for entry in claim.statuses if entry.driver == driver}
    timed = {_key(entry): _timed(entry, present.get(_key(entry)), now) for entry in wanted}
    if all(key in present and _same(entry, present[key]) for key, entry in timed.items()):
        return ()
    return tuple(timed.values())


def _ready(device: PreparedDevice, inventory: Inventory, pool: PoolName) -> Condition:
    found = inventory.by_name.get(device.device)
    status, reason, message = "True", PREPARED, "the device is set up for this claim"
    if said := moved(device, inventory, pool):
        status, reason, message = "False", VANISHED, said
    elif found is None and inventory.scanned and not inventory.may_exist(device.device):
        status, reason, message = "False", VANISHED, "the device is not found on its node any more"
    elif found is not None and found.health.status is HealthStatus.UNHEALTHY:
        status, reason = "False", UNHEALTHY
        message = (
            found.health.message[:_LONGEST_MESSAGE] or "the backend reports that it is unhealthy"
        )
    return Condition(type=READY_CONDITION, status=status, reason=reason, message=message)


def _data(
    device: PreparedDevice,
    found: AllocatableDevice | None,
    lease: Lease | None,
    driver: DriverName,
) -> Iterator[tuple[str, object]]:
    if found is not None and found.status_data is not None:
        yield from found.status_data.items()
        return
    if uuid := device.uuid or (found.uuid if found is not None else ""):
        yield "uuid", uuid
    values = {} if found is None else _short_names(found, driver)
    for name in (*_ATTRIBUTES, "memory"):
        if name in values:
            yield name, values[name]
    if device.share_id:
        share: dict[str, object] = {"id": device.share_id}
        if lease is not None and lease.consumed_capacity:
            share["consumedCapacity"] = dict(lease.consumed_capacity)
        if "enforcement" in values:
            share["enforcement"] = values["enforcement"]
        yield "share", share


def _short_names(found: AllocatableDevice, driver: DriverName) -> Mapping[str, object]:
    """Return the attributes and the memory by their names without the driver's own domain."""
    own = f"{driver}/"
    values: dict[str, object] = {
        name.removeprefix(own): value
        for name, attribute in (found.api.attributes or {}).items()
        if (value := plain(attribute)) is not None
    }
    sizes = found.api.capacity or {}
    return values | {
        name.removeprefix(own): str(size.value)
        for name, size in sizes.items()
        if name.removeprefix(own) == "memory"
    }


def _timed(
    entry: AllocatedDeviceStatus, before: AllocatedDeviceStatus | None, now: str
) -> AllocatedDeviceStatus:
    known = {one.type: one for one in (before.conditions if before else None) or ()}
    conditions = [
        structs.replace(one, last_transition_time=_since(one, known.get(one.type), now))
        for one in entry.conditions or ()
    ]
    return structs.replace(entry, conditions=conditions)


def _since(condition: Condition, before: Condition | None, now: str) -> str:
    if before is None or before.status != condition.status:
        return now
    return before.last_transition_time or now


def _same(wanted: AllocatedDeviceStatus, present: AllocatedDeviceStatus) -> bool:
    """Whether the entry at the API server has everything of the wanted one. Conditions of others may be in it too."""
    known = present.conditions or []
    return wanted.data == present.data and all(one in known for one in wanted.conditions or ())


def _key(entry: AllocatedDeviceStatus) -> tuple[str, str, str, str]:
    return entry.driver, entry.pool, entry.device, entry.share_id or ""
