# SPDX-License-Identifier: Apache-2.0
"""Does a pool have enough counters for one more device, and do the compatibility groups allow the device?

Partitions of one physical device are separate devices in the pool. They consume the same shared counters. This module
subtracts what allocated devices consume. The search subtracts more for each device that it tries, and adds it again when
it goes back. A counter can already be negative, for example after the driver published a smaller value. Then upstream
refuses every device of the pool that consumes any counter, not only devices that consume this one.

Compatibility groups say which devices may consume one counter set at the same time. All these devices must have one
group in common. A device without groups is compatible only with other devices without groups.
Source: k8s.io/dynamic-resource-allocation/structured/internal/experimental/allocator_experimental.go
(checkAvailableCounters, checkAndConsumeCompatibilityGroups).
"""

from collections.abc import Callable
from copy import copy

from dra_driver.allocator.devices import CounterName, SliceDevice
from dra_driver.allocator.pools import Pool

Common = frozenset[str] | None
"""The groups that all consumers of a counter set have in common. None if no consumer has a group (allEmpty upstream)."""


class AvailableCounters:
    """The available counters and the compatibility groups of one pool."""

    def __init__(self, pool: Pool, is_allocated: Callable[[SliceDevice], bool]) -> None:
        self._left = dict(pool.counters)
        self._groups: dict[str, Common] = {}
        # A pool has no counter sets if no device consumes counters, or if DRAPartitionableDevices is off. In the second
        # case the counter sets of `consumes` are not in `_left`.
        for device in pool.all_devices if pool.counter_sets else ():
            if device.device.consumes_counters and is_allocated(device):
                for name, taken in device.consumes.items():
                    self._left[name] -= taken
                self._add_groups(device)
        self._before = self._left
        self._overdrawn = any(left < 0 for left in self._left.values())
        self._overdrawn_before = self._overdrawn
        self._pool = pool

    @property
    def monotonic(self) -> bool:
        """Whether no device consumes a negative amount. A device with a negative amount would make counters free for others."""
        return not self._pool.counter_sets or all(
            taken >= 0 for device in self._pool.devices for taken in device.consumes.values()
        )

    def left(self, name: CounterName) -> int:
        """Return the available value of one counter, in billionths. The value can be negative."""
        return self._left[name]

    def exhausted(self, device: SliceDevice) -> CounterName | None:
        """Return the first counter that has too little for the device, or None."""
        wanted = device.consumes
        # Upstream compares all counters of the pool each time, so one negative counter excludes every consumer. Without a
        # negative counter only the device's own counters can fail, and checking these is much faster.
        names = self._left if self._overdrawn else wanted
        return next((name for name in names if self._left[name] < wanted.get(name, 0)), None)

    def never_enough(self, device: SliceDevice) -> bool:
        """Return whether the counters had too little for the device even before this search began."""
        return self._overdrawn_before or any(
            self._before[name] < taken for name, taken in device.consumes.items()
        )

    def copy(self) -> "AvailableCounters":
        """Return a copy that one search may change."""
        # Without counter sets there is nothing to change, and most pools have none.
        if not self._pool.counter_sets:
            return self
        other = copy(self)
        other.__dict__.update(_left=dict(self._left))
        return other

    def consume(self, device: SliceDevice) -> None:
        """Subtract what the device consumes. Call this only after `exhausted` returned None."""
        for name, taken in device.consumes.items():
            self._left[name] -= taken
        # `exhausted` returned None, so no counter is negative now. A negative consumption may have repaired one.
        self._overdrawn = False

    def release(self, device: SliceDevice) -> None:
        """Undo the last `consume`. The search undoes in the reverse order."""
        for name, taken in device.consumes.items():
            self._left[name] += taken
        self._overdrawn = any(self._left[name] < 0 for name in device.consumes)

    def incompatible(self, device: SliceDevice) -> str | None:
        """Return the first counter set whose consumers have no compatibility group in common with the device, or None."""
        for counter_set, own in device.groups:
            if counter_set not in self._groups:
                continue
            # `common` is None if the consumers have no groups (admits in compatibility_groups.go).
            common = self._groups[counter_set]
            if (common is not None) if not own else (common is None or not common & own):
                return counter_set
        return None

    def consume_groups(self, device: SliceDevice) -> dict[str, Common]:
        """Add the device to the consumers. Returns the value that `restore_groups` needs to undo this."""
        # An intersection cannot be reversed. So the old dict stays as it is, and undoing puts it back.
        before = self._groups
        self._groups = dict(before)
        self._add_groups(device)
        return before

    def restore_groups(self, before: dict[str, Common]) -> None:
        """Undo `consume_groups`, with the value that `consume_groups` returned."""
        self._groups = before

    def _add_groups(self, device: SliceDevice) -> None:
        for counter_set, own in device.groups:
            if counter_set not in self._groups:
                self._groups[counter_set] = own or None
                continue
            common = self._groups[counter_set]
            if common is not None and own:
                self._groups[counter_set] = common & own
