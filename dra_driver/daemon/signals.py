# SPDX-License-Identifier: Apache-2.0
"""What does the daemon do at a signal? SIGTERM and SIGINT end it, SIGQUIT shows where its threads are, and SIGHUP does nothing."""

import _thread
import faulthandler
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from types import FrameType
from typing import BinaryIO, Self

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
    with _Stacks() as stacks:
        before = signal.signal(signal.SIGQUIT, stacks.show)
        try:
            yield
        finally:
            signal.signal(signal.SIGQUIT, before)


class _Stacks:
    """The handler of SIGQUIT. It opens nothing, waits for nobody, and takes no lock that the main thread may have at that moment.

    It has Python's lock, so no other thread changes its stack while it is read: without that (`faulthandler.register`) a look at the
    threads ends the process now and then. With that lock, and on the main thread, it must not wait for whoever reads the log. So the
    stacks go into memory, and a thread of their own writes them.
    """

    def __init__(self) -> None:
        self._memory: BinaryIO | None = None
        self._instead = b""
        try:
            # At the start: a process that has used up its file descriptors is one that people want to look at.
            self._memory = os.fdopen(os.memfd_create("stacks"), "w+b", buffering=0)
        except OSError as error:
            self._instead = f"cannot show the stacks: memfd_create: {error}\n".encode()
        self._mutex = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._memory is not None:
            self._memory.close()

    def show(self, _number: int, _frame: FrameType | None) -> None:
        """Write the stacks, or why that cannot be done."""
        with suppress(OSError, RuntimeError):  # no memory, or no further thread
            # Not `threading.Thread`, whose start takes locks.
            _thread.start_new_thread(self._write, (self._read(),))

    def _read(self) -> bytes:
        if self._memory is None:
            return self._instead
        self._memory.seek(0)
        self._memory.truncate()
        faulthandler.dump_traceback(self._memory)
        self._memory.seek(0)
        return self._memory.read()

    def _write(self, left: bytes) -> None:
        with self._mutex, suppress(OSError):
            while left:
                left = left[os.write(STANDARD_ERROR, left) :]
