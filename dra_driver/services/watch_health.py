# SPDX-License-Identifier: Apache-2.0
"""What the kubelet is told about each device's health: the inventory's word, and what the inventory cannot know.

A device that vanished while a claim names it is still in the slices; here it is UNHEALTHY.
"""

import time
from collections.abc import Callable, Iterable
from threading import Condition

from dra_driver.errors import Temporary
from dra_driver.model.health import DeviceHealth, Health, HealthStatus
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.inventory import Inventory

VANISHED = Health(
    HealthStatus.UNHEALTHY, "the device vanished from this node while a claim is using it"
)


class HealthFeed:
    """One snapshot for all streams. `clock` answers Unix seconds."""

    def __init__(
        self,
        inventory: Callable[[], Inventory],
        pool: PoolName,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._inventory = inventory
        self._pool = pool
        self._clock = clock
        self._changed = Condition()
        self._version = 0
        self._kept: tuple[DeviceName, ...] = ()

    def set_kept(self, names: Iterable[DeviceName]) -> None:
        """Devices that vanished and stay published, because a claim names them."""
        kept = tuple(names)
        with self._changed:
            changed = kept != self._kept
            self._kept = kept
        if changed:
            self.wake()

    def snapshot(self) -> tuple[int, tuple[DeviceHealth, ...]]:
        """The version and the health of all devices, as of now."""
        with self._changed:
            version, kept = self._version, self._kept
        try:
            inventory = self._inventory()
        except Temporary:  # not scanned yet: nothing to tell
            inventory = Inventory()
        now = int(self._clock())
        present = [
            DeviceHealth(self._pool, device.name, device.health, now)
            for device in inventory.devices
        ]
        vanished = [
            DeviceHealth(self._pool, name, VANISHED, now)
            for name in kept
            if name not in inventory.by_name
        ]
        return version, (*present, *vanished)

    def wait(self, version: int, timeout: float) -> bool:
        """Wait until the version is another one, at most so many seconds; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version != version, timeout)

    def wake(self) -> None:
        """Let every stream send again; called at each change of the inventory too."""
        with self._changed:
            self._version += 1
            self._changed.notify_all()
