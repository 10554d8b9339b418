# SPDX-License-Identifier: Apache-2.0
"""How can a block of code be stopped when it takes too much time or memory?"""

import gc
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import FrameType
from typing import TypeVar

LEAST_SECONDS = 0.001
# If something swallows TookTooLong and does not tell `_Timer`, the signal comes again each second.
AGAIN_SECONDS = 1.0
_PAGE = resource.getpagesize()
_CLOCKS: Mapping[int, int] = {
    signal.SIGALRM: signal.ITIMER_REAL,
    signal.SIGPROF: signal.ITIMER_PROF,
}

T = TypeVar("T")


class TookTooLong(BaseException):
    """The time is over.

    This class is no Exception, because the interrupted code may catch every Exception, and would treat this one as its own error.
    """


def in_time(work: Callable[[], T], seconds: float) -> T:
    """Return what the work returns, or raise what it raises; raise TimeoutError if it is not done in time.

    Work that hangs in the kernel cannot be interrupted: it goes on in a thread that is left behind, and ends with the process.
    """
    answers: SimpleQueue[tuple[T, ...] | Exception] = SimpleQueue()

    def answer() -> None:
        try:
            answers.put((work(),))
        except Exception as error:  # noqa: BLE001  it is raised in the caller's thread
            answers.put(error)

    Thread(target=answer, daemon=True).start()
    try:
        found = answers.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer in {seconds:g} s") from None
    if isinstance(found, Exception):
        raise found
    return found[0]


_YOUNG, _NEVER = 100_000, 1_000_000


@contextmanager
def uncollected(*, frozen: bool = False) -> Iterator[None]:
    """Run the block without garbage collection but of the youngest objects: the search for a pod leaves cycles behind.

    A report on a large fleet makes a million objects that live until its end. Looking for cycles among them again and again takes a
    quarter of the time, and finds none. `frozen`: the process ends after the block, so what is left of it is not looked through then
    either, which takes half a second.
    """
    before = gc.get_threshold()
    gc.set_threshold(_YOUNG, _NEVER, _NEVER)
    try:
        yield
    finally:
        if frozen:
            gc.freeze()
        gc.set_threshold(*before)


@contextmanager
def at_most(seconds: float, *, of_work: float | None = None) -> Iterator[None]:
    """Raise TookTooLong in the block when `seconds` are over. This uses SIGALRM, so it works only in the main thread.

    A signal is needed because the time may end inside a C function, such as a regular expression. `of_work` limits besides the seconds for
    which the process has a CPU (SIGPROF): what it waits for, and what other processes of a busy machine take, is not among them.
    """
    limits = {signal.SIGALRM: seconds}
    if of_work is not None:
        limits[signal.SIGPROF] = of_work
    timer = _Timer()
    handlers = {number: signal.signal(number, timer.over) for number in limits}
    others = {number: signal.getitimer(_CLOCKS[number]) for number in limits}
    sys.unraisablehook = timer.dropped
    try:
        for number, limit in limits.items():
            signal.setitimer(_CLOCKS[number], max(limit, LEAST_SECONDS), AGAIN_SECONDS)
        yield
    finally:
        timer.is_ended = (
            True  # first: a signal from here on must not keep the rest from being put back
        )
        for number in limits:
            signal.setitimer(_CLOCKS[number], 0)
        sys.unraisablehook = timer.hook
        # If a timer ran before this block, start it again with the time that it had left. It ends later by as long as the block
        # took.
        for number, handler in handlers.items():
            signal.signal(number, handler)
            signal.setitimer(_CLOCKS[number], *others[number])
    if timer.is_over:
        raise TookTooLong


class _Timer:
    """What happens at the end of the time.

    Python drops an exception that is raised in a callback (`__del__`, or a callback of the garbage collector) and reports it to
    `sys.unraisablehook`. So the signal is asked for again at once, and a block that ends before it comes has taken too long too.
    """

    def __init__(self) -> None:
        self.is_over = self.is_ended = False
        self.first = 0
        self.hook = sys.unraisablehook

    def over(self, number: int, _frame: FrameType | None) -> None:
        # The signal of the other clock must not interrupt how the block ends.
        if not self.is_ended and self.first in (0, number):
            self.first = number
            self.is_over = True
            raise TookTooLong

    def dropped(self, lost: "sys.UnraisableHookArgs") -> None:
        """Replace `sys.unraisablehook`."""
        if lost.exc_type is TookTooLong and self.first:
            signal.setitimer(_CLOCKS[self.first], LEAST_SECONDS, AGAIN_SECONDS)
        else:
            self.hook(lost)


@contextmanager
def more_memory(most: int) -> Iterator[None]:
    """Limit the memory of the process in the block: `most` bytes more than it has now. Above this, Python raises MemoryError.

    Without /proc (not Linux) there is no limit.
    """
    try:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    except OSError:
        yield
        return
    had = resource.getrlimit(resource.RLIMIT_AS)
    wanted = now + most
    soft = wanted if had[0] == resource.RLIM_INFINITY else min(wanted, had[0])
    resource.setrlimit(resource.RLIMIT_AS, (soft, had[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, had)
