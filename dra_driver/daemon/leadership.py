# SPDX-License-Identifier: Apache-2.0
"""Which of two driver processes on a node is the leader?

During a rolling update, two driver processes run on one node at the same time. Both serve the kubelet on their own sockets. But
only the leader publishes ResourceSlices and sweeps; the other process stands by.

Leadership is a file lock. The kernel releases the lock when the leader exits, and the other process takes it within a second. So
the driver writes no slice during a rolling update, unless the new version describes the devices differently.
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
    """`run` waits for the lock and then calls `on_started_leading` once. The process keeps the lock until `end`.

    Before the caller calls `end`, it must stop everything that `on_started_leading` started.
    """

    def __init__(
        self,
        locks: Locks,
        on_started_leading: Callable[[], None],
        *,
        observe: Observer,
        log: FilteringBoundLogger,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        self.standing_by = Event()  # another process of this driver leads
        self._locks = locks
        self._on_started_leading = on_started_leading
        self._observe = observe
        self._log = log
        self._wait = wait
        self._lock = ExitStack()

    def run(self, stop: Event) -> None:
        """Wait for the lock, start leading, and return when `stop` is set."""
        while not stop.is_set():
            if self._acquired():
                self._observe(Leading(leads=True))
                self._on_started_leading()
                stop.wait()
                return
            self._wait(stop, POLL_SECONDS)

    def end(self) -> None:
        """Release the lock, so that another process can lead."""
        self._lock.close()

    def _acquired(self) -> bool:
        try:
            self._lock.enter_context(self._locks.locked([LOCK], until=0.0, purpose="leading"))
        except Locked as error:
            if not self.standing_by.is_set():
                self._observe(Leading(leads=False, leader=error.holder))
            self.standing_by.set()
            return False
        except DriverError as error:
            self._log.error("cannot_lead", error=str(error), next_step="the driver tries again")
            return False
        self.standing_by.clear()
        return True
