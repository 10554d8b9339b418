# SPDX-License-Identifier: Apache-2.0
"""The way to the hardware process: a connection for each request. Behind it is a child (`child.py`), or the second container (below)."""

import os
import socket
from typing import Protocol

from msgspec import Struct

from dra_driver.backends.nvidia.hardware.peer import owner
from dra_driver.errors import Permanent, Temporary

_ROOT = 0


class Connection(Struct, frozen=True):
    """A connection to the hardware process. `of` says to which: `Link.replace` needs that."""

    socket: socket.socket
    of: object


class Link(Protocol):
    """Where connections come from. Threads may use it at the same time. `ours`: `close` ends the process."""

    ours: bool

    def connect(self) -> Connection:
        """Return a new connection. Raises Temporary if there is no hardware process, and Permanent if it is somebody else's."""

    def replace(self, of: object) -> None:
        """The process behind a connection did not answer, or not with a message: see that another one takes its place."""

    def close(self) -> None:
        """End the process, if it is ours."""


class Socket:
    """The hardware process in another container. It ends itself if it hangs, and its container starts another one."""

    ours = False

    def __init__(self, path: str, *, seconds: float = 5.0) -> None:
        self._path = path
        self._seconds = seconds

    def connect(self) -> Connection:
        """Connect to the socket; see `Link`."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(self._seconds)
        try:
            connection.connect(self._path)
            self._check(connection)
        except OSError as error:
            connection.close()
            raise Temporary(
                f"the hardware process cannot be reached at {self._path}: {error.strerror or error}; it starts anew after a hang, "
                "so this is tried again; if it stays, see the log of the container `hardware` (`dra-driver hardware`)"
            ) from error
        except Permanent:
            connection.close()
            raise
        return Connection(connection, self)

    def replace(self, of: object) -> None:
        """Nothing: see the class."""

    def close(self) -> None:
        """Nothing: it is not ours."""

    def _check(self, connection: socket.socket) -> None:
        """Only root, or this user in a test, may say what hardware there is. Raises Permanent."""
        user = owner(connection)
        if user not in {_ROOT, os.geteuid()}:
            raise Permanent(
                f"the process that listens on {self._path} runs as user {user}, and only root's is believed; end that process, "
                "and start `dra-driver hardware` as root"
            )
