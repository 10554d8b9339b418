# SPDX-License-Identifier: Apache-2.0
"""Long-lived threads: each has a name and a guard. None dies silently, none is started in a hot loop.

Services catch the errors that they know. What nobody foresaw ends here: it is told and counted, and the thread starts again
after a pause that grows with each failure. Even telling may fail, and costs no thread its life.
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
"""A run that lasted so long was a good one: its failure is the first again."""


class Supervisor:
    """Starts guarded threads and ends them together. `wait` is `Event.wait` of the stop event; tests inject it and `clock`."""

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
        """Run `run(stop)` on a thread. It may return when `stop` is set; an error starts it again after a growing delay."""
        thread = Thread(target=self._guard, args=(name, run), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def end(self, *, seconds: float) -> tuple[str, ...]:
        """Ask all threads to end and wait for them at most `seconds`; answers the names of those that did not."""
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
            except Exception as error:  # noqa: BLE001  the guard of all threads: every error is logged and counted
                if self._clock() - begun >= SOUND_SECONDS:
                    delay = FIRST_DELAY_SECONDS
                self.tell(name, error, delay)
                self._wait(self.stop, delay)
                delay = min(delay * 2, LONGEST_DELAY_SECONDS)
            else:
                if not self.stop.is_set():
                    self._log.info("thread_ended", thread=name)
                return

    def tell(self, name: str, error: BaseException, delay: float = 0.0) -> None:
        """Log and count what a thread met, which goes on after `delay` seconds; 0 if it does not. Never raises."""
        # Each for itself: a log that cannot be written leaves the metric, and the other way round.
        with suppress(Exception):
            self._observe(ThreadFailed(name, f"{type(error).__name__}: {error}", delay))
        with suppress(Exception):
            self._log.error("thread_error", thread=name, exc_info=error)
