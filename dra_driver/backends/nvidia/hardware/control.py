# SPDX-License-Identifier: Apache-2.0
"""Who keeps the process with the library running: it starts the process, sends it connections over a pair of sockets, and replaces it.

The process ends when the other end of the pair closes, also after a SIGKILL. (`PR_SET_PDEATHSIG` would end it with the *thread* that
started it.)
"""

import socket
import time
from collections.abc import Callable
from threading import Lock
from typing import Protocol

from dra_driver.errors import Temporary

SECONDS = 10.0
"""How long the process may need to take a connection: the start of Python on a busy node."""
_END_SECONDS = 1.0


class Started(Protocol):
    """A process that was started."""

    @property
    def control(self) -> socket.socket:
        """Our end of the pair."""

    def kill(self) -> None:
        """Send SIGKILL."""

    def ended(self) -> bool:
        """Whether it has ended. Takes its exit code, so that no zombie is left."""


class Keeper:
    """Keeps one process running, from the first connection on. Threads may use it at the same time."""

    def __init__(
        self, start: Callable[[], Started], name: str, *, seconds: float = SECONDS
    ) -> None:
        self._start = start
        self._name = name
        self._seconds = seconds
        self._mutex = Lock()
        self._running: Started | None = None
        self._killed: list[Started] = []

    def give(self, connection: socket.socket) -> Started:
        """Send the process a connection; start one first if there is none. Raises Temporary."""
        with self._mutex:
            self._reap()
            if self._running is not None and self._running.ended():
                self._end()
            for _ in range(2):
                if self._running is None:
                    self._running = self._start()
                try:
                    _give(self._running.control, connection, self._seconds)
                except OSError:  # it ended or hangs; one that was just started must not
                    self._end()
                else:
                    return self._running
        raise Temporary(
            f"the hardware process ({self._name}) ends or hangs at its start; what it wrote before is in the log of whoever started it"
        )

    def replace(self, of: object) -> None:
        """End this process. The next connection starts another one. Nothing happens if it was replaced before."""
        with self._mutex:
            if of is self._running:
                self._end()

    def close(self) -> None:
        """End the process."""
        with self._mutex:
            self._end()

    def running(self) -> Started | None:
        """The process, if it was started and not replaced; it may have ended."""
        return self._running

    def _end(self) -> None:
        if self._running is None:
            return
        self._running.control.close()
        self._running.kill()
        self._killed.append(self._running)
        # One that the kernel holds in a call of its driver ends when that call returns, hours later or never. Nobody waits for that.
        until = time.monotonic() + _END_SECONDS
        while not self._running.ended() and time.monotonic() < until:
            time.sleep(0.005)
        self._running = None
        self._reap()

    def _reap(self) -> None:
        self._killed = [one for one in self._killed if not one.ended()]


def _give(control: socket.socket, connection: socket.socket, seconds: float) -> None:
    """Send a connection, and wait until it is taken. Raises OSError."""
    control.settimeout(seconds)
    socket.send_fds(control, [b"+"], [connection.fileno()])
    if control.recv(1) != b"+":
        raise ConnectionResetError("the hardware process has ended")


def take(control: socket.socket, taken: Callable[[socket.socket], None]) -> None:
    """The side of the process: pass each connection to `taken` until the other side is closed."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        control.send(b"+")  # first: a request may end the process
        for descriptor in descriptors:
            taken(socket.socket(fileno=descriptor))
