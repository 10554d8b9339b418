# SPDX-License-Identifier: Apache-2.0
"""Keep the devices of this node: those of all backends of the process.

Each backend has an `InventoryFeed` with threads of its own. So a backend that fails or hangs costs only the freshness of its own
devices. Until it has answered once, the devices that it had before the start stay published, and their claims wait.

A name belongs to the backend that had it first. The record of the published devices has the backends too, so this is true over
restarts.
"""

import time
from collections.abc import Callable, Mapping
from threading import Event, Lock
from types import MappingProxyType

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError, Temporary
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.planning.combine import combine
from dra_driver.services.inventory import InventoryFeed

Loop = Callable[[Event], None]
COMPLAIN_SECONDS = 5.0


def nothing_published() -> Mapping[DeviceName, str]:
    """The record of a node on which nothing was published before."""
    return {}


class NodeInventory:
    """The devices of all backends. `kinds` are the kinds of configuration of each backend. `recall` returns the backend of each published device, or raises DriverError."""

    def __init__(
        self,
        feeds: Mapping[str, InventoryFeed],
        *,
        kinds: Mapping[str, tuple[ConfigKind, ...]] = MappingProxyType({}),
        recall: Callable[[], Mapping[DeviceName, str]] = nothing_published,
        log: FilteringBoundLogger | None = None,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        self._feeds = feeds
        self._wait = wait
        self._kinds = kinds
        self._recall: Callable[[], Mapping[DeviceName, str]] | None = recall
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._mutex = Lock()
        self._parts: tuple[Inventory, ...] = ()
        self._combined: Inventory | None = None
        self._complained = False

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change, on the thread of the backend. `changed` must not block."""
        for feed in self._feeds.values():
            feed.subscribe(changed)

    def loops(self) -> Mapping[str, Loop]:
        """The loops of all backends by the names of their threads."""
        scans = {f"inventory-{name}": feed.run for name, feed in self._feeds.items()}
        looks = {f"looks-{name}": feed.look for name, feed in self._feeds.items()}
        return {**scans, **looks, "hanging-scans": self._complain}

    def tried_within(self, seconds: float) -> bool:
        """Wait until each backend has been scanned once, with or without success. Returns whether this is so after `seconds`."""
        until = time.monotonic() + seconds
        return all(
            feed.tried.wait(max(0.0, until - time.monotonic())) for feed in self._feeds.values()
        )

    def current(self) -> Inventory:
        """Return the devices of this node; `scanned` is False until a scan of a backend has succeeded."""
        with self._mutex:
            parts = tuple(feed.current() for feed in self._feeds.values())
            same = len(parts) == len(self._parts) and all(
                one is other for one, other in zip(parts, self._parts, strict=True)
            )
            if self._combined is None or not same or self._recall is not None:
                recalled = self._recalled()
                # The record counts: until it can be read, no claim can be prepared for who took a name since the start.
                named = {name: backend for name, backend in recalled.items() if backend}
                had = {**recalled, **(self._combined.had if self._combined else {}), **named}
                self._combined = combine(
                    dict(zip(self._feeds, parts, strict=True)), had, self._kinds
                )
                self._parts = parts
            return self._combined

    def known(self) -> Inventory:
        """Return the devices of this node. Raises Temporary until a scan of a backend has succeeded."""
        inventory = self.current()
        if not inventory.scanned:
            raise Temporary(self.unknown())
        return inventory

    def unknown(self) -> str:
        """Return why no devices are known; empty if the devices of one backend are."""
        reasons = [reason for feed in self._feeds.values() if (reason := feed.unknown())]
        return "; ".join(reasons) if reasons and len(reasons) == len(self._feeds) else ""

    def age(self, backend: str) -> float:
        """Return the seconds since the last successful scan of this backend began; of the oldest one if the backend is not known."""
        if backend in self._feeds:
            return self._feeds[backend].age()
        return max((feed.age() for feed in self._feeds.values()), default=0.0)

    def ages(self) -> Mapping[str, float]:
        """Return the seconds since the last successful scan of each backend began."""
        return {name: feed.age() for name, feed in self._feeds.items()}

    def backend_of(self, device: DeviceName) -> str:
        """Return the backend that has this device, or had it; "" if none is known."""
        return self.current().had.get(device, "")

    def _complain(self, stop: Event) -> None:
        """Say which scans hang, until `stop`."""
        while not self._wait(stop, COMPLAIN_SECONDS):
            for name, feed in self._feeds.items():
                feed.complain(name)

    def _recalled(self) -> Mapping[DeviceName, str]:
        """The backends of the published devices; read once."""
        if self._recall is None:
            return {}
        try:
            recalled = self._recall()
        except DriverError as error:
            if not self._complained:
                self._log.warning(
                    "publication_not_recalled", error=str(error), next_step="it is tried again"
                )
            self._complained = True
            return {}
        self._recall = None
        return recalled
