# SPDX-License-Identifier: Apache-2.0
"""Which devices are the units of an earlier boot's rows now?

A unit's ID is the UUID of its device, so it says which hardware the kubelet means. A row also has the device's name, by which the state knows
its owner, and names can mean other hardware after a reboot: a GPU is dead, or the kernel counts in another order. So such a row gets the names
of now. The rows that exchange names own each other's; they do so together, in one transaction.

That is right only where a new CDI file changes what the row's containers get. A *fixed* row may have been answered with device files: the kubelet
keeps them, and the container opens the device that has this file now, with the name that goes with it. So such a row keeps its names, and
nobody else gets their devices. It may mean its units' devices too (another plugin told a runtime UUIDs), so these are reserved besides.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import ClaimUid, DeviceKey, DeviceName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Lease
from dra_driver.model.plan import Forget, MarkStarted, Refusal, Step
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice
from dra_driver.planning.moved import answered
from dra_driver.planning.occupied import overlap
from dra_driver.planning.plugin.units import UnitIds


class Renamed(Struct, frozen=True):
    """`rows` get other names, and go on to be of their earlier boot. `let_go` says why rows must leave their names to the devices of now."""

    rows: Mapping[ClaimUid, PreparedClaim]
    let_go: Mapping[ClaimUid, str]

    @property
    def uids(self) -> frozenset[ClaimUid]:
        """All rows that change."""
        return frozenset((*self.rows, *self.let_go))

    @property
    def steps(self) -> tuple[Step, ...]:
        """The marks of one transaction: all leave their names before one of them gets its new ones."""
        return (*map(Forget, sorted(self.uids)), *map(MarkStarted, self.rows.values()))


def located(row: PreparedClaim, inventory: Inventory) -> PreparedClaim | Refusal:
    """Return the row with the devices that its units mean now, and leases for them; or why its pod cannot have them."""
    if not row.ref.name:
        return row  # of a CDI file alone: which units it has is not known
    ids = UnitIds(inventory)
    found = [(device, ids.device_of(device.request_names[0])) for device in row.devices]
    for device, now in found:
        if now is None:
            return Refusal(_missing(row, device, inventory))
    here = {device.key: now for device, now in found if now is not None}
    return replace(
        row,
        devices=tuple(
            dataclasses.replace(device, device=here[device.key].name, uuid=here[device.key].uuid)
            for device in row.devices
        ),
        leases=None
        if row.leases is None
        else tuple(_leased(lease, row, here) for lease in row.leases),
    )


def stayed(row: PreparedClaim, inventory: Inventory) -> PreparedClaim | Refusal:
    """Return a fixed row with the devices that have its names now, and leases for them, but without those that were reserved besides.

    A device keeps the UUID of its unit, which says that another one has the name.
    """
    if not row.ref.name:
        return row
    bare = replace(row, devices=answered(row))
    found = located(bare, inventory)
    if isinstance(found, PreparedClaim) and found.owned == bare.owned:
        return found
    here: dict[DeviceKey, AllocatableDevice] = {}
    for device in bare.devices:
        now = inventory.by_name.get(device.device)
        if now is None:
            return found if isinstance(found, Refusal) else Refusal(_without_file(row, device))
        here[device.key] = now
    leases = None if row.leases is None else tuple(_leased(one, row, here) for one in row.leases)
    return replace(bare, leases=leases)


def also_reserved(
    row: PreparedClaim, inventory: Inventory, others: Iterable[PreparedClaim]
) -> tuple[PreparedDevice, ...]:
    """Return the devices that the units of a row mean now, if they have other names than the row, and if no other row has them."""
    ids = UnitIds(inventory)
    taken = [key for one in (row, *others) for key in one.owned]
    found: list[PreparedDevice] = []
    for device in row.devices:
        for unit in device.request_names:
            now = ids.device_of(unit)
            if now is None or now.name == device.device:
                continue
            spare = dataclasses.replace(device, device=now.name, uuid=now.uuid, cdi_ids=())
            if not _are_taken([spare.key], taken, inventory):
                found.append(spare)
                taken.append(spare.key)
    return tuple(found)


def plan_renamed(
    rows: Sequence[PreparedClaim], inventory: Inventory, *, pool: PoolName, boot_id: str
) -> Renamed:
    """Find the rows of earlier boots whose devices have other names now. `rows` are all rows of the state.

    A row stays as it is if a name that it needs is that of a row that stays: a claim's, a fixed one, or one of this boot.
    """
    names: dict[ClaimUid, PreparedClaim] = {}
    let_go: dict[ClaimUid, str] = {}
    for row in rows:
        if not row.ref.of_plugin or row.boot_id == boot_id or row.held is not None or row.is_fixed:
            continue
        now = located(row, inventory)
        if isinstance(now, Refusal):
            if any(_is_lost(device, inventory, pool) for device in row.devices):
                let_go[row.ref.uid] = now.reason
        elif now.owned != row.owned:
            names[row.ref.uid] = replace(now, phase=Phase.STARTED, cdi_spec="")
    while names:
        others = [row for row in rows if row.ref.uid not in names and row.ref.uid not in let_go]
        taken = [key for row in others for key in row.owned]
        blocked = [uid for uid, row in names.items() if _are_taken(row.owned, taken, inventory)]
        if not blocked:
            break
        for uid in blocked:
            del names[uid]
    return Renamed(names, let_go)


def _leased(lease: Lease, row: PreparedClaim, here: Mapping[DeviceKey, AllocatableDevice]) -> Lease:
    pool = row.devices[0].pool
    now = here[DeviceKey(pool, lease.device, lease.share_id)]
    return dataclasses.replace(
        lease,
        device=now.name,
        backend=now.backend,
        parent=now.resource.parent,
        parts=now.resource.parts,
        profile=now.resource.profile,
    )


def _missing(row: PreparedClaim, device: PreparedDevice, inventory: Inventory) -> str:
    unit = f"unit {device.request_names[0]} of resource {row.ref.name}"
    if not inventory.scanned or inventory.may_exist(device.device):
        return f"{unit} is not known yet: the hardware has not been read completely since the driver started; it is tried again"
    found = inventory.by_name.get(device.device)
    other = "" if found is None else f", and {device.device} is another device now ({found.uuid})"
    pods = ", ".join(row.users.pods or ()) or "not known"
    return (
        f"{unit} cannot be set up again after the reboot: its device, which was called {device.device}, is not found any more{other}; "
        f"`dra-driver devices` shows what is; delete the pod (UID {pods}) if nothing creates it again, and look after the device"
    )


def _without_file(row: PreparedClaim, device: PreparedDevice) -> str:
    pods = ", ".join(row.users.pods or ()) or "not known"
    return (
        f"unit {device.request_names[0]} of resource {row.ref.name} cannot be set up again after the reboot: the kubelet may have kept the device "
        f"file of {device.device}, and no device has this name now; `dra-driver devices` shows what is; delete the pod (UID {pods}) if "
        f"nothing creates it again"
    )


def _is_lost(device: PreparedDevice, inventory: Inventory, pool: PoolName) -> bool:
    """Whether a device's name is that of other hardware, which somebody else may get. Ask only if not all units of its row are found."""
    found = inventory.by_name.get(device.device)
    return found is not None and device.pool == pool and device.uuid != found.uuid


def _are_taken(
    wanted: Collection[DeviceKey], taken: Collection[DeviceKey], inventory: Inventory
) -> bool:
    return any(_exclude(mine, other, inventory) for mine in wanted for other in taken)


def _exclude(one: DeviceKey, other: DeviceKey, inventory: Inventory) -> bool:
    """Whether two owners cannot be: of a device or of a share of it, or of devices that are the same hardware."""
    if one.pool != other.pool:
        return False
    if one.device == other.device:
        return one.share == other.share or not (one.share and other.share)
    pieces = [_pieces(inventory, key.device) for key in (one, other)]
    return overlap(*pieces)


def _pieces(inventory: Inventory, name: DeviceName) -> frozenset[tuple[str, str]]:
    found = inventory.by_name.get(name)
    return frozenset() if found is None else found.resource.pieces
