# SPDX-License-Identifier: Apache-2.0
"""Let a backend set up and undo leases, one at a time for each piece of hardware.

Several leases can share hardware: the partitions of a GPU, or the shares of a device, need one mode of the GPU or one daemon. The first
lease sets it up and the last one undoes it. So while a backend works on a lease, this process has a lock on the hardware, which another
driver process waits for, and tells the backend whether another lease is there (`Lease.is_alone`). When a lease of shared hardware is
undone, it is removed from its row before the lock is released. Otherwise two leases that end together would each take the other one
for a lease that stays, and nobody would undo what they share.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware, InUse, Lease


class LeaseBackend(Protocol):
    """The methods of a backend that work on leases."""

    def configure(self, lease: Lease, /) -> object:
        """Set up the lease and return the container edits. Raises DriverError."""

    def reset(self, lease: Lease, /) -> None:
        """Undo `configure`. Raises DriverError."""

    def in_use(self, device: DeviceName, /) -> InUse:
        """Whether a process uses the device."""


class LeaseTransaction(Protocol):
    """The methods of a state transaction that know leases and hardware."""

    def learn_hardware(self, pool: PoolName, found: Mapping[DeviceName, Hardware]) -> None:
        """Write down which physical resource is behind each device."""

    def has_other_lease(self, lease: Lease) -> bool:
        """Whether another lease of the same parent may be set up."""

    def set_undone(self, lease: Lease) -> None:
        """Remove the lease from its row."""


class LeaseStore(Protocol):
    """The methods of the state store that this file calls."""

    def transaction(self, commit: str) -> AbstractContextManager[LeaseTransaction]:
        """Open one transaction that commits under this name."""

    def reading(self) -> AbstractContextManager[LeaseTransaction]:
        """Read without a transaction."""


class HardwareRecord:
    """Keeps the state's record of the hardware current. The process has one.

    It writes only if the hardware has changed since the last time, and once at the start: another process, or an older driver, may have
    written since.
    """

    def __init__(self, store: LeaseStore, pool: PoolName) -> None:
        self._store = store
        self._pool = pool
        self._seen: Inventory | None = None
        self._learned: Mapping[DeviceName, Hardware] | None = None

    def learn(self, inventory: Inventory) -> None:
        """Write down which physical resource is behind each device of a scanned inventory."""
        if inventory is self._seen or not inventory.scanned:
            return
        found = {device.name: device.resource for device in inventory.devices}
        if found != self._learned:
            with self._store.transaction("learned") as transaction:
                transaction.learn_hardware(self._pool, found)
        self._seen, self._learned = inventory, found


class _Siblings:
    """The devices of each physical resource, grouped once for each inventory: a node can have hundreds of partitions."""

    def __init__(self) -> None:
        self._found: tuple[Inventory, Mapping[str, tuple[AllocatableDevice, ...]]] | None = None

    def of(self, inventory: Inventory, parent: str) -> tuple[AllocatableDevice, ...]:
        found = self._found
        if found is None or found[0] is not inventory:
            by_parent: dict[str, tuple[AllocatableDevice, ...]] = {}
            for device in inventory.devices:
                name = device.resource.parent
                by_parent[name] = (*by_parent.get(name, ()), device)
            found = self._found = (inventory, by_parent)
        return found[1].get(parent, ())


@dataclass(frozen=True, slots=True)
class LeasedHardware:
    """Calls the backend for a lease, with the hardware's lock. `lock(names, until, purpose)` takes locks; `learn` is that of the
    HardwareRecord.
    """

    backend: LeaseBackend
    store: LeaseStore
    inventory: Callable[[], Inventory]
    lock: Callable[[Iterable[str], float, str], AbstractContextManager[None]]
    learn: Callable[[Inventory], None]
    _siblings: _Siblings = field(default_factory=_Siblings, init=False)

    def configure(self, lease: Lease, until: float) -> object:
        """Set up the lease and return what the backend returned. Raises DriverError, also if the lock is not free by `until`."""
        shared = self._is_shared(lease)
        with self.lock(_locks(lease, shared=shared), until, f"setting up for {_claim(lease)}"):
            return self.backend.configure(self._told(lease, shared=shared))

    def reset(self, lease: Lease, until: float) -> None:
        """Undo the lease. Raises DriverError."""
        lease = self._completed(lease)
        shared = self._is_shared(lease)
        with self.lock(_locks(lease, shared=shared), until, f"resetting after {_claim(lease)}"):
            self.backend.reset(self._told(lease, shared=shared))
            if shared:
                with self.store.transaction("undone") as transaction:
                    transaction.set_undone(lease)

    def in_use(self, lease: Lease) -> bool:
        """Whether the hardware says that a process uses the device of this lease.

        A device with shares may be used by another share: then it is False. A partition is a device of its own. A device that is not
        known (yet) is not asked about: the hardware may hang, and the release has the proof of the cgroups.
        """
        device = self._present(lease)
        if lease.share_id or device is None or device.api.allow_multiple_allocations:
            return False
        return self.backend.in_use(device.name) is InUse.YES

    def _present(self, lease: Lease) -> AllocatableDevice | None:
        """Return the device that is the hardware of the lease now: another one may have its name. A row of an older driver names none."""
        named = self.inventory().by_name.get(lease.device)
        if not lease.parent or (named is not None and named.resource.parent == lease.parent):
            return named
        pieces = Hardware(lease.parent, lease.parts).pieces
        siblings = self._siblings.of(self.inventory(), lease.parent)
        return next((one for one in siblings if one.resource.pieces == pieces), None)

    def _completed(self, lease: Lease) -> Lease:
        """Add the physical resource to a lease that was made from the row of an older driver, or from a CDI file."""
        device = self.inventory().by_name.get(lease.device)
        if lease.parent or device is None:
            return lease
        found = device.resource
        return dataclasses.replace(
            lease,
            backend=device.backend,
            parent=found.parent,
            parts=found.parts,
            profile=found.profile,
        )

    def _is_shared(self, lease: Lease) -> bool:
        """Whether several leases can have this hardware. A device that is not found (any more) may have had such a parent."""
        found = self._siblings.of(self.inventory(), lease.parent)
        names = {device.name for device in found}
        return (
            bool(lease.share_id)
            or names != {lease.device}
            or any(device.api.allow_multiple_allocations for device in found)
        )

    def _told(self, lease: Lease, *, shared: bool) -> Lease:
        if not shared:
            return lease
        # Rows from a lost state were written before the first scan: the state does not know yet what they occupy.
        self.learn(self.inventory())
        with self.store.reading() as state:
            # Of a device that vanished from a lost state nobody knows the parent: then what others may share stays set up.
            alone = bool(lease.parent) and not state.has_other_lease(lease)
            return dataclasses.replace(lease, is_alone=alone)


def _locks(lease: Lease, *, shared: bool) -> list[str]:
    # An older driver process beside this one locks the device by its name.
    names = [f"device-{lease.device}"]
    if shared and lease.parent:
        digest = blake2b(lease.parent.encode(errors="surrogateescape"), digest_size=8)
        names.append(f"hardware-{digest.hexdigest()}")
    return names


def _claim(lease: Lease) -> str:
    return f"claim uid {lease.claim_uid}"
