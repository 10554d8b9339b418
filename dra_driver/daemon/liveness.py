# SPDX-License-Identifier: Apache-2.0
"""Is a restart the cure? Found out on a thread of its own, so that whoever asks waits for nobody who is asked about.

/livez and the gRPC health service read the last answer. A driver that is full is alive: its calls end by their deadlines, and
killing it would break off work that the kubelet then asks for again. It is dead when a socket does not answer, or when no call
was taken or finished for longer than the longest deadline although calls wait or every worker has one: then what holds the
workers is beyond every deadline. Hardware that hangs is no reason: it would hang again.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event, Lock

from dra_driver.kubelet.calls import LONGEST_CALL_SECONDS, CallsSeen

LOOK_SECONDS = 10.0
DEAD_SECONDS = 2 * LONGEST_CALL_SECONDS
STALE_SECONDS = 60.0  # a look asks two sockets, each for two seconds at most

NOT_YET = "the driver does not serve its sockets yet"


@dataclass(frozen=True, slots=True)
class Look:
    """What was wrong at a time of the monotonic clock."""

    at: float
    wrong: tuple[str, ...]


def dead_calls(seen: CallsSeen, now: float) -> str:
    """Why nobody does the calls of this kind any more; empty while somebody does, or may."""
    still = now - seen.moved_at
    held = seen.waiting > 0 or seen.working >= seen.workers
    if not held or still <= DEAD_SECONDS:
        return ""
    return (
        f"no {seen.name} call was begun or done for {still:.0f} s, though each ends within {LONGEST_CALL_SECONDS:.0f} s: "
        f"{seen.working} of {seen.workers} workers hang and {seen.waiting} calls wait"
    )


def verdict(look: Look | None, now: float) -> tuple[str, ...]:
    """What is wrong by the last look; one that is too old is itself what is wrong."""
    if look is None:
        return (NOT_YET,)
    if now - look.at > STALE_SECONDS:
        return (
            f"the driver's own look at its sockets hangs for {now - look.at:.0f} s",
            *look.wrong,
        )
    return look.wrong


class Liveness:
    """Looks every few seconds in `run`; `wrong` answers at once, on any thread. Times are monotonic seconds."""

    def __init__(
        self,
        unanswered: Callable[[], tuple[str, ...]],
        calls: Callable[[], Sequence[CallsSeen]],
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        self._unanswered = unanswered
        self._calls = calls
        self._clock = clock
        self._wait = wait
        self._mutex = Lock()
        self._last: Look | None = None

    def run(self, stop: Event) -> None:
        """Look, and again and again, until `stop`."""
        self.look()
        while not self._wait(stop, LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Ask the sockets and count the calls."""
        unanswered = self._unanswered()
        now = self._clock()
        dead = (dead_calls(seen, now) for seen in self._calls())
        look = Look(now, (*unanswered, *(reason for reason in dead if reason)))
        with self._mutex:
            self._last = look

    def wrong(self) -> tuple[str, ...]:
        """What only a restart cures, or nothing."""
        with self._mutex:
            last = self._last
        return verdict(last, self._clock())
