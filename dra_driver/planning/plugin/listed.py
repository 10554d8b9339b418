# SPDX-License-Identifier: Apache-2.0
"""Which units does the kubelet hear of, and which of them may it give out?

A unit is Unhealthy if its device is ill or not clean, if something else owns its hardware (a claim, a share of another kind, a partition), or
if the container that had it may still use it, or if somebody else's plugin gives its device out. It is Healthy while a container has it, because the kubelet counts it as given out. A unit that
a container has stays in the list when its device has vanished, so that its pod is told.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from dra_driver.model.device import AllocatableDevice, plain
from dra_driver.model.health import HealthStatus
from dra_driver.model.ids import DeviceKey, DeviceName, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plugin import ListedUnit, PluginResource, Unit
from dra_driver.model.state import PreparedClaim
from dra_driver.model.vocabulary import NUMA_NODE
from dra_driver.planning.occupied import Occupied, overlap
from dra_driver.planning.plugin.rows import units_of

Offered = Callable[[DeviceName], bool]
"""Whether a device is offered through the device plugin API; one that is not is listed for the containers that have it."""


class Listing:
    """The lists of all resources at one moment. `rows` are all rows of the state; `occupied` is the hardware of each owned device."""

    def __init__(
        self,
        inventory: Inventory,
        rows: Iterable[PreparedClaim],
        occupied: Occupied,
        *,
        offered: Offered = lambda _device: True,
        foreign: Collection[DeviceName] = (),
    ) -> None:
        self._inventory = inventory
        self._occupied = occupied
        self._offered = offered
        self._foreign = foreign
        self._rows = tuple(rows)
        self._owned: Mapping[DeviceName, list[tuple[DeviceKey, PreparedClaim]]] = _by_device(
            self._rows
        )
        # Devices whose hardware a device with an owner has, under another name.
        self._beside: dict[DeviceName, bool] = {}

    def of(self, resource: PluginResource) -> tuple[ListedUnit, ...]:
        """Return the list of one resource."""
        mine = [row for row in self._rows if row.ref.of_plugin and row.ref.name == resource.name]
        given = {unit for row in mine if row.held is None for unit in units_of(row)}
        listed = {
            unit.id: self._listed(unit, given)
            for unit in resource.units
            if unit.id in given or self._offered(unit.device)
        }
        gone = sorted(given - listed.keys())
        return (*listed.values(), *(ListedUnit(unit, healthy=False) for unit in gone))

    def _listed(self, unit: Unit, given: set[UnitId]) -> ListedUnit:
        device = self._inventory.by_name.get(unit.device)
        if device is None:
            return ListedUnit(unit.id, healthy=False)
        well = device.health.status is not HealthStatus.UNHEALTHY
        if unit.id not in given:
            mine = device.name not in self._foreign
            # What is found on a device with an owner is the owner's.
            clean = not device.not_clean or device.name in self._owned
            well = well and mine and clean and self._is_free(unit, device)
        return ListedUnit(unit.id, healthy=well, numa_nodes=numa_nodes(device))

    def _is_free(self, unit: Unit, device: AllocatableDevice) -> bool:
        own = self._owned.get(unit.device, ())
        if any(key.share == unit.share or not (key.share and unit.share) for key, _ in own):
            return False
        return bool(own) or not self._is_beside(device)

    def _is_beside(self, device: AllocatableDevice) -> bool:
        """Whether an owned device of another name is the same hardware."""
        if device.name not in self._beside:
            pieces = device.resource.pieces
            self._beside[device.name] = any(
                name != device.name and overlap(pieces, others)
                for name, others in self._occupied.items()
            )
        return self._beside[device.name]


def numa_nodes(device: AllocatableDevice) -> tuple[int, ...]:
    """Return the NUMA nodes of a device; empty if they are not known."""
    found = plain((device.api.attributes or {}).get(NUMA_NODE))
    nodes: Sequence[object] = found if isinstance(found, list) else (found,)
    return tuple(node for node in nodes if isinstance(node, int) and not isinstance(node, bool))


def _by_device(
    rows: Iterable[PreparedClaim],
) -> Mapping[DeviceName, list[tuple[DeviceKey, PreparedClaim]]]:
    found: defaultdict[DeviceName, list[tuple[DeviceKey, PreparedClaim]]] = defaultdict(list)
    for row in rows:
        for key in row.owned:
            found[key.device].append((key, row))
    return found
