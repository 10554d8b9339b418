# SPDX-License-Identifier: Apache-2.0
"""Report the health of each device to the kubelet.

The health of a present device comes from the inventory. A device that vanished while a claim owns it is still in the slices, and
its health is UNHEALTHY. So it is if its name belongs to other hardware now than its claim was prepared with. A device whose backend has not answered since the driver started is UNKNOWN.

Each report has the time of the scan of the device's backend. The kubelet replaces that time by the time of arrival (updateHealthInfo in healthinfo.go:
LastUpdated is now), so a repeated report never grows old in the kubelet. So the driver itself reports UNKNOWN if that scan is
older than TIMEOUT_SECONDS. The kubelet gets the same limit.
"""

import time
from collections.abc import Callable, Iterable, Mapping
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
AWAITED = Health(
    HealthStatus.UNKNOWN, "the driver has not been able to look at this device since it started"
)


def nothing_moved(_inventory: Inventory) -> Mapping[DeviceName, str]:
    return {}


class HealthFeed:
    """Makes the snapshot for all streams. `age` returns the age of the last scan of a backend in seconds, and `clock` Unix seconds.
    `moved` says of devices that claims own where their hardware or their name has gone (`dra_driver.planning.moved`).
    """

    def __init__(
        self,
        inventory: Callable[[], Inventory],
        pool: PoolName,
        *,
        age: Callable[[str], float],
        clock: Callable[[], float] = time.time,
        moved: Callable[[Inventory], Mapping[DeviceName, str]] = nothing_moved,
    ) -> None:
        self._inventory = inventory
        self._pool = pool
        self._age = age
        self._clock = clock
        self._moved = moved
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
        # First the ages, then the inventory: if a scan ends in between, an age is too high, never too low.
        before = self._inventory()
        backends = {"", *before.unanswered, *(device.backend for device in before.devices)}
        ages = {backend: self._age(backend) for backend in backends}
        inventory = self._inventory()
        awaited = inventory.awaited()
        known = {*inventory.by_name, *awaited}
        moved = {
            name: Health(HealthStatus.UNHEALTHY, said)
            for name, said in self._moved(inventory).items()
        }
        seen = [
            (device.name, moved.get(device.name, device.health), device.backend)
            for device in inventory.devices
        ]
        seen += [(name, AWAITED, inventory.had[name]) for name in awaited]
        seen += [
            (name, moved.get(name, VANISHED), inventory.had.get(name, ""))
            for name in kept
            if name not in known
        ]
        now = self._clock()
        return version, tuple(
            self._report(name, health, ages.get(backend, ages[""]), now)
            for name, health, backend in seen
        )

    def _report(self, name: DeviceName, health: Health, age: float, now: float) -> DeviceHealth:
        looked_at = int(now - age)
        told = _too_old(health, looked_at) if age > TIMEOUT_SECONDS else health
        return DeviceHealth(self._pool, name, told, looked_at)

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
