# SPDX-License-Identifier: Apache-2.0
"""Write Events on the Node object, each message once.

If the API server does not accept an Event, the driver keeps the Event and tries again after a growing pause. Often the Event is
about the same failure of the API server.
"""

from collections.abc import Callable
from math import inf

from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.kube.base import NodeEvent
from dra_driver.services.pace import RETRY_SECONDS, step_of

KEPT_EVENTS = 100  # of the waiting Events, and of the keys that are remembered as written; the oldest is dropped first

Key = tuple[str, str]


class NodeEvents:
    """Writes warnings on this driver's Node. Only one thread uses it."""

    def __init__(
        self,
        emit: Callable[[NodeEvent], None],
        *,
        log: FilteringBoundLogger,
        clock: Callable[[], float],
    ) -> None:
        self._emit = emit
        self._log = log
        self._clock = clock
        self._waiting: dict[Key, NodeEvent] = {}
        self._said: dict[Key, None] = {}
        self._failures = 0
        self._next = -inf

    def say(self, key: Key, reason: str, message: str) -> bool:
        """Add a warning for the next `flush`. Returns False if the warning was written before or waits already."""
        if key in self._said or key in self._waiting:
            return False
        self._waiting[key] = NodeEvent("Warning", reason, message)
        _forget_oldest(self._waiting)
        return True

    def flush(self) -> float:
        """Write the waiting Events, if the pause is over. Returns the seconds until the next try (inf: no Event waits)."""
        while self._waiting and self._clock() >= self._next:
            key, event = next(iter(self._waiting.items()))
            try:
                self._emit(event)
            except Exception as error:  # noqa: BLE001  an Event must not stop the publication of slices
                self._later(event, error)
            else:
                del self._waiting[key]
                self._said[key] = None
                _forget_oldest(self._said)
                self._failures = 0
        return max(self._next - self._clock(), 0.0) if self._waiting else inf

    def _later(self, event: NodeEvent, error: Exception) -> None:
        seconds = step_of(RETRY_SECONDS, self._failures)
        self._failures += 1
        self._next = self._clock() + seconds
        self._log.warning(
            "event_not_written",
            reason=event.reason,
            error=str(error) if isinstance(error, DriverError) else repr(error),
            again_in_seconds=seconds,
        )


def _forget_oldest(entries: dict[Key, NodeEvent] | dict[Key, None]) -> None:
    while len(entries) > KEPT_EVENTS:
        del entries[next(iter(entries))]
