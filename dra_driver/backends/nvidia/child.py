# SPDX-License-Identifier: Apache-2.0
"""The hardware process as a child of the driver, where the driver has no second container: started when it is needed, replaced when it hangs.

For each request the driver makes a fresh pair of sockets and sends the child one end of it. So there is no path that somebody else
could connect to.
"""

import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from dra_driver.backends.nvidia.hardware.control import Keeper
from dra_driver.backends.nvidia.link import Connection, Link, Socket
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.errors import Temporary

MODULE = "dra_driver.backends.nvidia.hardware"


class Child:
    """Starts the child at the first connection; see `Link`."""

    ours = True

    def __init__(self, command: Sequence[str]) -> None:
        self._keeper = Keeper(partial(_start, tuple(command)), " ".join(command))

    def connect(self) -> Connection:
        """Return a connection to the running child. Raises Temporary if it cannot be started."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                return Connection(ours, self._keeper.give(theirs))
        except BaseException:
            ours.close()
            raise

    def replace(self, of: object) -> None:
        """End the child that a connection belongs to. The next `connect` starts another one."""
        self._keeper.replace(of)

    def close(self) -> None:
        """End the child."""
        self._keeper.close()


class _Process(Struct, frozen=True, eq=False):
    process: subprocess.Popen[bytes]
    control: socket.socket

    def kill(self) -> None:
        self.process.kill()

    def ended(self) -> bool:
        return self.process.poll() is not None


def link_of(options: NvidiaOptions) -> Link:
    """The way to the hardware process that the options name. Nothing is started yet."""
    if options.socket:
        return Socket(options.socket)
    return Child(command(options.host_root, options.driver_root))


def command(host_root: str, driver_root: str) -> tuple[str, ...]:
    """How the child is started. `-I`: what is in the environment or in the current folder does not change what it imports."""
    return (
        *(sys.executable, "-I", "-m", MODULE),
        *("--host-root", host_root, "--driver-root", driver_root),
    )


def _start(command: Sequence[str]) -> _Process:
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
    return _Process(process, ours)
