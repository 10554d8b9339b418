# SPDX-License-Identifier: Apache-2.0
"""Limits of time and memory for one piece of work."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

LEAST_SECONDS = 0.001
_PAGE = resource.getpagesize()


class TookTooLong(BaseException):
    """The time is over.

    It is not an Exception: the code that it interrupts may catch every Exception, and would take it for an error of its own.
    """


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TookTooLong in the block when `seconds` are over. It uses SIGALRM, so it works only in the main thread.

    A signal is needed because the time may be over inside a C function, such as a regular expression.
    """
    before = signal.signal(signal.SIGALRM, _over)
    others = signal.setitimer(signal.ITIMER_REAL, max(seconds, LEAST_SECONDS))
    try:
        yield
    finally:
        # An outer timer continues, delayed by the time of this block.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *others)


def _over(_number: int, _frame: FrameType | None) -> NoReturn:
    raise TookTooLong


@contextmanager
def more_memory(most: int) -> Iterator[None]:
    """Limit the memory of the process in the block to `most` bytes more than it has now. Beyond that Python raises MemoryError.

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
