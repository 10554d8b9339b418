# SPDX-License-Identifier: Apache-2.0
"""The hardware process as a child of the driver, where the driver has no second container: started when it is needed, replaced when it hangs.

The driver and the child share a pair of sockets. For each request the driver makes a fresh pair and sends the child one end of it over
the first pair. So there is no path that somebody else could connect to. The child ends when the driver's end of the first pair closes,
also after a SIGKILL. (`PR_SET_PDEATHSIG` would end it with the *thread* that started it.)
"""

import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

from dra_driver.backends.nvidia.hardware.control import give
from dra_driver.backends.nvidia.link import Connection, Link, Socket
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.errors import Temporary

MODULE = "dra_driver.backends.nvidia.hardware"


class Child:
    """Starts the child, gives connections to it, and replaces it. Threads may use it at the same time."""

    ours = True

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)
        self._mutex = Lock()
        self._running: _Running | None = None
        self._ended: list[subprocess.Popen[bytes]] = []  # killed, and not yet reaped

    def connect(self) -> Connection:
        """Return a connection to the running child; start one if there is none. Raises Temporary if it cannot be started."""
        with self._mutex:
            self._reap()
            if self._running is not None and self._running.process.poll() is not None:
                self._end()
            for _ in range(2):
                if self._running is None:
                    self._running = _start(self._command)
                try:
                    return Connection(self._running.hand_over(), self._running)
                except OSError:  # it ended or hangs; one that was just started must not
                    self._end()
        raise Temporary(
            f"the hardware process ({' '.join(self._command)}) ends or hangs at its start; its output is in the driver's log"
        )

    def replace(self, of: object) -> None:
        """End the child that a connection belongs to. The next `connect` starts another one. Nothing happens if it was replaced before."""
        with self._mutex:
            if of is self._running:
                self._end()

    def close(self) -> None:
        """End the child."""
        with self._mutex:
            self._end()

    def _end(self) -> None:
        if self._running is None:
            return
        process = self._running.process
        self._running.control.close()
        self._running = None
        process.kill()
        # One that the kernel holds in a call of its driver ends when that call returns, hours later or never. Nobody waits for that.
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1.0)
        self._ended.append(process)

    def _reap(self) -> None:
        """Take the exit codes of those that have ended since."""
        self._ended = [process for process in self._ended if process.poll() is None]


@dataclass(frozen=True, slots=True, eq=False)
class _Running:
    process: subprocess.Popen[bytes]
    control: socket.socket

    def hand_over(self) -> socket.socket:
        """Give the child one end of a new pair, and return the other one. Raises OSError if the child does not take it."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                give(self.control, theirs)
        except OSError:
            ours.close()
            raise
        return ours


def command(host_root: str, driver_root: str) -> tuple[str, ...]:
    """How the child is started. `-I`: what is in the environment or in the current folder does not change what it imports."""
    return (
        *(sys.executable, "-I", "-m", MODULE),
        *("--host-root", host_root, "--driver-root", driver_root),
    )


def link_of(options: NvidiaOptions) -> Link:
    """The way to the hardware process that the options name. Nothing is started yet."""
    if options.socket:
        return Socket(options.socket)
    return Child(command(options.host_root, options.driver_root))


def _start(command: Sequence[str]) -> _Running:
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603  the driver's own command
                (*command, "--control", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C ends the driver, and the driver's end ends the child
            )
        except OSError as error:
            ours.close()
            raise Temporary(
                f"the hardware process ({' '.join(command)}) cannot be started: {error}"
            ) from error
    return _Running(process, ours)
