# SPDX-License-Identifier: Apache-2.0
"""How does the driver serve /metrics, /livez and /readyz on one port, whatever its clients do?

A check is a function that returns a list of problems at once, without waiting. /livez and /readyz answer 200 "ok" when the list
is empty, else 503 and the problems.

Every pod of the cluster may be able to connect to this port. But the kubelet's probe must always get an answer, because a failed
probe restarts the driver. So:

- One thread serves all connections with non-blocking sockets. No client can make it wait.
- A request has at most `HEADER_BYTES`. A connection has at most `REQUEST_SECONDS`, from accept to close.
- There are at most `CONNECTION_LIMIT` connections. The next one closes an older one of the address that has most of them: who hammers
  takes the place of his own connections, and not that of the kubelet, whose request may come a moment after its connection.
- A connection serves one request, so that connections do not pile up.
- The text of /metrics is made at most once in `METRICS_SECONDS`, and the thread spends at most half of its time on it: for 1,000 devices it
  takes a second or two, and has megabytes. All clients get the same bytes.
"""

import selectors
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from threading import Event, Lock

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from dra_driver.daemon.http_request import Response, request_path, response_bytes
from dra_driver.errors import Fatal

Check = Callable[[], tuple[str, ...]]

CONNECTION_LIMIT = 64
HEADER_BYTES = 8192
REQUEST_SECONDS = 10.0
METRICS_SECONDS = 1.0
TICK_SECONDS = 0.5  # a connection is closed at most this long after its time is over
_BACKLOG = 128
_ACCEPTED_AT_ONCE = 16  # after 16 new connections, the open connections are served
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class _Connection:
    """One client: the bytes received so far, and the bytes of the response that are not sent yet."""

    def __init__(self, peer: socket.socket, address: str, until: float) -> None:
        self.socket = peer
        self.address = address
        self.until = until
        self.received = bytearray()
        self.response = memoryview(b"")
        self.answered = (
            False  # the response is sent; the connection only waits for the client to close it
        )


class HttpEndpoint:
    """Serves until `close`. An empty host means all addresses, IPv6 and IPv4; port 0 lets the system choose.

    `clock` is monotonic seconds.
    """

    def __init__(
        self,
        address: tuple[str, int],
        registry: CollectorRegistry,
        checks: Mapping[str, Check],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._checks = dict(checks)
        self._clock = clock
        self._listening = _listen(*address)
        self.port: int = self._listening.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, _READ)
        self._connections: dict[socket.socket, _Connection] = {}  # oldest first
        self._mutex = Lock()
        self._serving = False
        self._closed = Event()
        self._paused_until = 0.0
        self._metrics = b""
        self._metrics_until = -inf
        self._wakes, self._waker = socket.socketpair()
        self._selector.register(self._wakes, _READ)

    def serve(self) -> None:
        """Answer requests until `close` is called. Returns at once if `close` was called before."""
        with self._mutex:
            if self._closed.is_set():
                return
            self._serving = True
        try:
            while not self._closed.is_set():
                self._poll()
        finally:
            with self._mutex:
                self._serving = False
                if self._closed.is_set():
                    self._release()

    def close(self) -> None:
        """Stop answering and close all sockets. It works from any thread, and also if `serve` was never called."""
        # The serving thread may wait in `select`. To close the sockets now would be a race. So this method only wakes that thread
        # up, and the thread closes the sockets. If no thread serves, this method closes them.
        with self._mutex:
            if self._closed.is_set():
                return
            self._closed.set()
            if not self._serving:
                self._release()
            else:
                self._waker.send(b"!")

    def _poll(self) -> None:
        is_timed = self._connections or self._paused_until
        for key, _ in self._selector.select(TICK_SECONDS if is_timed else None):
            found = key.fileobj
            if found is self._listening:
                self._accept()
            elif isinstance(found, socket.socket) and found in self._connections:
                self._continue(self._connections[found])
        now = self._clock()
        if 0.0 < self._paused_until <= now:
            self._paused_until = 0.0
            self._selector.register(self._listening, _READ)
        for connection in [other for other in self._connections.values() if other.until <= now]:
            self._drop(connection)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                peer, address = self._listening.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError:
                # No file descriptor or no memory is left. `select` would report the waiting client again at once, and this loop
                # would use a whole core. So close the oldest connection, and accept no new one for TICK_SECONDS.
                self._drop_oldest()
                self._selector.unregister(self._listening)
                self._paused_until = self._clock() + TICK_SECONDS
                return
            peer.setblocking(False)
            connection = _Connection(peer, address[0], self._clock() + REQUEST_SECONDS)
            if len(self._connections) >= CONNECTION_LIMIT:
                self._drop_oldest()
            self._connections[peer] = connection
            self._selector.register(peer, _READ)
            # The request has often arrived with the connection. Answering it now keeps the number of connections low.
            self._continue(connection)

    def _continue(self, connection: _Connection) -> None:
        try:
            if connection.response:
                self._send(connection)
            else:
                self._receive(connection)
        except BlockingIOError:
            pass  # nothing to read yet
        except OSError:
            self._drop(connection)

    def _receive(self, connection: _Connection) -> None:
        received = connection.socket.recv(HEADER_BYTES)
        if not received:
            self._drop(connection)
            return
        if connection.answered:
            return  # bytes after the request are ignored
        connection.received += received
        path = request_path(bytes(connection.received[:HEADER_BYTES]), limit=HEADER_BYTES)
        if path is None:
            return
        answer = response_bytes(path) if isinstance(path, Response) else self._answer(path)
        connection.response = memoryview(answer)
        connection.received.clear()
        self._send(connection)

    def _send(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.send(connection.response)
        except BlockingIOError:
            sent = 0
        connection.response = connection.response[sent:]
        if connection.response:
            self._selector.modify(connection.socket, _WRITE)
            return
        connection.answered = True
        # If the socket were closed now while it holds unread bytes of the client, the kernel would send a reset, and the client
        # could lose the response. So close only the sending half, and wait until the client closes the connection.
        connection.socket.shutdown(socket.SHUT_WR)
        self._selector.modify(connection.socket, _READ)

    def _answer(self, path: str) -> bytes:
        try:
            return self._scrape() if path == "/metrics" else response_bytes(self._checked(path))
        except Exception as error:  # noqa: BLE001  an error in one page must not stop the other pages
            text = f"a defect of the driver: {type(error).__name__}\n"
            return response_bytes(Response(500, text.encode()))

    def _scrape(self) -> bytes:
        begun = self._clock()
        if begun >= self._metrics_until:
            text = generate_latest(self._registry)
            self._metrics = response_bytes(Response(200, text, CONTENT_TYPE_PLAIN_0_0_4))
            now = self._clock()
            self._metrics_until = now + max(METRICS_SECONDS, now - begun)
        return self._metrics

    def _checked(self, path: str) -> Response:
        if path not in self._checks:
            return Response(404, b"/metrics, /livez and /readyz are served here\n")
        wrong = self._checks[path]()
        text = "\n".join(wrong) + "\n" if wrong else "ok\n"
        return Response(503 if wrong else 200, text.encode())

    def _drop_oldest(self) -> None:
        """Close a connection of the address that has most: the oldest whose response was sent already; if there is none, the oldest."""
        counts = Counter(other.address for other in self._connections.values())
        if not counts:
            return
        ((most, _),) = counts.most_common(1)
        of_most = [other for other in self._connections.values() if other.address == most]
        self._drop(next((other for other in of_most if other.answered), of_most[0]))

    def _drop(self, connection: _Connection) -> None:
        del self._connections[connection.socket]
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def _release(self) -> None:
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._selector.close()
        for held in (self._listening, self._wakes, self._waker):
            held.close()


def _listen(host: str, port: int) -> socket.socket:
    dual = host in ("", "::") and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
    try:
        found = socket.create_server(
            (host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=dual
        )
    except OSError as error:
        raise Fatal(
            f"cannot listen on {host or 'all addresses'} port {port}: {error}; choose another --http-address"
        ) from error
    found.setblocking(False)
    return found
