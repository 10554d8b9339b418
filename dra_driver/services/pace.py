# SPDX-License-Identifier: Apache-2.0
"""How long does the driver wait before the next try, after an error or after somebody changed a slice of the driver?

After QUICK_TRIES tries every pause is at least SLOW_SECONDS, as long as the error lasts. Then a change of the slices or of the
inventory does not shorten a pause any more, because the driver's own tries may have caused the change.
"""

from collections.abc import Sequence
from math import inf

from dra_driver.errors import Permanent, Temporary
from dra_driver.kube.base import NotServed

RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
# A permanent error may pass too (an admin replaces a role), so the first tries are quick here as well.
PERMANENT_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
NOT_SERVED_SECONDS = (10.0, 30.0, 60.0, 120.0, 300.0)
QUICK_TRIES = 10
SLOW_SECONDS = 5.0  # the shortest pause after QUICK_TRIES tries

# The pause before the driver writes again what somebody else changed, for the first, second, … time. The first pause is long
# enough for the kubelet's deletions at its start: it deletes all slices of the node one after the other.
PATIENCE_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
QUIET_SECONDS = 600.0  # after so long without a foreign change, the first pause applies again


def delay_after(error: Exception, tries: int) -> float:
    """Return the seconds before the next try, after `tries` earlier failures: at least `retry_after_seconds` of the error."""
    match error:
        case NotServed():
            table: Sequence[float] = NOT_SERVED_SECONDS
        case Permanent():
            table = PERMANENT_SECONDS
        case _:
            table = RETRY_SECONDS
    asked = error.retry_after_seconds if isinstance(error, Temporary) else None
    return max(step_of(table, tries), asked or 0.0)


def step_of(table: Sequence[float], times: int) -> float:
    """Return the entry of the table at index `times`, or the last entry if the table is shorter."""
    return table[min(times, len(table) - 1)]


class Backoff:
    """Decides when to try again after a failure. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._pauses = 0
        self._tries = 0
        self._until = -inf

    def allows(self, now: float, *, news: bool) -> bool:
        """Whether to try now. During the first QUICK_TRIES tries `news` (something changed) ends a pause: the change may have removed
        the reason of the failure.
        """
        return now >= self._until or (news and self._tries < QUICK_TRIES)

    def left(self, now: float) -> float:
        """Return the seconds until the pause ends."""
        return max(self._until - now, 0.0)

    def tries_at_once(self, wanted: int) -> int:
        """Return how many tries may follow each other without a pause now: at least 1, at most `wanted`."""
        return max(1, min(wanted, QUICK_TRIES - self._tries))

    def tried(self) -> None:
        """Count a try that failed. The next try follows without a pause."""
        self._tries += 1

    def failed(self, error: Exception, now: float) -> float:
        """Count a try that failed, and begin a pause. Returns the length of the pause in seconds."""
        self.tried()
        delay = delay_after(error, self._pauses)
        if self._tries >= QUICK_TRIES:
            delay = max(delay, SLOW_SECONDS)
        if now >= self._until:
            self._pauses += 1  # not if a change (`news`) ended the last pause early
        self._until = now + delay
        return delay

    def succeeded(self) -> None:
        self._pauses = self._tries = 0
        self._until = -inf


class Patience:
    """Decides how long the driver waits before it undoes a foreign change of its slices. It waits longer each time, until there was
    no such change for QUIET_SECONDS.
    """

    def __init__(self) -> None:
        self._times = 0
        self._last = -inf
        self._until: float | None = None

    @property
    def waiting(self) -> bool:
        return self._until is not None

    def pause(self, now: float) -> float:
        """Return the seconds left of the pause. The first call starts the pause."""
        if self._until is None:
            if now - self._last > QUIET_SECONDS:
                self._times = 0
            self._until = now + step_of(PATIENCE_SECONDS, self._times)
        return max(self._until - now, 0.0)

    def restored(self, now: float) -> None:
        self._times += 1
        self._last = now
        self._until = None

    def forget(self) -> None:
        """End the pause: no foreign change is left to undo."""
        self._until = None
