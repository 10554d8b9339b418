# SPDX-License-Identifier: Apache-2.0
"""A hardware process without a process: its server in threads of the test, on the stand-in of the library."""

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dra_driver.backends.nvidia.facts import Installation
from dra_driver.backends.nvidia.hardware.nvml import Found, Library
from dra_driver.backends.nvidia.hardware.server import Server, Watchdog
from dra_driver.backends.nvidia.hardware.verbs import Verbs
from dra_driver.backends.nvidia.link import Connection
from tests.support.nvml_standin import StandIn

INSTALLED = Installation(driver_root="/", kernel_version="580.126.20", library_version="580.126.20")


class ThreadLink:
    """Each `replace` makes a new server, which has read nothing yet. `found` is what is installed."""

    ours = True

    def __init__(self, library: StandIn, host_root: Path) -> None:
        self.library = library
        self.host_root = host_root
        self.found = Found(INSTALLED, str(host_root / "libnvidia-ml.so.1"))
        self.replaced = 0
        self.ended = 0
        self.speak: Callable[[socket.socket], None] | None = None  # instead of the server
        self.held = False  # by the kernel driver: a server that is replaced does not end
        self._server: Server | None = None
        self._taken: list[socket.socket] = []

    def connect(self) -> Connection:
        """A connection to the server; to what the test says, if it says something."""
        ours, theirs = socket.socketpair()
        if self.speak is not None:
            with theirs:
                self.speak(theirs)
            return Connection(ours, self)
        if self._server is None:
            self._server = self.server()
        self._taken.append(theirs)
        self._server.take(theirs)
        return Connection(ours, self._server)

    def server(self) -> Server:
        """A new server."""
        library = Library(self.library, lambda: self.found, load=lambda _: None)
        verbs = Verbs(self.library, library, host_root=str(self.host_root))
        return Server(verbs, Patient(), self._end)

    def _end(self, _code: int = 0) -> None:
        self.ended += 1
        self._server = None

    def replace(self, of: object) -> None:
        """The next connection is to a new server."""
        if of in {self, self._server}:
            self.replaced += 1
            self._server = None
            if not self.held:
                self.finish()

    def finish(self) -> None:
        """What was replaced ends, and with it each connection."""
        for connection in self._taken:
            with suppress(OSError):  # it is closed
                connection.shutdown(socket.SHUT_RDWR)
        self._taken = []

    def close(self) -> None:
        """The same."""
        self._end()


class Patient(Watchdog):
    """Ends nothing: the timer of the real one belongs to the whole test process."""

    def __init__(self) -> None:
        super().__init__(lambda _: None, lambda: None)
