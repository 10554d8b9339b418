# SPDX-License-Identifier: Apache-2.0
"""Who is at the other end of a unix socket."""

import socket
import struct

_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def owner(connection: socket.socket) -> int:
    """Return the user ID of the process at the other end, as it was when it began to listen or connected."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])
