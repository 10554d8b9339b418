# SPDX-License-Identifier: Apache-2.0
"""How many of these devices can claims have at the same time? Partitions of one device exclude each other: they consume the same counters.

Devices that have no counter set in common are counted by themselves. Among those that have one, a search with the allocator's own ledger
looks for the most that fit beside each other.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction

from dra_driver.allocator.counters import AvailableCounters
from dra_driver.allocator.devices import CounterName, SliceDevice
from dra_driver.explain.facts.fleet import Fleet

STEPS = 2_000
"""The search among the devices of one counter set ends after so many steps, with the most that it has found so far. Partitions of a GPU need
about as many steps as there are partitions."""
Key = tuple[object, ...]


class Together:
    """Counts devices of a cluster. Counter sets that look alike are searched once."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._known: dict[Key, int] = {}

    def most(self, devices: Iterable[SliceDevice]) -> int:
        """Return how many of these devices can be had at the same time. Each of them must be free by itself."""
        return sum(map(self._most_of, _connected(devices)))

    def _most_of(self, devices: Sequence[SliceDevice]) -> int:
        """Return the same for devices with common counter sets."""
        paid = [one for one in devices if one.id in self._fleet.held.shares]
        paying = [one for one in devices if one.id not in self._fleet.held.shares]
        if len(paying) <= 1:
            return len(devices)
        left = self._fleet.ledger(paying[0].slice.pool_id)
        grouped = self._fleet.rules.compatibility_groups
        # With compatibility groups, the answer depends on the groups of those that have devices, too.
        key = tuple(one.id for one in paying) if grouped else _key(paying, left)
        if key not in self._known:
            search = _Search(paying, left.copy(), grouped=grouped)
            self._known[key] = search.most()
        return len(paid) + self._known[key]


def _connected(devices: Iterable[SliceDevice]) -> Iterable[list[SliceDevice]]:
    """Return the devices in groups: two devices with a common counter set are in one."""
    parents: dict[object, object] = {}

    def root(one: object) -> object:
        while (above := parents.setdefault(one, one)) != one:
            parents[one] = parents[above]
            one = above
        return one

    first_sets: list[tuple[SliceDevice, object]] = []
    for device in devices:
        sets: list[object] = [(device.slice.pool_id, name) for name, _ in device.groups]
        first, *others = sets or [device.id]
        for other in others:
            parents[root(other)] = root(first)
        first_sets.append((device, first))
    groups: dict[object, list[SliceDevice]] = {}
    for device, one in first_sets:
        groups.setdefault(root(one), []).append(device)
    return groups.values()


def _key(devices: Sequence[SliceDevice], left: AvailableCounters) -> Key:
    """Return what the answer for the devices depends on: what they consume and what is left, but not the names of the counter sets."""
    sets = sorted({name for device in devices for name, _ in device.groups})
    number = {name: place for place, name in enumerate(sets)}
    taken = (
        (
            *sorted(
                (number[one], counter, each) for (one, counter), each in device.consumes.items()
            ),
            *sorted((number[one], *sorted(groups)) for one, groups in device.groups),
        )
        for device in devices
    )
    names = sorted({name for device in devices for name in device.consumes})
    return *taken, *((number[name[0]], name[1], left.left(name)) for name in names)


class _Search:
    """The search among devices with common counter sets. Small devices come first, because more of them fit."""

    def __init__(
        self, devices: Sequence[SliceDevice], left: AvailableCounters, *, grouped: bool
    ) -> None:
        self._left = left
        self._grouped = grouped
        self._names = sorted({name for device in devices for name in device.consumes})
        whole = {name: left.left(name) for name in self._names}
        self._devices = sorted(devices, key=lambda device: _part(device, whole))
        self._steps = STEPS
        self._best = 0

    def most(self) -> int:
        """Return the size of the largest choice that was found."""
        self._go_on(0, 0)
        return self._best

    def _go_on(self, chosen: int, place: int) -> None:
        """Add devices from `place` on to as many as were chosen, as long as a larger choice than the best one may come of it."""
        self._best = max(self._best, chosen)
        for at, device in enumerate(self._devices[place:], place):
            self._steps -= 1
            fitting = [one for one in self._devices[at:] if self._fits(one)]
            if self._steps < 0 or chosen + self._at_most(fitting) <= self._best:
                return
            if device is fitting[0]:
                self._left.consume(device)
                before = self._left.consume_groups(device)
                self._go_on(chosen + 1, at + 1)
                self._left.restore_groups(before)
                self._left.release(device)

    def _fits(self, device: SliceDevice) -> bool:
        grouped_apart = self._grouped and self._left.incompatible(device) is not None
        return not grouped_apart and self._left.exhausted(device) is None

    def _at_most(self, devices: Sequence[SliceDevice]) -> int:
        """Return a number of which no more of these devices can fit, by each counter that all of them consume."""
        most = len(devices)
        for name in self._names:
            least = min((device.consumes.get(name, 0) for device in devices), default=0)
            if least > 0:
                most = min(most, self._left.left(name) // least)
        return most


def _part(device: SliceDevice, whole: dict[CounterName, int]) -> Fraction:
    """Return how much the device takes of what is left of all counters."""
    parts = (Fraction(taken, whole[name]) for name, taken in device.consumes.items() if whole[name])
    return sum(parts, Fraction(0))
