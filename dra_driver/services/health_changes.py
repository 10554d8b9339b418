# SPDX-License-Identifier: Apache-2.0
"""Tell the observers when the health of a device changes, and how many errors its hardware reported, for every backend.

The taint and the health for the kubelet come from the inventory itself, at the same moment (`services/publish.py`,
`services/watch_health.py`). This is for people: the log, the metrics, the Events on the Node.

A device that is gone is told too, also one that vanished while no driver ran: the inventory knows the names that were published. It is
told once, and again only after it was back.
"""

from collections.abc import Callable, Mapping
from threading import Lock

from dra_driver.model.events import DeviceErrors, DeviceHealthChanged, HealthWord, Observer
from dra_driver.model.health import Health, HealthStatus
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory

_WORDS: Mapping[HealthStatus, HealthWord] = {
    HealthStatus.HEALTHY: "healthy",
    HealthStatus.UNHEALTHY: "unhealthy",
    HealthStatus.UNKNOWN: "unknown",
}
_NEXT_STEP = "see the log of the kernel driver (dmesg) on this node; `dra-driver devices` there names the claim that has it"


class HealthChanges:
    """Call it after each change of the inventory: it compares with what it saw before. Two backends may call it at the same time."""

    def __init__(self, inventory: Callable[[], Inventory], observe: Observer) -> None:
        self._inventory = inventory
        self._observe = observe
        self._lock = Lock()
        self._health: dict[DeviceName, Health] = {}
        self._uuids: dict[DeviceName, str] = {}
        self._gone: set[DeviceName] = set()
        self._errors: dict[DeviceName, Mapping[str, int]] = {}

    def __call__(self) -> None:
        with self._lock:
            inventory = self._inventory()
            for device in inventory.devices:
                self._uuids[device.name] = device.uuid
                self._tell(device.name, device.health)
                self._count(device.name, device.errors)
            for name in inventory.missing():
                if name not in self._gone:
                    self._tell_gone(name)

    def _tell(self, name: DeviceName, health: Health) -> None:
        was = self._before(name)
        before = self._health.get(name)
        self._health[name] = health
        self._gone.discard(name)
        if before != health:
            self._observe(
                DeviceHealthChanged(name, _WORDS[health.status], health.message, before=was)
            )

    def _tell_gone(self, name: DeviceName) -> None:
        was = self._before(name)
        self._health.pop(name, None)
        self._gone.add(name)
        uuid = self._uuids.get(name)
        message = f"no scan finds it any more{f' (UUID {uuid})' if uuid else ''}; {_NEXT_STEP}"
        self._observe(DeviceHealthChanged(name, "gone", message, before=was))

    def _before(self, name: DeviceName) -> HealthWord:
        if name in self._gone:
            return "gone"
        before = self._health.get(name)
        return _WORDS[before.status] if before is not None else ""

    def _count(self, name: DeviceName, errors: Mapping[str, int]) -> None:
        before = self._errors.get(name, {})
        self._errors[name] = dict(errors)
        for error, count in errors.items():
            known = before.get(error, 0)
            # A backend that counts from the beginning again has forgotten the earlier ones.
            if new := count - known if count >= known else count:
                self._observe(DeviceErrors(name, error, new))
