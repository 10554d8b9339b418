# SPDX-License-Identifier: Apache-2.0
"""Runs the kubelet's calls of one kind on a pool of workers, and answers each call before its deadline.

gRPC gives each call a thread. That thread only waits here; a worker does the work. So a call gets an answer in time even if all
workers are busy, or if the work hangs in a driver of the hardware that knows no deadline. The answer is then an error for each
claim, which the kubelet shows in an Event of the pod. A passed deadline would only show "DeadlineExceeded".

When the caller has its answer, work that no worker has begun is cancelled. Work that has begun goes on: the kubelet calls again
and then gets the result.

Prepare and unprepare have separate pools. Many prepare calls may wait for a slow API server, and releasing claims must work
meanwhile.
"""

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from threading import Lock
from typing import TypeVar

from msgspec import Struct

from dra_driver.errors import Temporary
from dra_driver.services.execute import CALL_SECONDS

LONGEST_CALL_SECONDS = 45.0  # the kubelet's own limit; also used for a caller without a deadline
OPEN_LIMIT = 256  # more than the number of pods that a kubelet starts at the same time
# The work must end this long before the caller's deadline: after the work come a commit on a disk that may be slow, and the answer.
MARGIN_SECONDS = 5.0
# If the work has not ended, the error is sent this long before the caller's deadline: only the answer comes after it.
LAST_SECONDS = 1.0

Result = TypeVar("Result")


class CallCounts(Struct, frozen=True):
    """How many calls of one kind are working and waiting now.

    `moved_at` is the time when a worker last began or ended a call, in seconds of the monotonic clock.
    """

    name: str
    workers: int
    working: int
    waiting: int
    moved_at: float


class _Ticket(Struct):
    """Whether a worker has begun a call, or its caller has given it up before. The mutex of `Calls` decides which."""

    begun: bool = False
    given_up: bool = False


class Calls:
    """Runs the calls of the kind `name` on `workers` threads. `clock` gives the monotonic seconds of all deadlines here."""

    def __init__(
        self, name: str, *, workers: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._workers = workers
        self._clock = clock
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._mutex = Lock()
        self._open = self._working = self._waiting = 0
        self._moved_at = clock()

    def do(self, work: Callable[[float], Result], *, seconds_left: float | None) -> Result:
        """Run `work(until)` on a worker and return its result. `until` is the time when the work must have ended.

        Raises Temporary if there is no result shortly before the caller's deadline, which is in `seconds_left`.
        """
        # With a short deadline the margins shrink in proportion, so that a part of the time remains for the work.
        left = LONGEST_CALL_SECONDS if seconds_left is None else seconds_left
        left = min(left, LONGEST_CALL_SECONDS)
        until = self._clock() + min(left - min(MARGIN_SECONDS, left / 2), CALL_SECONDS)
        self._enter(left)
        try:
            future = self._submit(work, until)
            return self._result(future, left)
        finally:
            with self._mutex:
                self._open -= 1

    def counts(self) -> CallCounts:
        """The counts of this moment, for the liveness check."""
        with self._mutex:
            return CallCounts(
                self.name, self._workers, self._working, self._waiting, self._moved_at
            )

    def close(self) -> None:
        """Cancel the waiting calls and accept no new ones. Work that has begun goes on."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _enter(self, left: float) -> None:
        with self._mutex:
            if left <= 0:
                raise Temporary(
                    f"the {self.name} call reached the driver after its deadline; the kubelet tries again"
                )
            if self._open >= OPEN_LIMIT:
                raise Temporary(
                    f"{self._open} {self.name} calls are under way and no more are taken; the kubelet tries again"
                )
            self._open += 1
            self._waiting += 1

    def _submit(self, work: Callable[[float], Result], until: float) -> "Future[Result]":
        ticket = _Ticket()
        try:
            return self._pool.submit(self._work, ticket, work, until)
        except RuntimeError as error:  # the process ends, or the system gives it no more threads
            # The pool may have queued the work before it failed to start a thread, and another worker may take it.
            with self._mutex:
                self._waiting -= not ticket.begun
                ticket.given_up = True
            raise Temporary(
                f"the {self.name} call was not begun: {error}; the kubelet tries again"
            ) from error

    def _result(self, future: "Future[Result]", left: float) -> Result:
        try:
            return future.result(timeout=left - min(LAST_SECONDS, left / 4))
        except FutureTimeoutError:
            # The work may have ended in this very moment. Or the TimeoutError came out of the work itself.
            if future.done():
                return future.result()
            raise self._late(future, left) from None
        except CancelledError:
            raise Temporary(
                f"the {self.name} call was not begun: the driver ends; the kubelet tries again"
            ) from None

    def _work(self, ticket: "_Ticket", work: Callable[[float], Result], until: float) -> Result:
        with self._mutex:
            if ticket.given_up:
                raise self._busy()  # nobody waits for it
            ticket.begun = True
            self._waiting -= 1
            self._working += 1
            self._moved_at = self._clock()
        try:
            if self._clock() >= until:
                raise self._busy()
            return work(until)
        finally:
            with self._mutex:
                self._working -= 1
                self._moved_at = self._clock()

    def _late(self, future: Future[Result], left: float) -> Temporary:
        if future.cancel():
            with self._mutex:
                self._waiting -= 1
            return self._busy()
        return Temporary(
            f"the {self.name} call is not done after {left:.0f} s and goes on; the kubelet tries again and gets its result"
        )

    def _busy(self) -> Temporary:
        return Temporary(
            f"the {self.name} call was not begun: all {self._workers} workers were busy until its deadline; "
            f"the kubelet tries again; the driver's log and /livez say what holds them"
        )
