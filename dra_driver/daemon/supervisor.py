# SPDX-License-Identifier: Apache-2.0
"""What happens when a long-lived thread fails? Each has a name and a guard (`_guard`), so that no thread ends silently.

Services catch the errors that they expect. The guard catches every other error, also the SystemExit of a backend: it logs and
counts the error, waits, and runs the loop again. The pause grows with each failure, so that a broken loop does not use a whole core.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread

from structlog.typing import FilteringBoundLogger

from dra_driver.model.events import Observer, ThreadFailed

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0
SOUND_SECONDS = 600.0
"""If a loop ran this long before it failed, the pause is FIRST_DELAY_SECONDS again: the earlier failures are probably not related."""


class Supervisor:
    """Starts guarded threads and ends them together. Tests replace `wait` (`Event.wait` of the stop event) and `clock`."""

    def __init__(
        self,
        log: FilteringBoundLogger,
        observe: Observer,
        *,
        wait: Callable[[Event, float], bool] = Event.wait,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stop = Event()
        self._log = log
        self._observe = observe
        self._wait = wait
        self._clock = clock
        self._threads: list[Thread] = []

    def start(self, name: str, run: Callable[[Event], None]) -> None:
        """Run `run(stop)` on a thread. `run` must return when `stop` is set. If `run` raises, it runs again after a pause."""
        # A daemon thread does not keep the process alive: `end` waits for it, but only as long as its caller wants.
        thread = Thread(target=self._guard, args=(name, run), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def end(self, *, seconds: float) -> tuple[str, ...]:
        """Set `stop` and wait at most `seconds` for all threads. Returns the names of the threads that still run."""
        self.stop.set()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return tuple(thread.name for thread in self._threads if thread.is_alive())

    def _guard(self, name: str, run: Callable[[Event], None]) -> None:
        delay = FIRST_DELAY_SECONDS
        while not self.stop.is_set():
            begun = self._clock()
            try:
                run(self.stop)
            except BaseException as error:  # noqa: BLE001  also SystemExit, which would end the thread without a word
                if self._clock() - begun >= SOUND_SECONDS:
                    delay = FIRST_DELAY_SECONDS
                self.report(name, error, delay)
                self._wait(self.stop, delay)
                delay = min(delay * 2, LONGEST_DELAY_SECONDS)
            else:
                if not self.stop.is_set():
                    self._log.info("thread_ended", thread=name)
                return

    def report(self, name: str, error: BaseException, delay: float = 0.0) -> None:
        """Log and count the error of a thread. `delay` is the pause in seconds before the thread's loop runs again; 0: it does not.

        Never raises: a full disk under the log must not end the thread.
        """
        # Two blocks: the metric must be counted even if the log cannot be written, and the other way round.
        with suppress(Exception):
            self._observe(ThreadFailed(name, f"{type(error).__name__}: {error}", delay))
        with suppress(Exception):
            self._log.error("thread_error", thread=name, exc_info=error)
