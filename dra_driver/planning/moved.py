# SPDX-License-Identifier: Apache-2.0
"""Has a claim still the hardware that it was prepared with, or has its device's name moved to other hardware?

A claim names its device. After a GPU was lost and the kernel driver was loaded again without a reboot, the other GPUs may have other
names. So the row of a Prepared claim has the UUID of its device, and that counts. A row that was made from a CDI file has none, and some
hardware says none: then the name is all that is known. The same is true of a row from the time when this node had another name, and so
another pool: simulated hardware makes its UUIDs of the node's name.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice


def is_another(device: PreparedDevice, inventory: Inventory, pool: PoolName) -> bool:
    """Whether a device of this name is found that is not the one that the claim was prepared with. `pool` is the inventory's."""
    found = inventory.by_name.get(device.device) if device.pool == pool else None
    return found is not None and bool(device.uuid and found.uuid) and device.uuid != found.uuid


def moved(device: PreparedDevice, inventory: Inventory, pool: PoolName) -> str:
    """Say which device has the name now, or which name the device has; empty if neither has changed, or if the device is only gone."""
    if device.pool != pool:
        return ""
    another = is_another(device, inventory, pool)
    if not another and (device.device in inventory.by_name or inventory.may_exist(device.device)):
        return ""
    same = (one.name for one in inventory.devices if device.uuid and one.uuid == device.uuid)
    name = next(same, None)
    if not another:
        return f"the device with UUID {device.uuid} is called {name} now" if name else ""
    where = f"is called {name}" if name else "is not found any more"
    return (
        f"{device.device} is another device now (UUID {inventory.by_name[device.device].uuid}); the one that the claim was prepared with "
        f"(UUID {device.uuid}) {where}"
    )


def moved_devices(
    rows: Iterable[PreparedClaim], inventory: Inventory, pool: PoolName, boot_id: str
) -> Mapping[DeviceName, str]:
    """Return what `moved` says of each device of the pool that a claim owns."""
    return {
        device.device: said
        for row, device, said in moved_of(rows, inventory, pool, boot_id)
        if not (row.ref.of_plugin or device.admin_access)
    }


def moved_of(
    rows: Iterable[PreparedClaim], inventory: Inventory, pool: PoolName, boot_id: str
) -> Iterator[tuple[PreparedClaim, PreparedDevice, str]]:
    """Yield each Prepared row with each of its devices that has moved, and what `moved` says. After a reboot a claim is prepared anew,
    with what its device's name is then.
    """
    for row in rows:
        if row.phase is Phase.PREPARED and row.boot_id == boot_id:
            for device in row.devices:
                if said := moved(device, inventory, pool):
                    yield row, device, said


def known_hardware(
    rows: Iterable[PreparedClaim], pool: PoolName, boot_id: str
) -> Mapping[DeviceName, str]:
    """Return the UUIDs that devices of rows had when these were prepared in this boot; "" for a name that may have been another device's.

    After a reboot a fixed row keeps its names, each with the UUID of its unit, and this can be another device now. A lease on this very
    hardware shows that it is not. What the row has besides was found in this boot, under the name that it has.
    """
    known: dict[DeviceName, str] = {}
    for row in rows:
        if row.boot_id != boot_id:
            continue
        doubtful = answered(row) if row.is_fixed else ()
        parents = {lease.device: lease.parent for lease in row.leases or ()}
        for device in row.devices:
            if device.pool != pool or not device.uuid:
                continue
            if device in doubtful and parents.get(device.device) != device.uuid:
                known.setdefault(device.device, "")
            else:
                known[device.device] = device.uuid
    return known


def answered(row: PreparedClaim) -> tuple[PreparedDevice, ...]:
    """Return the devices of a row of the device plugin API that the kubelet was told: the first one of each unit. After a reboot a fixed
    row has others besides (`planning/plugin/located.py`).
    """
    first: dict[tuple[str, ...], PreparedDevice] = {}
    for device in row.devices:
        first.setdefault(device.request_names, device)
    return tuple(first.values())


def without(inventory: Inventory, names: Iterable[DeviceName]) -> Inventory:
    """Return the inventory without these devices."""
    left_out = frozenset(names) & inventory.by_name.keys()
    if not left_out:
        return inventory
    devices = tuple(device for device in inventory.devices if device.name not in left_out)
    return replace(inventory, devices=devices)
