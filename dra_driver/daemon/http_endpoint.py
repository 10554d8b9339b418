# SPDX-License-Identifier: Apache-2.0
"""One port for /metrics, /livez and /readyz.

A check is a callable that answers at once what is wrong, or nothing. Both paths answer 200 "ok", or 503 and the reasons.

Every pod of the cluster may be able to connect, and the kubelet's probe must get through whatever they do. So one thread
serves all connections, none of which can make it wait, and each has a limit: of bytes before its request is whole, and of
time from its beginning to its end, however it spends it. There are at most `CONNECTION_LIMIT`; a further one closes the
oldest that is unfinished. A connection serves one request: who came and asked is gone again before others pile up.
"""

import selectors
import socket
import time
from collections.abc import Callable, Mapping
from threading import Event, Lock

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from dra_driver.daemon.http_request import Answer, answer_bytes, asked_path
from dra_driver.errors import Fatal

Check = Callable[[], tuple[str, ...]]

CONNECTION_LIMIT = 64
HEADER_BYTES = 8192
REQUEST_SECONDS = 10.0
TICK_SECONDS = 0.5  # how late a connection is closed whose time is over
_BACKLOG = 128
_ACCEPTED_AT_ONCE = 16  # then those that have said something are heard first
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class _Connection:
    """What one client has said so far, and what it is still to be told."""

    def __init__(self, peer: socket.socket, until: float) -> None:
        self.socket = peer
        self.until = until
        self.said = bytearray()
        self.answer = memoryview(b"")
        self.told = False  # the answer is sent, and only the client's end is waited for


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
        self._deaf_until = 0.0
        self._wakes, self._waker = socket.socketpair()
        self._selector.register(self._wakes, _READ)

    def serve(self) -> None:
        """Answer requests until `close`; at once back after it."""
        with self._mutex:
            if self._closed.is_set():
                return
            self._serving = True
        try:
            while not self._closed.is_set():
                self._turn()
        finally:
            with self._mutex:
                self._serving = False
                if self._closed.is_set():
                    self._release()

    def close(self) -> None:
        """Stop answering, whether or not `serve` was ever called."""
        with self._mutex:
            if self._closed.is_set():
                return
            self._closed.set()
            if not self._serving:
                self._release()
            else:
                self._waker.send(b"!")

    def _turn(self) -> None:
        for key, _ in self._selector.select(TICK_SECONDS):
            found = key.fileobj
            if found is self._listening:
                self._accept()
            elif isinstance(found, socket.socket) and found in self._connections:
                self._go_on(self._connections[found])
        now = self._clock()
        if 0.0 < self._deaf_until <= now:
            self._deaf_until = 0.0
            self._selector.register(self._listening, _READ)
        for connection in [other for other in self._connections.values() if other.until <= now]:
            self._drop(connection)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                peer, _address = self._listening.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except (
                OSError
            ):  # no descriptors or no memory left: asking again at once would get the same answer
                self._drop_oldest()
                self._selector.unregister(self._listening)
                self._deaf_until = self._clock() + TICK_SECONDS
                return
            peer.setblocking(False)
            connection = _Connection(peer, self._clock() + REQUEST_SECONDS)
            if len(self._connections) >= CONNECTION_LIMIT:
                self._drop_oldest()
            self._connections[peer] = connection
            self._selector.register(peer, _READ)
            self._go_on(connection)  # who asks at once is answered before the next one is let in

    def _go_on(self, connection: _Connection) -> None:
        try:
            if connection.answer:
                self._send(connection)
            else:
                self._hear(connection)
        except BlockingIOError:
            pass  # nothing to read yet
        except OSError:
            self._drop(connection)

    def _hear(self, connection: _Connection) -> None:
        said = connection.socket.recv(HEADER_BYTES)
        if not said:
            self._drop(connection)
            return
        if connection.told:
            return  # what follows the request is not looked at
        connection.said += said
        path = asked_path(bytes(connection.said[:HEADER_BYTES]), limit=HEADER_BYTES)
        if path is None:
            return
        answer = path if isinstance(path, Answer) else self._answered(path)
        connection.answer = memoryview(answer_bytes(answer))
        connection.said.clear()
        self._send(connection)

    def _send(self, connection: _Connection) -> None:
        try:
            sent = connection.socket.send(connection.answer)
        except BlockingIOError:
            sent = 0
        connection.answer = connection.answer[sent:]
        if connection.answer:
            self._selector.modify(connection.socket, _WRITE)
            return
        connection.told = True
        # Closed at once, with bytes of the client unread, the system would take the answer back.
        connection.socket.shutdown(socket.SHUT_WR)
        self._selector.modify(connection.socket, _READ)

    def _answered(self, path: str) -> Answer:
        try:
            return self._answer(path)
        except Exception as error:  # noqa: BLE001  a defect of one page must not take the others away
            return Answer(500, f"a defect of the driver: {type(error).__name__}\n".encode())

    def _answer(self, path: str) -> Answer:
        if path == "/metrics":
            return Answer(200, generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4)
        if path not in self._checks:
            return Answer(404, b"/metrics, /livez and /readyz are served here\n")
        wrong = self._checks[path]()
        text = "\n".join(wrong) + "\n" if wrong else "ok\n"
        return Answer(503 if wrong else 200, text.encode())

    def _drop_oldest(self) -> None:
        """One that has its answer and only holds the line, else the oldest."""
        told = (other for other in self._connections.values() if other.told)
        oldest = next(told, None) or next(iter(self._connections.values()), None)
        if oldest is not None:
            self._drop(oldest)

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
