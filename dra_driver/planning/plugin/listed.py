# SPDX-License-Identifier: Apache-2.0
"""Which units does the kubelet hear of, and which of them may it give out?

A unit is Unhealthy if its device is ill or not clean, if something else owns its hardware (a claim, a share of another kind, a partition), or
if the container that had it may still use it, or if somebody else's plugin gives its device out. It is Healthy while a container has it, because the kubelet counts it as given out. A unit that
a container has stays in the list when its device has vanished, so that its pod is told. If the name belongs to another device now than the
one that a container has, no unit of it is Healthy until that container has ended.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from dra_driver.model.device import AllocatableDevice, plain
from dra_driver.model.health import HealthStatus
from dra_driver.model.ids import NO_SHARE, DeviceName, PoolName, ShareId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plugin import ListedUnit, PluginResource, Unit
from dra_driver.model.state import Phase, PreparedClaim
from dra_driver.model.vocabulary import NUMA_NODE
from dra_driver.planning.moved import is_another
from dra_driver.planning.occupied import Occupied, overlap
from dra_driver.planning.plugin.rows import answered_units, units_of

Offered = Callable[[DeviceName], bool]
"""Whether a device is offered through the device plugin API; one that is not is listed for the containers that have it."""


class Listing:
    """The lists of all resources at one moment. `rows` are all rows of the state; `occupied` is the hardware of each owned
    device. `pool` is the inventory's.
    """

    def __init__(
        self,
        inventory: Inventory,
        rows: Iterable[PreparedClaim],
        occupied: Occupied,
        pool: PoolName,
        *,
        offered: Offered = lambda _device: True,
        foreign: Collection[DeviceName] = (),
    ) -> None:
        self._inventory = inventory
        self._occupied = occupied
        self._offered = offered
        self._foreign = foreign
        self._rows = tuple(rows)
        self._owned = _owned_shares(self._rows)
        self._exchanged = frozenset(
            device.device
            for row in self._rows
            if row.phase is Phase.PREPARED
            for device in row.devices
            if is_another(device, inventory, pool)
        )
        # A node can have hundreds of units of a device.
        self._devices: dict[DeviceName, _OfDevice] = {}

    def of(self, resource: PluginResource) -> tuple[ListedUnit, ...]:
        """Return the list of one resource."""
        mine = [row for row in self._rows if row.ref.of_plugin and row.ref.name == resource.name]
        given = {
            unit
            for row in mine
            if row.held is None
            # What has no answer any more is being taken back.
            for unit in (answered_units(row) if row.cdi_spec else units_of(row))
        }
        found = ((unit, self._of_device(unit.device)) for unit in resource.units)
        listed = {
            unit.id: device.listed(unit, given=unit.id in given)
            for unit, device in found
            if device.offered or unit.id in given
        }
        gone = sorted(given - listed.keys())
        return (*listed.values(), *(ListedUnit(unit, healthy=False) for unit in gone))

    def _of_device(self, name: DeviceName) -> "_OfDevice":
        found = self._devices.get(name)
        if found is None:
            found = self._devices[name] = self._judged(name)
        return found

    def _judged(self, name: DeviceName) -> "_OfDevice":
        offered = self._offered(name)
        device = self._inventory.by_name.get(name)
        if device is None:
            return _OfDevice(offered=offered)
        owned = self._owned.get(name, frozenset())
        # What is found on a device with an owner is the owner's.
        clean = bool(owned) or not device.not_clean
        return _OfDevice(
            offered=offered,
            well=device.health.status is not HealthStatus.UNHEALTHY and name not in self._exchanged,
            free=clean and name not in self._foreign and (bool(owned) or not self._beside(device)),
            owned=owned,
            numa_nodes=numa_nodes(device),
        )

    def _beside(self, device: AllocatableDevice) -> bool:
        """Whether an owned device of another name is the same hardware."""
        pieces = device.resource.pieces
        return any(
            name != device.name and overlap(pieces, others)
            for name, others in self._occupied.items()
        )


class _OfDevice(Struct, frozen=True):
    """What is the same for all units of a device; one that is not in the inventory is not `well`. `owned` are the shares that have an owner,
    NO_SHARE among them if that owns the whole device. `free`: nothing else keeps the device from a container that does not have it.
    """

    offered: bool
    well: bool = False
    free: bool = False
    owned: frozenset[ShareId] = frozenset()
    numa_nodes: tuple[int, ...] = ()

    def listed(self, unit: Unit, *, given: bool) -> ListedUnit:
        healthy = self.well and (given or (self.free and self._has(unit.share)))
        return ListedUnit(unit.id, healthy=healthy, numa_nodes=self.numa_nodes)

    def _has(self, share: ShareId) -> bool:
        """Whether the share, or with NO_SHARE the whole device, has no owner."""
        if not self.owned:
            return True
        return bool(share) and share not in self.owned and NO_SHARE not in self.owned


def numa_nodes(device: AllocatableDevice) -> tuple[int, ...]:
    """Return the NUMA nodes of a device; empty if they are not known."""
    found = plain((device.api.attributes or {}).get(NUMA_NODE))
    nodes: Sequence[object] = found if isinstance(found, list) else (found,)
    return tuple(node for node in nodes if isinstance(node, int) and not isinstance(node, bool))


def _owned_shares(rows: Iterable[PreparedClaim]) -> Mapping[DeviceName, frozenset[ShareId]]:
    found: defaultdict[DeviceName, set[ShareId]] = defaultdict(set)
    for row in rows:
        for key in row.owned:
            found[key.device].add(key.share)
    return {name: frozenset(shares) for name, shares in found.items()}
