# SPDX-License-Identifier: Apache-2.0
"""The inventory in force: replaced as a whole value, watched by those who publish it and report its health.

Hardware that cannot be asked is not hardware that is gone: the last answer stays in force, and before the first one
there is no inventory at all, so that nothing is withdrawn or refused for good on the word of a failed scan.
"""

from collections.abc import Callable
from threading import Event, Lock

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.backends.base import Backend
from dra_driver.errors import DriverError, Temporary
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
        self._inventory: Inventory | None = None
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change, on the scanning thread; it must not block."""
        self._subscribers.append(changed)

    def current(self) -> Inventory:
        """What this node has. Raises Temporary while no scan has succeeded yet."""
        with self._mutex:
            if self._inventory is None:
                raise Temporary(
                    "the devices of this node are not known yet: no scan of the backend has succeeded; see the log for the reason"
                )
            return self._inventory

    def scan(self) -> bool:
        """Ask the backend. If it cannot tell, the last inventory stays in force; answers whether it could."""
        try:
            found = _checked(self._backend.scan())
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
        # A backend without changes has nothing to watch; its thread stays, so that its end means the process's end.
        stop.wait()

    def _scan_patiently(self, stop: Event) -> None:
        tries = 0
        while not self.scan():
            if self._wait(stop, RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)]):
                return
            tries += 1


def _checked(found: object) -> Inventory:
    if not isinstance(found, Inventory):
        raise TypeError(f"scan() must answer an Inventory; it answered a {type(found).__name__}")
    return found
