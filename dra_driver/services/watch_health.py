# SPDX-License-Identifier: Apache-2.0
"""Report the health of each device to the kubelet.

The health of a present device comes from the inventory. A device that vanished while a claim owns it is still in the slices, and
its health is UNHEALTHY.

Each report has the time of its scan. The kubelet replaces that time by the time of arrival (updateHealthInfo in healthinfo.go:
LastUpdated is now), so a repeated report never grows old in the kubelet. So the driver itself reports UNKNOWN if the last scan is
older than TIMEOUT_SECONDS. The kubelet gets the same limit.
"""

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from threading import Condition

from dra_driver.model.health import DeviceHealth, Health, HealthStatus
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.inventory import Inventory

# If the last scan is older, the health is UNKNOWN; the kubelet gets this limit too.
TIMEOUT_SECONDS = 30
VANISHED = Health(
    HealthStatus.UNHEALTHY, "the device vanished from this node while a claim is using it"
)


class HealthFeed:
    """Makes the snapshot for all streams. `age` returns the age of the last scan in seconds, and `clock` Unix seconds."""

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
        """Set the devices that vanished and stay published, because a claim owns them."""
        kept = tuple(names)
        with self._changed:
            changed = kept != self._kept
            self._kept = kept
        if changed:
            self.wake()

    def snapshot(self) -> tuple[int, tuple[DeviceHealth, ...]]:
        """Return the version, and the health of all devices as of the last scan."""
        with self._changed:
            version, kept = self._version, self._kept
        # First the age, then the inventory: if a scan ends in between, the age is too high, never too low.
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
        """Wait at most `timeout` seconds for a version other than `version`. Returns whether the version has changed."""
        with self._changed:
            return self._changed.wait_for(lambda: self._version != version, timeout)

    def wake(self) -> None:
        """Make every stream send again. The driver also calls this at each change of the inventory."""
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
