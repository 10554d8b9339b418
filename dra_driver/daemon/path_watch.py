# SPDX-License-Identifier: Apache-2.0
"""Through which API are the devices of this node offered now? Three facts decide, and they are looked at again and again.

The parts that offer devices ask `choice`, and are woken when it changes.
"""

import dataclasses
import time
from collections.abc import Callable, Collection
from threading import Event, Lock

from dra_driver.errors import DriverError
from dra_driver.kube.base import NotServed
from dra_driver.model.events import Observer, PathChosen
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.plugin import Path
from dra_driver.planning.path import PathChoice, PathFacts, choose_path

LOOK_SECONDS = 2.0
SERVED_SECONDS = 30.0  # between two questions to the API server, as long as nothing changes

Wait = Callable[[Event, float], bool]


class PathWatch:
    """Knows the path. `serves` asks the API server (raises NotServed, or another DriverError if it does not answer); `registered` says whether the kubelet
    has called the driver's registration; `wish` is the admin's, None for auto.
    """

    def __init__(
        self,
        wish: Path | None,
        *,
        serves: Callable[[], object],
        registered: Callable[[], bool],
        kubelet_version: Callable[[], str],
        observe: Observer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wish = wish
        self._serves = serves
        self._registered = registered
        self._kubelet_version = kubelet_version
        self._observe = observe
        self._clock = clock
        self._begun = clock()
        self._served: bool | None = None
        self._ask_at = self._begun
        self._mutex = Lock()
        self._choice = PathChoice(None, "nothing is known yet")
        self._subscribers: list[Callable[[], None]] = []
        self._facts = PathFacts()
        # What the device plugin API has found about each device; None as long as it is not served.
        self._not_for_dra: frozenset[DeviceName] | None = None

    @property
    def choice(self) -> PathChoice:
        """The path of this node; its `path` is None as long as it is not known."""
        with self._mutex:
            return self._choice

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change. It must not block."""
        self._subscribers.append(changed)

    def run(self, stop: Event, *, wait: Wait = Event.wait) -> None:
        """Look every LOOK_SECONDS until `stop`."""
        while not stop.is_set():
            self.look()
            wait(stop, LOOK_SECONDS)

    def look(self) -> PathChoice:
        """Look at the facts once. Returns the choice."""
        facts = self._found_facts()
        found = choose_path(facts, self._wish)
        with self._mutex:
            self._facts = facts
            before, self._choice = self._choice, found
        if found.path is not before.path:
            if found.path is not None:
                self._observe(PathChosen(found.path.value, found.reason))
            for tell in self._subscribers:
                tell()
        return found

    @property
    def facts(self) -> PathFacts:
        """The facts of the last look."""
        with self._mutex:
            return self._facts

    @property
    def wish(self) -> Path | None:
        """What the admin said for the node."""
        return self._wish

    def keep_from_dra(self, devices: Collection[DeviceName]) -> None:
        """Claims do not get these devices: the device plugin API offers them, or they are about to change sides."""
        with self._mutex:
            changed = self._not_for_dra != frozenset(devices)
            self._not_for_dra = frozenset(devices)
        if changed:
            for tell in self._subscribers:
                tell()

    def for_dra(
        self, inventory: Inventory, claimed: Callable[[], Collection[DeviceName]]
    ) -> Inventory:
        """Return the devices that are offered by claims. Those that a claim owns stay, whatever the path is."""
        with self._mutex:
            others = self._not_for_dra
            if others is None and self._choice.path is Path.DEVICE_PLUGIN:
                others = frozenset(inventory.by_name)
        if not others:
            return inventory
        owned = claimed()
        kept = tuple(
            device
            for device in inventory.devices
            if device.name in owned or device.name not in others
        )
        return dataclasses.replace(inventory, devices=kept)

    def _found_facts(self) -> PathFacts:
        now = self._clock()
        registered = self._registered()
        if now >= self._ask_at:
            self._ask_at = now + SERVED_SECONDS
            self._served = self._is_served()
        return PathFacts(
            served=self._served,
            registered=True if registered else None,
            kubelet_version=self._version(),
            registration_waited_seconds=now - self._begun,
        )

    def _is_served(self) -> bool | None:
        try:
            self._serves()
        except NotServed:
            return False
        except DriverError:
            self._ask_at = self._clock() + LOOK_SECONDS
            return self._served
        return True

    def _version(self) -> str:
        try:
            return self._kubelet_version()
        except DriverError:
            return ""
