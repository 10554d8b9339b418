# SPDX-License-Identifier: Apache-2.0
"""A forward proxy for tests: CONNECT tunnels only, all of them to one server, as if that were where the client wants to go."""

import socket
import socketserver
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class ConnectProxy(socketserver.ThreadingTCPServer):
    """Listens on `host`; `seen` are the first lines that arrived."""

    def __init__(self, host: str, upstream: tuple[str, int]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.upstream = upstream
        self.seen: list[str] = []
        self.open: list[socket.socket] = []
        super().__init__((host, 0), _Tunnel)
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown()
        self._thread.join()
        for connection in self.open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()


class _Tunnel(socketserver.BaseRequestHandler):
    """One client."""

    def handle(self) -> None:
        assert isinstance(self.server, ConnectProxy)
        self.server.open.append(self.request)
        head: bytes = self.request.recv(65536)
        line = head.partition(b"\r\n")[0].decode()
        self.server.seen.append(line)
        if not line.startswith("CONNECT "):
            self.request.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
            return
        with socket.create_connection(self.server.upstream) as upstream:
            self.server.open.append(upstream)
            self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            backwards = threading.Thread(target=copy, args=(upstream, self.request))
            backwards.start()
            copy(self.request, upstream)
            backwards.join()


def copy(source: socket.socket, sink: socket.socket) -> None:
    """Pass on bytes until the source ends."""
    try:
        while piece := source.recv(65536):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the other side is gone
