# SPDX-License-Identifier: Apache-2.0
"""Tell the observers when the health of a device changes, and how many errors its hardware reported, for every backend.

The taint and the health for the kubelet come from the inventory itself, at the same moment (`services/publish.py`,
`services/watch_health.py`). This is for people: the log, the metrics, the Events on the Node.

A device that is gone is told too, also one that vanished while no driver ran: the inventory knows the names that were published, and the
rows of claims the UUIDs. It is told once, and again only after it was back.

What is gone is judged by the UUID, if the hardware says one. A name that belongs to other hardware now stands for two devices: one that is
gone, and the one that is present. A device that is found under another name is not gone.
"""

from collections.abc import Callable, Mapping
from threading import Lock

from dra_driver.model.device import AllocatableDevice
from dra_driver.model.events import DeviceErrors, DeviceHealthChanged, HealthWord, Observer
from dra_driver.model.health import Health, HealthStatus
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware

_WORDS: Mapping[HealthStatus, HealthWord] = {
    HealthStatus.HEALTHY: "healthy",
    HealthStatus.UNHEALTHY: "unhealthy",
    HealthStatus.UNKNOWN: "unknown",
}
_NEXT_STEP = "see the log of the kernel driver (dmesg) on this node; `dra-driver devices` there names the claim, if one has it"
_RENAMED_STEP = (
    "a claim that was prepared under the old name cannot use it: delete its pod and the claim"
)


def nothing_remembered() -> Mapping[DeviceName, str]:
    return {}


class HealthChanges:
    """Call it after each change of the inventory: it compares with what it saw before. Two backends may call it at the same time.

    `remembered` returns the UUIDs of devices from before the start; "" for a device of which only the name is known. It is called once.
    """

    def __init__(
        self,
        inventory: Callable[[], Inventory],
        observe: Observer,
        *,
        remembered: Callable[[], Mapping[DeviceName, str]] = nothing_remembered,
    ) -> None:
        self._inventory = inventory
        self._observe = observe
        self._remembered: Callable[[], Mapping[DeviceName, str]] | None = remembered
        self._lock = Lock()
        self._health: dict[DeviceName, Health] = {}
        self._uuids: dict[DeviceName, str] = {}
        self._away: dict[DeviceName, HealthWord] = {}  # names without a device: gone, or renamed
        self._lost: dict[str, DeviceName] = {}  # UUIDs that are gone, while their names are not
        self._hardware: dict[DeviceName, Hardware] = {}
        self._errors: dict[DeviceName, Mapping[str, int]] = {}

    def __call__(self) -> None:
        with self._lock:
            if self._remembered is not None:
                self._uuids = dict(self._remembered())
                self._remembered = None
            inventory = self._inventory()
            names = self._new_names(inventory)
            for device in inventory.devices:
                self._identify(device, names)
            for device in inventory.devices:
                self._tell(device.name, device.health)
                self._count(device.name, device.errors)
            for name in (*inventory.missing(), *self._unpublished(inventory)):
                self._tell_away(name, names)

    def _unpublished(self, inventory: Inventory) -> tuple[DeviceName, ...]:
        """The devices of claims that no scan finds, and of which no record of the published devices knows: it was lost, or never written."""
        return tuple(
            name
            for name in self._uuids
            if inventory.scanned
            and name not in inventory.by_name
            and name not in inventory.had
            and not inventory.may_exist(name)
        )

    def _new_names(self, inventory: Inventory) -> Mapping[str, DeviceName]:
        """The names of the UUIDs that another device had before, or none. If two devices have one UUID, neither has got a new name."""
        return {
            device.uuid: device.name
            for device in inventory.devices
            if device.uuid and self._uuids.get(device.name) != device.uuid
        }

    def _identify(self, device: AllocatableDevice, names: Mapping[str, DeviceName]) -> None:
        """Tell what has become of the device that had this name, if this one has another UUID."""
        name, uuid = device.name, device.uuid
        if not uuid:
            return  # this says nothing: another device, or one whose UUID cannot be read now
        is_back = self._find_again(uuid, name)
        before, self._uuids[name] = self._uuids.get(name) or uuid, uuid
        hardware, self._hardware[name] = self._hardware.get(name), device.resource
        if before == uuid:
            return
        was = self._before(name)
        self._health.pop(name, None)
        self._away.pop(name, None)
        self._errors.pop(name, None)
        if is_back:
            self._away[name] = "gone"
        if device.resource.parts and hardware == device.resource:
            return  # a partition that was made anew: no hardware is lost
        now = f"{name} is another device now, UUID {uuid}"
        if before in names:
            message = f"UUID {before} is called {names[before]}, and {now}; {_RENAMED_STEP}"
            self._say(name, "renamed", message, was)
        else:
            self._lost[before] = name
            self._say(
                name, "gone", f"no scan finds UUID {before} any more, and {now}; {_NEXT_STEP}", was
            )

    def _find_again(self, uuid: str, name: DeviceName) -> bool:
        """Tell that a lost device is back under another name than it had. Returns whether it is back under its own name."""
        had = self._lost.pop(uuid, None)
        if had is not None and had != name:
            self._health.pop(had, None)
            self._say(had, "renamed", f"UUID {uuid} is found again, and called {name} now", "gone")
        return had == name

    def _tell(self, name: DeviceName, health: Health) -> None:
        was = self._before(name)
        before = self._health.get(name)
        self._health[name] = health
        self._away.pop(name, None)
        if before != health:
            self._say(name, _WORDS[health.status], health.message, was)

    def _tell_away(self, name: DeviceName, names: Mapping[str, DeviceName]) -> None:
        was = self._before(name)
        uuid = self._uuids.get(name, "")
        if uuid in names:
            del self._uuids[name]  # from now on it has its new name only
            word: HealthWord = "renamed"
            message = f"UUID {uuid} is called {names[uuid]} now; {_RENAMED_STEP}"
        else:
            word = "gone"
            message = f"no scan finds it any more{f' (UUID {uuid})' if uuid else ''}; {_NEXT_STEP}"
        if was == word or (was == "renamed" and not uuid):
            return
        self._health.pop(name, None)
        self._away[name] = word
        self._say(name, word, message, was)

    def _say(self, name: DeviceName, word: HealthWord, message: str, was: HealthWord) -> None:
        lost = " ".join(uuid for uuid, had in self._lost.items() if had == name)
        self._observe(DeviceHealthChanged(name, word, message, before=was, lost=lost))

    def _before(self, name: DeviceName) -> HealthWord:
        if name in self._away:
            return self._away[name]
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
