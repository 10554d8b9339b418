# SPDX-License-Identifier: Apache-2.0
"""How soon again? After an error, and after somebody undid what we wrote.

No error, however long it lasts, gets more than a few quick tries in a row; and news, which may be the consequence of our
own tries, cannot talk the pauses away.
"""

from collections.abc import Sequence
from math import inf

from dra_driver.errors import Permanent, Temporary
from dra_driver.kube.base import NotServed

RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
# A refusal may pass too (a role that is being replaced), so the first tries are quick here as well.
PERMANENT_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
NOT_SERVED_SECONDS = (10.0, 30.0, 60.0, 120.0, 300.0)
QUICK_TRIES = 10
SLOW_SECONDS = 5.0  # between tries, once there were so many

# Before what somebody else undid is put right the first, second, … time. The first pause lets one sweep of
# deletions (the kubelet's, at its start) arrive as a whole.
PATIENCE_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
QUIET_SECONDS = 600.0  # undisturbed for so long, patience starts anew


def delay_after(error: Exception, tries: int) -> float:
    """Seconds before the next try after `tries` earlier failures; never sooner than the API server asked for."""
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
    """The table's entry after `times` earlier ones; the last one stays."""
    return table[min(times, len(table) - 1)]


class Backoff:
    """When may be tried again what failed? Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._pauses = 0
        self._tries = 0
        self._until = -inf

    def allows(self, now: float, *, news: bool) -> bool:
        """News may be what the failure waited for; they count for the first tries only."""
        return now >= self._until or (news and self._tries < QUICK_TRIES)

    def left(self, now: float) -> float:
        """Seconds of the pause that are left."""
        return max(self._until - now, 0.0)

    def tries_at_once(self, wanted: int) -> int:
        """How many tries may follow each other now, of those that are wanted; at least one."""
        return max(1, min(wanted, QUICK_TRIES - self._tries))

    def tried(self) -> None:
        """A try failed, and another one follows at once."""
        self._tries += 1

    def failed(self, error: Exception, now: float) -> float:
        """Seconds of the pause that begins now."""
        self.tried()
        delay = delay_after(error, self._pauses)
        if self._tries >= QUICK_TRIES:
            delay = max(delay, SLOW_SECONDS)
        if now >= self._until:
            self._pauses += 1  # a pause that news cut short is no reason for a longer one
        self._until = now + delay
        return delay

    def succeeded(self) -> None:
        self._pauses = self._tries = 0
        self._until = -inf


class Patience:
    """How long to let somebody's change stand before it is undone: longer each time, until it was quiet for a while."""

    def __init__(self) -> None:
        self._times = 0
        self._last = -inf
        self._until: float | None = None

    @property
    def waiting(self) -> bool:
        return self._until is not None

    def pause(self, now: float) -> float:
        """Seconds left of the pause, which begins with the first call."""
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
        """What was to be undone went away by itself, or by a change of ours."""
        self._until = None
