# SPDX-License-Identifier: Apache-2.0
"""What is said on the Node object: each thing once, and not before it was written is it said.

An Event that the API server does not take is kept and tried again after a growing pause: what is wrong with the API server
is often the reason for the Event.
"""

from collections.abc import Callable
from math import inf

from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.kube.base import NodeEvent
from dra_driver.services.pace import RETRY_SECONDS, step_of

KEPT_EVENTS = (
    100  # that wait to be written, and that are remembered as written; the oldest goes first
)

Key = tuple[str, str]


class NodeEvents:
    """Warnings on this driver's Node. Used by one thread."""

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
        """Write it with the next `flush`; answers whether it is news."""
        if key in self._said or key in self._waiting:
            return False
        self._waiting[key] = NodeEvent("Warning", reason, message)
        _forget_oldest(self._waiting)
        return True

    def flush(self) -> float:
        """Write what waits, if it is time; answers in how many seconds to call again (inf: nothing waits)."""
        while self._waiting and self._clock() >= self._next:
            key, event = next(iter(self._waiting.items()))
            try:
                self._emit(event)
            except Exception as error:  # noqa: BLE001  an Event must not keep the slices from being published
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
