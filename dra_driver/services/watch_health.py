# SPDX-License-Identifier: Apache-2.0
"""What the kubelet is told about each device's health: the inventory's word, and what the inventory cannot know.

A device that vanished while a claim names it is still in the slices; here it is UNHEALTHY.

Each report carries the time of the look that it comes from. A kubelet puts the time of arrival in its place (healthinfo.go,
updateHealthInfo: LastUpdated is now), so that a report that is only repeated never grows old there. Therefore what
was seen too long ago is told as UNKNOWN here, by the same limit that the kubelet is given.
"""

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from threading import Condition

from dra_driver.model.health import DeviceHealth, Health, HealthStatus
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.inventory import Inventory

TIMEOUT_SECONDS = (
    30  # told to the kubelet too: so long after the last look a device's health is not known
)
VANISHED = Health(
    HealthStatus.UNHEALTHY, "the device vanished from this node while a claim is using it"
)


class HealthFeed:
    """One snapshot for all streams. `age` is that of the last look at the hardware, and `clock` answers Unix seconds."""

    def __init__(
        self,
        inventory: Callable[[], Inventory],
        pool: PoolName,
        *,
        age: Callable[[], float],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._inventory = inventory
        self._pool = pool
        self._age = age
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
        """The version and the health of all devices, as of the last look."""
        with self._changed:
            version, kept = self._version, self._kept
        # First the age, then what was seen: a look that ends in between makes it too old rather than too young.
        age = self._age()
        inventory = self._inventory()
        looked_at = int(self._clock() - age)
        seen = [(device.name, device.health) for device in inventory.devices]
        seen += [(name, VANISHED) for name in kept if name not in inventory.by_name]
        if age > TIMEOUT_SECONDS:
            seen = [(name, _too_old(health, looked_at)) for name, health in seen]
        return version, tuple(
            DeviceHealth(self._pool, name, health, looked_at) for name, health in seen
        )

    def wait(self, version: int, timeout: float) -> bool:
        """Wait until the version is another one, at most so many seconds; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version != version, timeout)

    def wake(self) -> None:
        """Let every stream send again; called at each change of the inventory too."""
        with self._changed:
            self._version += 1
            self._changed.notify_all()


def _too_old(health: Health, looked_at: int) -> Health:
    when = datetime.fromtimestamp(looked_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    was = f"{health.status.name}: {health.message}" if health.message else health.status.name
    return Health(
        HealthStatus.UNKNOWN,
        f"the driver could not look at the hardware since {when}, see its log; it was {was} then",
    )
