# SPDX-License-Identifier: Apache-2.0
"""One leader for each node: of two processes that an update runs side by side, one publishes and sweeps, the other stands by.

Both serve their sockets. The lock dies with its holder, so the other one leads within a second of that, and a rolling update
writes no slice unless the new version describes the devices in another way.
"""

from collections.abc import Callable
from contextlib import ExitStack
from threading import Event

from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.model.events import Leading, Observer
from dra_driver.node.lock import Locked, Locks

LOCK = "leader"
POLL_SECONDS = 0.5


class Leadership:
    """`run` waits for the lock and calls `begin` once; the lock is held until `end`, which comes after all that was begun."""

    def __init__(
        self,
        locks: Locks,
        begin: Callable[[], None],
        *,
        observe: Observer,
        log: FilteringBoundLogger,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        self.standing_by = Event()  # another process of this driver leads
        self._locks = locks
        self._begin = begin
        self._observe = observe
        self._log = log
        self._wait = wait
        self._lock = ExitStack()

    def run(self, stop: Event) -> None:
        """Wait for the lock, lead, and stay until `stop`."""
        while not stop.is_set():
            if self._acquired():
                self._observe(Leading(leads=True))
                self._begin()
                stop.wait()
                return
            self._wait(stop, POLL_SECONDS)

    def end(self) -> None:
        """Let another process lead."""
        self._lock.close()

    def _acquired(self) -> bool:
        try:
            self._lock.enter_context(self._locks.held([LOCK], until=0.0, purpose="leading"))
        except Locked as error:
            if not self.standing_by.is_set():
                self._observe(Leading(leads=False, leader=error.holder))
            self.standing_by.set()
            return False
        except DriverError as error:
            self._log.error("cannot_lead", error=str(error), next_step="it is tried again")
            return False
        self.standing_by.clear()
        return True
