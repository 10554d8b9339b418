# SPDX-License-Identifier: Apache-2.0
"""The inventory in force: replaced as a whole value, watched by those who publish it and report its health."""

from collections.abc import Callable
from threading import Event, Lock

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.backends.base import Backend
from dra_driver.errors import DriverError
from dra_driver.model.inventory import Inventory

RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)


class InventoryFeed:
    """Scans a backend and holds what it found. `wait` is `Event.wait`, injected by tests."""

    def __init__(
        self,
        backend: Backend,
        *,
        log: FilteringBoundLogger | None = None,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        self._backend = backend
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._wait = wait
        self._mutex = Lock()
        self._inventory = Inventory()
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change, on the scanning thread; it must not block."""
        self._subscribers.append(changed)

    def current(self) -> Inventory:
        """What this node has."""
        with self._mutex:
            return self._inventory

    def scan(self) -> bool:
        """Ask the backend. If it cannot tell, the last inventory stays in force; answers whether it could."""
        try:
            found = self._backend.scan()
        except DriverError as error:
            self._log.warning(
                "scan_failed",
                error=str(error),
                next_step="the last inventory stays in force; it is tried again",
            )
            return False
        except Exception:  # noqa: BLE001  a third party's code: its fault must not end the driver
            self._log.exception(
                "scan_failed_unexpectedly",
                next_step="a fault of the backend; the last inventory stays in force",
            )
            return False
        with self._mutex:
            changed = found != self._inventory
            self._inventory = found
        if changed:
            for tell in self._subscribers:
                tell()
        return True

    def run(self, stop: Event) -> None:
        """Scan whenever the backend says so, until `stop`; a scan that fails is tried again after a growing time."""
        self._scan_patiently(stop)
        for _ in self._backend.watch(stop):
            self._scan_patiently(stop)
            if stop.is_set():
                return
        self._wait_for_end(stop)

    def _scan_patiently(self, stop: Event) -> None:
        tries = 0
        while not self.scan():
            if self._wait(stop, RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)]):
                return
            tries += 1

    def _wait_for_end(self, stop: Event) -> None:
        # A backend without changes has nothing to watch; its thread stays, so that its end means the process's end.
        stop.wait()
