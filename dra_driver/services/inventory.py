# SPDX-License-Identifier: Apache-2.0
"""Keep the current inventory of one backend. Each successful scan replaces it as a whole. `services/node_inventory.py` has all backends.

If a scan fails, the devices may still exist, so the last inventory stays. Until the first successful scan `scanned` is False, so
that no slice is withdrawn and no claim is refused because of a failed scan.

The driver reports health with the time of the scan. So it scans every `LOOK_SECONDS`, even if the backend reports no change. If a
scan hangs, the last inventory grows old, and the log says so after `HANGS_SECONDS`; `services/node_inventory.py` asks for that,
because a thread that hangs says nothing.
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
LOOK_SECONDS = 10.0  # a third of the age after which health is reported as UNKNOWN

HANGS_SECONDS = 30.0


class InventoryFeed:
    """Scans a backend and keeps the result. Tests pass their own `wait` (`Event.wait`) and `clock` (monotonic seconds)."""

    def __init__(
        self,
        backend: Backend,
        *,
        log: FilteringBoundLogger | None = None,
        wait: Callable[[Event, float], bool] = Event.wait,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tried = Event()  # the first scan has ended, with or without success
        self._backend = backend
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._wait = wait
        self._clock = clock
        self._scanning = Lock()  # no two scans at the same time
        self._mutex = Lock()
        self._inventory = Inventory(scanned=False)
        # When the last successful scan began; at first, when the driver started.
        self._looked_at = clock()
        self._scan_begun: float | None = None  # None while no scan runs
        self._hangs = False
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change, on the scanning thread. `changed` must not block."""
        self._subscribers.append(changed)

    def current(self) -> Inventory:
        """Return the devices of this node; `scanned` is False until a scan has succeeded."""
        with self._mutex:
            return self._inventory

    def known(self) -> Inventory:
        """Return the devices of this node. Raises Temporary until a scan has succeeded."""
        inventory = self.current()
        if not inventory.scanned:
            raise Temporary(self.unknown())
        return inventory

    def unknown(self) -> str:
        """Return why the devices are not known; empty if they are known."""
        if self.current().scanned:
            return ""
        return (
            f"the devices of this node are not known yet: no scan of the backend has succeeded for {self.age():.0f} s; "
            f"see the log for the reason; without one, the scan hangs in the hardware"
        )

    def age(self) -> float:
        """Return the seconds since the last successful scan began. Before the first one: since the driver started."""
        with self._mutex:
            return self._clock() - self._looked_at

    def scan(self) -> bool:
        """Scan the backend. Returns whether the scan succeeded; if not, the last inventory stays."""
        with self._scanning:
            told = self._scan()
            self._ended()
        self.tried.set()
        return told

    def complain(self, backend: str) -> None:
        """Say once of each scan that hangs that it does. Call it every few seconds, on a thread that never waits for hardware."""
        with self._mutex:
            begun = self._scan_begun
            seconds = 0.0 if begun is None else self._clock() - begun
            if seconds < HANGS_SECONDS or self._hangs:
                return
            self._hangs = True
        self._log.warning(
            "scan_hangs",
            backend=backend,
            seconds=round(seconds),
            next_step="the hardware or its kernel driver does not answer: see dmesg on this node, and for NVIDIA the log of the container "
            "hardware; the last inventory stays in force",
        )

    def _ended(self) -> None:
        with self._mutex:
            self._scan_begun = None
            hung, self._hangs = self._hangs, False
        if hung:
            self._log.info("scan_hangs_no_more")

    def _scan(self) -> bool:
        # The time of the begin, not of the end: a device may change during the scan, after the backend has read it.
        begun = self._clock()
        with self._mutex:
            self._scan_begun = begun
        try:
            found = as_scanned(self._backend.scan())
        except DriverError as error:
            self._log.warning(
                "scan_failed",
                error=str(error),
                next_step="the last inventory stays in force; it is tried again",
            )
            return False
        except (Exception, SystemExit):  # noqa: BLE001  the backend is other people's code, and must not end the thread
            self._log.exception(
                "scan_failed_unexpectedly",
                next_step="a fault of the backend; the last inventory stays in force",
            )
            return False
        with self._mutex:
            changed = found != self._inventory
            self._inventory = found
            self._looked_at = begun
        if changed and not found.devices:
            self._log.warning(
                "no_devices_found",
                problems=[str(problem) for problem in found.left_out],
                next_step=f"it is looked again every {LOOK_SECONDS:.0f} s; `dra-driver devices` says more",
            )
        if changed:
            for tell in self._subscribers:
                tell()
        return True

    def run(self, stop: Event) -> None:
        """Scan whenever the backend reports a change, until `stop`. After a failed scan wait longer each time."""
        self._scan_patiently(stop)
        for _ in self._backend.watch(stop):
            self._scan_patiently(stop)
            if stop.is_set():
                return
        # A backend that never reports changes ends its watch. An end of this thread would look like a fault.
        stop.wait()

    def look(self, stop: Event) -> None:
        """Scan when the last successful scan is `LOOK_SECONDS` old, until `stop`."""
        while not self._wait(stop, LOOK_SECONDS):
            if self.age() >= LOOK_SECONDS:
                self.scan()

    def _scan_patiently(self, stop: Event) -> None:
        tries = 0
        while not self.scan():
            if self._wait(stop, RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)]):
                return
            tries += 1
