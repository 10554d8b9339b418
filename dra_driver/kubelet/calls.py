# SPDX-License-Identifier: Apache-2.0
"""The kubelet's calls of one kind: done by workers of their own, in the order of arrival, and answered in their caller's time.

gRPC gives each call a thread. That thread only waits here; the work is done by a bounded number of workers. So a call that
waits for a worker, or whose work hangs where no deadline reaches it, is still answered before the kubelet gives it up: with
an error for each claim that says what happened, which a deadline that passed would not. Work that nobody waits for any more
is not begun; work that has begun goes on, and the kubelet's next call meets its result.

Prepare and unprepare have workers each: however many prepares wait for an API server, claims can be released.
"""

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

from dra_driver.errors import Temporary
from dra_driver.services.execute import CALL_SECONDS

LONGEST_CALL_SECONDS = 45.0  # the kubelet's own limit, and that of callers who name none
OPEN_LIMIT = 256  # more than the pods that a kubelet starts at once
# Work is told to end so long before the caller gives up: a commit on a slow disk, and the answer, come after it.
MARGIN_SECONDS = 5.0
# Work that did not end then is answered for so long before: only the answer comes after it.
LAST_SECONDS = 1.0

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class CallCounts:
    """The calls of one kind at one moment. `moved_at` is when one was last taken or finished, by the monotonic clock."""

    name: str
    workers: int
    working: int
    waiting: int
    moved_at: float


class Calls:
    """Does calls of the kind `name` with so many workers. `clock` is the one by which services are told until when."""

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

    def do(self, work: Callable[[float], Answer], *, seconds_left: float | None) -> Answer:
        """What `work(until)` answers. Raises Temporary when there is no answer that the caller would still hear."""
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
        """How it stands now."""
        with self._mutex:
            return CallCounts(
                self.name, self._workers, self._working, self._waiting, self._moved_at
            )

    def close(self) -> None:
        """Begin no work any more; what has begun goes on."""
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

    def _submit(self, work: Callable[[float], Answer], until: float) -> "Future[Answer]":
        try:
            return self._pool.submit(self._work, work, until)
        except RuntimeError as error:  # the process ends, or the system gives it no more threads
            with self._mutex:
                self._waiting -= 1
            raise Temporary(
                f"the {self.name} call was not begun: {error}; the kubelet tries again"
            ) from error

    def _result(self, future: "Future[Answer]", left: float) -> Answer:
        try:
            return future.result(timeout=left - min(LAST_SECONDS, left / 4))
        except FutureTimeoutError:
            if future.done():  # just now; or the work itself raised it
                return future.result()
            raise self._late(future, left) from None
        except CancelledError:
            raise Temporary(
                f"the {self.name} call was not begun: the driver ends; the kubelet tries again"
            ) from None

    def _work(self, work: Callable[[float], Answer], until: float) -> Answer:
        with self._mutex:
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

    def _late(self, future: Future[Answer], left: float) -> Temporary:
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
