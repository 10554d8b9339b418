# SPDX-License-Identifier: Apache-2.0
"""Connections for the process that has the library open: whoever started it sends them over a pair of sockets."""

import socket
from collections.abc import Callable

SECONDS = 10.0
"""How long the process may need to take a connection: the start of Python on a busy node."""


def give(control: socket.socket, connection: socket.socket) -> None:
    """Send a connection over the control socket, and wait until it is taken. Raises OSError."""
    control.settimeout(SECONDS)
    socket.send_fds(control, [b"+"], [connection.fileno()])
    if control.recv(1) != b"+":
        raise ConnectionResetError("the hardware process has ended")


def take(control: socket.socket, taken: Callable[[socket.socket], None]) -> None:
    """The child's side: pass each connection to `taken` until the other side is closed."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        for descriptor in descriptors:
            taken(socket.socket(fileno=descriptor))
        control.send(b"+")
