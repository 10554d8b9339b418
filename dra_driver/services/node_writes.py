# SPDX-License-Identifier: Apache-2.0
"""When is something of this Node looked at and written? At once after a change, from time to time at rest, and later after a failure.

A failure is tried again after a pause that grows; a change does not end the pause. A missing right is told once, and asked for again every
FORBIDDEN_SECONDS.
"""

import time
from collections.abc import Callable
from math import inf
from threading import Event

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.kube.base import Forbidden
from dra_driver.model.events import NodeWriteForbidden, Observer, ignore
from dra_driver.services.pace import delay_after

FORBIDDEN_SECONDS = 300.0
_WAKE_SECONDS = 1.0

Wait = Callable[[Event, float], bool]


class NodeWrites:
    """The loop of one thread. `look` writes what is due, and returns the seconds until the next look at the latest; it raises DriverError.

    `what` names what is written, for people. `clock` is monotonic seconds.
    """

    def __init__(
        self,
        what: str,
        look: Callable[[], float],
        *,
        observe: Observer = ignore,
        log: FilteringBoundLogger | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._look = look
        self._observe = observe
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._clock = clock
        self._woken = Event()
        self._look_at = -inf
        self._not_before = -inf
        self._tries = 0
        self._is_forbidden = False

    def wake(self) -> None:
        """Look now: something changed. It never blocks."""
        self._woken.set()

    def run(self, stop: Event, *, wait: Wait = Event.wait) -> None:
        """Look until `stop`."""
        while not stop.is_set():
            paused = self.once()
            # An Event that is set does not wait, so in a pause only the end is waited for.
            wait(stop if paused else self._woken, _WAKE_SECONDS)

    def once(self) -> bool:
        """Look, if it is time to. Returns whether a pause after a failure is not over."""
        now = self._clock()
        if now < self._not_before:
            return True
        if self._woken.is_set() or now >= self._look_at:
            self._woken.clear()
            try:
                self._look_at = now + self._look()
            except DriverError as error:
                self._not_before = self._look_at = now + self._failed(error)
                return True
            self._tries, self._is_forbidden = 0, False
        return False

    def _failed(self, error: DriverError) -> float:
        """Report a failure. Returns the seconds until the next try."""
        if isinstance(error, Forbidden):
            if not self._is_forbidden:
                self._observe(NodeWriteForbidden(self._what, str(error)))
            self._is_forbidden = True
            return FORBIDDEN_SECONDS
        seconds = delay_after(error, self._tries)
        self._tries += 1
        self._log.info(
            "node_not_written", what=self._what, error=str(error), again_in_seconds=seconds
        )
        return seconds
