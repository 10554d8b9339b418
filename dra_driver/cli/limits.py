# SPDX-License-Identifier: Apache-2.0
"""What may an answer cost? So much time, and while something is read that anybody may have written, so much memory."""

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
    """The time is over. No DriverError and no Exception: nobody on the way may take it for a failure of its own."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises TookTooLong in the main thread when the time is over, wherever it is then."""
    before = signal.signal(signal.SIGALRM, _over)
    others = signal.setitimer(signal.ITIMER_REAL, max(seconds, LEAST_SECONDS))
    try:
        yield
    finally:
        # Whoever had set the timer before gets it back, later by what this took.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *others)


def _over(_number: int, _frame: FrameType | None) -> NoReturn:
    raise TookTooLong


@contextmanager
def more_memory(most: int) -> Iterator[None]:
    """Lets the process have `most` bytes more than it has now, and no more: MemoryError says so. Where that can be told (Linux)."""
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
