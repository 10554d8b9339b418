# SPDX-License-Identifier: Apache-2.0
"""What does the daemon do at a signal? SIGTERM and SIGINT end it, SIGQUIT shows where its threads are, and SIGHUP does nothing."""

import faulthandler
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from dra_driver.model.exit_codes import INTERRUPTED

STANDARD_ERROR = 2
_WAKE = b"!"  # Python itself writes the number of each signal that has a handler, and no signal has this one


class EndSignal:
    """Waits for the first signal. The second signal ends the process at once.

    Python runs a signal handler in the main thread, between any two instructions. The main thread may hold a lock at that
    moment. So the handler must take no lock, and so cannot use a logger or `threading.Event`. It only writes into a pipe.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._number = 0

    def take(self, number: int, _frame: FrameType | None) -> None:
        """The handler of SIGTERM and SIGINT."""
        if self._number:
            os._exit(INTERRUPTED)
        self._number = number
        self.wake()

    def wake(self) -> None:
        """Let `wait` return."""
        os.write(self._writer, _WAKE)

    @property
    def writer(self) -> int:
        """The file descriptor of the pipe's writing end: any byte written to it interrupts the read of `wait`."""
        return self._writer

    def wait(self) -> str:
        """Wait for the first signal. Returns its name, or "" if `wake` was called without a signal."""
        while os.read(self._reader, 1) != _WAKE:
            pass
        return signal.Signals(self._number).name if self._number else ""

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._reader)
        os.close(self._writer)


@contextmanager
def signals() -> Iterator[EndSignal]:
    """Handle SIGTERM and SIGINT inside the block, and let SIGHUP do nothing. The former handlers are restored at its end."""
    end_signal = EndSignal()
    before = {
        number: signal.signal(number, end_signal.take) for number in (signal.SIGTERM, signal.SIGINT)
    }
    # Not SIG_IGN, which the processes of backends would inherit.
    before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: None)
    # The kernel may deliver a signal to another thread, or just before the main thread starts to read the pipe. In both cases the
    # signal does not interrupt the read. But Python writes a byte to the wakeup descriptor, and this byte ends the read.
    wakeup_before = signal.set_wakeup_fd(end_signal.writer, warn_on_full_buffer=False)
    try:
        yield end_signal
    finally:
        signal.set_wakeup_fd(wakeup_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        end_signal.close()


@contextmanager
def stack_dumps() -> Iterator[None]:
    """Write the stacks of all threads to standard error: inside the block at each SIGQUIT, and at the end when the process crashes."""
    faulthandler.enable(STANDARD_ERROR)
    before = signal.signal(signal.SIGQUIT, _show_stacks)
    try:
        yield
    finally:
        signal.signal(signal.SIGQUIT, before)


def _show_stacks(_number: int, _frame: FrameType | None) -> None:
    """The handler of SIGQUIT. It waits for no queue of the log.

    It has Python's lock, so no other thread changes its stack while it is read: without that (`faulthandler.register`) a look at the
    threads ends the process now and then. And it must not wait with that lock for whoever reads the log, so it writes in two steps.
    """
    with os.fdopen(os.memfd_create("stacks"), "w+b", buffering=0) as stacks, suppress(OSError):
        faulthandler.dump_traceback(stacks)
        stacks.seek(0)
        left = stacks.read()
        while left:
            left = left[os.write(STANDARD_ERROR, left) :]
