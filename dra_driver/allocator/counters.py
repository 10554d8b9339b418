# SPDX-License-Identifier: Apache-2.0
"""Do the counters of a pool suffice for one more device, and do its compatibility groups allow it?

Partitions of one piece of hardware are separate devices that consume the same counters. Each ledger is what is left
while the search tries; giving back restores it. A counter that is overdrawn already (the driver shrank it) stops every
consumer of the pool, not only those of that counter.

Compatibility groups say which devices may consume a counter set side by side: all must have one group in common; a
device without groups goes only with others without.
Source: k8s.io/dynamic-resource-allocation/structured/internal/experimental/allocator_experimental.go
(checkAvailableCounters, checkAndConsumeCompatibilityGroups).
"""

from collections.abc import Callable
from copy import copy

from dra_driver.allocator.devices import CounterName, SliceDevice
from dra_driver.allocator.pools import Pool

Common = frozenset[str] | None
"""The groups that all consumers of a counter set have in common; None if none of them has any group."""


class Ledger:
    """What is left in one pool."""

    def __init__(self, pool: Pool, is_allocated: Callable[[SliceDevice], bool]) -> None:
        self._left = dict(pool.counters)
        self._groups: dict[str, Common] = {}
        # A pool without counter sets has no consumers, or the feature is off and they are out of reach.
        for device in pool.all_devices if pool.counter_sets else ():
            if device.device.consumes_counters and is_allocated(device):
                for name, taken in device.consumes.items():
                    self._left[name] -= taken
                self._join(device)
        self._before = self._left
        self._overdrawn = any(left < 0 for left in self._left.values())
        self._overdrawn_before = self._overdrawn
        self._pool = pool

    @property
    def monotonic(self) -> bool:
        """Whether giving a device away never makes room for another."""
        return not self._pool.counter_sets or all(
            taken >= 0 for device in self._pool.devices for taken in device.consumes.values()
        )

    def left(self, name: CounterName) -> int:
        """What is left of one counter, in billionths; below 0 if it is overdrawn."""
        return self._left[name]

    def exhausted(self, device: SliceDevice) -> CounterName | None:
        """A counter that does not suffice for the device, or None."""
        wanted = device.consumes
        names = self._left if self._overdrawn else wanted
        return next((name for name in names if self._left[name] < wanted.get(name, 0)), None)

    def never(self, device: SliceDevice) -> bool:
        """Whether the counters did not suffice for the device even before anybody took from this ledger."""
        return self._overdrawn_before or any(
            self._before[name] < taken for name, taken in device.consumes.items()
        )

    def copy(self) -> "Ledger":
        """A ledger for one search."""
        if not self._pool.counter_sets:
            return self
        other = copy(self)
        other.__dict__.update(_left=dict(self._left))
        return other

    def take(self, device: SliceDevice) -> None:
        """Take what the device consumes, after `exhausted` found nothing."""
        for name, taken in device.consumes.items():
            self._left[name] -= taken
        self._overdrawn = False

    def give_back(self, device: SliceDevice) -> None:
        """Undo `take`."""
        for name, taken in device.consumes.items():
            self._left[name] += taken
        self._overdrawn = any(self._left[name] < 0 for name in device.consumes)

    def incompatible(self, device: SliceDevice) -> str | None:
        """A counter set whose consumers have no group in common with the device, or None."""
        for counter_set, own in device.groups:
            if counter_set not in self._groups:
                continue
            common = self._groups[counter_set]
            if (common is not None) if not own else (common is None or not common & own):
                return counter_set
        return None

    def join(self, device: SliceDevice) -> dict[str, Common]:
        """Put the device beside the others; answers what `part` needs to undo it."""
        before = self._groups
        self._groups = dict(before)
        self._join(device)
        return before

    def part(self, before: dict[str, Common]) -> None:
        """Undo `join`."""
        self._groups = before

    def _join(self, device: SliceDevice) -> None:
        for counter_set, own in device.groups:
            if counter_set not in self._groups:
                self._groups[counter_set] = own or None
                continue
            common = self._groups[counter_set]
            if common is not None and own:
                self._groups[counter_set] = common & own
