# SPDX-License-Identifier: Apache-2.0
"""The inventory in force: replaced as a whole value, watched by those who publish it and report its health.

Hardware that cannot be asked is not hardware that is gone: the last answer stays in force, and before the first one
the inventory says that nobody has looked, so that nothing is withdrawn or refused for good on the word of a failed scan.

How old the last look is belongs to what it says: health is told with the age of the look that it comes from. So there is
one every `LOOK_SECONDS`, whether or not the backend has news. A look that hangs lets the last one grow old, and nothing else.
"""

import time
from collections.abc import Callable
from threading import Event, Lock

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.backends.base import Backend
from dra_driver.errors import DriverError, Temporary
from dra_driver.model.inventory import Inventory
from dra_driver.planning.scanned import as_scanned

RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
LOOK_SECONDS = 10.0  # three looks may fail before the kubelet takes what it was told for too old


class InventoryFeed:
    """Scans a backend and holds what it found. `wait` is `Event.wait` and `clock` monotonic seconds, injected by tests."""

    def __init__(
        self,
        backend: Backend,
        *,
        log: FilteringBoundLogger | None = None,
        wait: Callable[[Event, float], bool] = Event.wait,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tried = Event()  # a scan has ended, whether or not it could tell
        self._backend = backend
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._wait = wait
        self._clock = clock
        self._scanning = Lock()  # a backend is asked once at a time
        self._mutex = Lock()
        self._inventory = Inventory(scanned=False)
        self._looked_at = clock()  # before the first look: since when there is none
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change, on the scanning thread; it must not block."""
        self._subscribers.append(changed)

    def current(self) -> Inventory:
        """What this node has; `scanned` is False in it while no scan has succeeded yet."""
        with self._mutex:
            return self._inventory

    def known(self) -> Inventory:
        """What this node has. Raises Temporary while no scan has succeeded yet."""
        inventory = self.current()
        if not inventory.scanned:
            raise Temporary(self.unknown())
        return inventory

    def unknown(self) -> str:
        """Why the devices are not known; empty when they are."""
        if self.current().scanned:
            return ""
        return (
            f"the devices of this node are not known yet: no scan of the backend has succeeded for {self.age():.0f} s; "
            f"see the log for the reason; without one, the scan hangs in the hardware"
        )

    def age(self) -> float:
        """How many seconds ago the last look that succeeded began; before the first one, the driver."""
        with self._mutex:
            return self._clock() - self._looked_at

    def scan(self) -> bool:
        """Ask the backend. If it cannot tell, the last inventory stays in force; answers whether it could."""
        with self._scanning:
            told = self._scan()
        self.tried.set()
        return told

    def _scan(self) -> bool:
        begun = self._clock()  # what was true then may have changed while the backend was at it
        try:
            found = as_scanned(self._backend.scan())
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
            self._looked_at = begun
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

    def look(self, stop: Event) -> None:
        """Scan when nobody has for `LOOK_SECONDS`, until `stop`: a backend without news is looked at too."""
        while not self._wait(stop, LOOK_SECONDS):
            if self.age() >= LOOK_SECONDS:
                self.scan()

    def _scan_patiently(self, stop: Event) -> None:
        tries = 0
        while not self.scan():
            if self._wait(stop, RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)]):
                return
            tries += 1
