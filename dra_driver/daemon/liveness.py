# SPDX-License-Identifier: Apache-2.0
"""Would a restart help? A separate thread checks this every CHECK_SECONDS; probes read its last result and never wait.

A restart helps in two cases: one of the driver's sockets does not answer, or the calls of one kind are stuck. They are stuck
when calls wait or all workers are busy, and no call began or ended for twice the longest deadline.

A driver with many calls is alive: each call ends at its deadline, and a restart would only interrupt work that the kubelet
then requests again. Hardware that hangs is no reason for a restart either: the hardware would hang again.
"""

import time
from collections.abc import Callable, Sequence
from threading import Event, Lock

from msgspec import Struct

from dra_driver.kubelet.calls import LONGEST_CALL_SECONDS, CallCounts

CHECK_SECONDS = 10.0
DEAD_SECONDS = 2 * LONGEST_CALL_SECONDS
STALE_SECONDS = 60.0  # a check takes at most four seconds: two sockets, two seconds each

NOT_YET = "the driver does not serve its sockets yet"


class SelfCheck(Struct, frozen=True):
    """The problems found by one check. `at` is its time in seconds of the monotonic clock."""

    at: float
    problems: tuple[str, ...]


def stuck_calls(calls: CallCounts, now: float) -> str:
    """Return why the calls of this kind are stuck; "" if they are not."""
    idle_seconds = now - calls.moved_at
    blocked = calls.waiting > 0 or calls.working >= calls.workers
    if not blocked or idle_seconds <= DEAD_SECONDS:
        return ""
    return (
        f"no {calls.name} call began or ended for {idle_seconds:.0f} s, though each ends within {LONGEST_CALL_SECONDS:.0f} s: "
        f"{calls.working} of {calls.workers} workers hang and {calls.waiting} calls wait"
    )


def current_problems(last: SelfCheck | None, now: float) -> tuple[str, ...]:
    """Return the problems of the last check. If that check is too old, this is a problem too: the next check hangs."""
    if last is None:
        return (NOT_YET,)
    if now - last.at > STALE_SECONDS:
        return (
            f"the driver's own check of its sockets hangs for {now - last.at:.0f} s",
            *last.problems,
        )
    return last.problems


class Liveness:
    """`run` checks every `CHECK_SECONDS`. `problems` returns at once, on any thread. Times are monotonic seconds."""

    def __init__(
        self,
        unanswered: Callable[[], tuple[str, ...]],
        calls: Callable[[], Sequence[CallCounts]],
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        self._unanswered = unanswered
        self._calls = calls
        self._clock = clock
        self._wait = wait
        self._mutex = Lock()
        self._last: SelfCheck | None = None

    def run(self, stop: Event) -> None:
        """Check at once, and again every `CHECK_SECONDS`, until `stop` is set."""
        self.check()
        while not self._wait(stop, CHECK_SECONDS):
            self.check()

    def check(self) -> None:
        """Probe the driver's own sockets, and find stuck calls."""
        unanswered = self._unanswered()
        now = self._clock()
        stuck = (stuck_calls(calls, now) for calls in self._calls())
        done = SelfCheck(now, (*unanswered, *(reason for reason in stuck if reason)))
        with self._mutex:
            self._last = done

    def problems(self) -> tuple[str, ...]:
        """Return the problems that only a restart solves; empty if there are none."""
        with self._mutex:
            last = self._last
        return current_problems(last, self._clock())
