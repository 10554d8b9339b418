# SPDX-License-Identifier: Apache-2.0
"""Which units does a container get best? The kubelet asks before it chooses; if it cannot take the advice, it chooses by itself.

Whole devices are chosen near each other: linked, on one NUMA node, below one PCIe root complex. Of equally good choices the one counts that takes
least from the rest: a single GPU comes from a group that is broken already. Shares fill one device before the next (packed), or are
spread over the devices. Units of memory are of one device, because a container cannot use the memory of two as one.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from dra_driver.model.device import plain
from dra_driver.model.ids import UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plugin import PluginResource, Sharing
from dra_driver.model.vocabulary import NUMA_NODE, PCIE_ROOT
from dra_driver.planning.plugin.problems import few
from dra_driver.planning.plugin.units import unit_of

_WEIGHTS = {"linkIsland": 4, NUMA_NODE: 2, PCIE_ROOT: 1}
"""How much it is worth that two devices have an attribute in common. A link is faster than all that a NUMA node gives."""

_Place = tuple[object, ...]
"""The values of these attributes; None for one that a device does not have."""
_NOWHERE: _Place = (None,) * len(_WEIGHTS)


def prefer(
    resource: PluginResource,
    inventory: Inventory,
    *,
    available: Collection[UnitId],
    must_include: Collection[UnitId],
    size: int,
    taken: Collection[UnitId],
) -> tuple[UnitId, ...]:
    """Return `size` of the available units, with those that must be among them first. `taken` are the units that containers have.

    Fewer are returned if there are not so many, and more only if more must be included. An unknown ID is a device by itself.
    """
    order = {unit.id: index for index, unit in enumerate(resource.units)}

    def ordered(ids: Collection[UnitId]) -> list[UnitId]:
        return sorted(set(ids), key=lambda one: (order.get(one, len(order)), one))

    kept = ordered(must_include)
    free = ordered(set(available) - set(kept))
    missing = min(max(0, size - len(kept)), len(free))
    if resource.sharing is Sharing.WHOLE:
        more = _near(kept, free, missing, _places(resource, inventory))
    else:
        more = _Shares(resource, taken, kept).choose(free, missing)
    return (*kept, *ordered(more))


def together(resource: PluginResource, ids: Collection[UnitId]) -> str:
    """Return why a container cannot have these units together; empty if it can."""
    wanted = set(ids)
    if len(wanted) < 2:  # noqa: PLR2004  one unit is together with itself
        return ""
    devices = {unit.id: unit.device for unit in resource.units if unit.id in wanted}
    named = sorted({devices.get(one, unit_of(one).device) for one in wanted})
    if resource.sharing is Sharing.MEMORY and len(named) > 1:
        return (
            f"{len(wanted)} units of {resource.name} are on devices {few(named)}, and a container can use the memory of one device only; ask for "
            f"less, or delete the pod, so that its successor gets units of one device"
        )
    if resource.refuses_several:
        return (
            f"a container asks for {len(wanted)} units of {resource.name}, and more units give no more of a device; ask for 1, or "
            f"set failRequestsGreaterThanOne to false"
        )
    return ""


class _Shares:
    """Chooses among shares, by how many shares of each device containers have."""

    def __init__(
        self, resource: PluginResource, taken: Collection[UnitId], kept: Collection[UnitId]
    ) -> None:
        self._devices = _devices(resource)
        self._together = resource.sharing is Sharing.MEMORY
        self._sign = -1 if resource.packed else 1
        self._used = Counter(map(self._device, {*taken, *kept}))
        self._kept = set(map(self._device, kept))

    def choose(self, free: Sequence[UnitId], size: int) -> Sequence[UnitId]:
        """Return so many of the free units."""
        return self._of_one_device(free, size) if self._together else self._one_by_one(free, size)

    def _one_by_one(self, free: Sequence[UnitId], size: int) -> list[UnitId]:
        """Return units of the device that is used least, or for packed most, and look again after each of them."""
        left, chosen = self._by_device(free), list[UnitId]()
        for _ in range(size):
            device = min((one for one in left if left[one]), key=self._rank)
            chosen.append(left[device].pop(0))
            self._used[device] += 1
        return chosen

    def _of_one_device(self, free: Sequence[UnitId], size: int) -> list[UnitId]:
        """Return units of one device, of several if no device has enough. A device of units that must be included comes first."""
        left = self._by_device(free)

        def rank(device: str) -> tuple[bool, int, int]:
            lacking = max(0, size - len(left[device]))
            return device not in self._kept, lacking, self._rank(device)

        return [unit for device in sorted(left, key=rank) for unit in left[device]][:size]

    def _rank(self, device: str) -> int:
        return self._sign * self._used[device]

    def _by_device(self, free: Sequence[UnitId]) -> dict[str, list[UnitId]]:
        left: dict[str, list[UnitId]] = {}
        for unit in free:
            left.setdefault(self._device(unit), []).append(unit)
        return left

    def _device(self, unit: UnitId) -> str:
        return self._devices.get(unit, unit_of(unit).device)


def _devices(resource: PluginResource) -> Mapping[UnitId, str]:
    return {unit.id: unit.device for unit in resource.units}


def _places(resource: PluginResource, inventory: Inventory) -> Mapping[UnitId, _Place]:
    places: dict[UnitId, _Place] = {}
    for unit in resource.units:
        found = inventory.by_name.get(unit.device)
        said = (found.api.attributes or {}) if found is not None else {}
        values = [plain(said.get(name)) for name in _WEIGHTS]
        places[unit.id] = tuple(one if isinstance(one, str | int) else None for one in values)
    return places


def _weight(one: _Place, other: _Place) -> int:
    return sum(
        weight
        for weight, mine, others in zip(_WEIGHTS.values(), one, other, strict=True)
        if mine is not None and mine == others
    )


def _near(
    kept: Sequence[UnitId], free: Sequence[UnitId], size: int, places: Mapping[UnitId, _Place]
) -> Sequence[UnitId]:
    """Return the units with the most in common. The search begins once at each place, and then always takes the nearest unit."""
    at: dict[_Place, list[UnitId]] = {}
    for unit in free:
        at.setdefault(places.get(unit, _NOWHERE), []).append(unit)
    begun = Counter(places.get(unit, _NOWHERE) for unit in kept)
    # A place with few free neighbours is one where little can still be broken.
    crowd = {
        one: sum(_weight(one, other) * len(units) for other, units in at.items())
        - _weight(one, one)
        for one in at
    }
    tries = [_grown(first, size, at, begun, crowd) for first in at]
    return min(tries, key=lambda one: one.rank).units if tries else ()


class _Try(NamedTuple):
    units: list[UnitId]
    rank: tuple[int, int]


def _grown(
    first: _Place,
    size: int,
    at: Mapping[_Place, Sequence[UnitId]],
    begun: Mapping[_Place, int],
    crowd: Mapping[_Place, int],
) -> _Try:
    left = {place: list(units) for place, units in at.items()}
    gain = {
        place: sum(_weight(place, other) * count for other, count in begun.items()) for place in at
    }
    chosen: list[UnitId] = []
    near = broken = 0
    place = first
    for _ in range(size):
        chosen.append(left[place].pop(0))
        near += gain[place]
        broken += crowd[place]
        for other in gain:
            gain[other] += _weight(other, place)
        nearest = [other for other in left if left[other]]
        place = min(nearest, key=lambda one: (-gain[one], crowd[one]), default=first)
    return _Try(chosen, (-near, broken))
