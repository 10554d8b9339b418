# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of the fake API server: HTTP/1.1 with keep-alive, one request at a time per connection.

`Handler` finds the verb of a request, applies a fault if there is one, checks the bearer token, and calls `verbs` or `watch`. Answers
are JSON. An answer of 128 KiB or more is sent in chunks while it is made, so that a list may have any size; it is compressed if the
client accepts gzip, as the real server does. A watch is a chunked stream of lines. Errors of the fake itself are collected in
`Server.defects`; FakeApi raises them at its end.
"""

import socket
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from threading import Event, Lock
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec import Struct, field

from dra_driver.model.api.resource_claim import GROUP
from dra_driver.model.cluster import GATES_PATH
from dra_driver.testing.fake_api.faults import (
    Answer,
    CutWatch,
    Faults,
    Hold,
    Misbehaviour,
    Request,
    Reset,
    WatchLine,
)
from dra_driver.testing.fake_api.pages import fixed_page, metrics_page
from dra_driver.testing.fake_api.raw import dumps, pieces
from dra_driver.testing.fake_api.routes import parse_query, parse_route, resource_of, verb_of
from dra_driver.testing.fake_api.store import Refused, Store
from dra_driver.testing.fake_api.verbs import Ask, do
from dra_driver.testing.fake_api.watch import Watch

GZIP_FROM_BYTES = 128 * 1024
BOOKMARK_SECONDS = 60.0
JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain; charset=utf-8"}


class Cluster(Struct):
    """The values that all connections share."""

    versions: tuple[str, ...]
    store: Store = field(default_factory=Store)
    faults: Faults = field(default_factory=Faults)
    requests: list[Request] = field(default_factory=list)
    tokens: frozenset[str] | None = None
    gates: Mapping[str, bool] | None = None
    stopping: Event = field(default_factory=Event)
    bookmark_seconds: float = BOOKMARK_SECONDS


class Server(ThreadingHTTPServer):
    """The listening server. It keeps a list of its open connections, so that it can end them when it stops."""

    daemon_threads = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], cluster: Cluster) -> None:
        self.cluster = cluster
        self.defects: list[BaseException] = []
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._open: set[socket.socket] = set()
        self._open_lock = Lock()
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, *_whose: Any) -> None:
        """Collect an error as a defect of the fake, unless the client closed the connection."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            self.defects.append(error)

    def end_connections(self) -> None:
        """Break every open connection; their threads end."""
        with self._open_lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_version = "fake-kube-apiserver"

    @property
    def cluster(self) -> Cluster:
        return cast("Server", self.server).cluster

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Do nothing: the request log is `Cluster.requests`."""

    def __getattr__(self, name: str) -> Any:
        """Return one method for do_GET, do_POST and so on, which the base class looks for."""
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def answer(self) -> None:
        """Read one request, carry it out, send the answer."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        verb, resource = verb_of(self.command, self.path), resource_of(self.path)
        agent = self.headers.get("User-Agent", "")
        self.cluster.requests.append(Request(verb, resource, self.path, agent, self.client_address))
        fault = self.cluster.faults.take(verb, resource)
        if not self._misbehave(fault):
            self._behave(verb, body, fault)

    def _misbehave(self, fault: Misbehaviour | None) -> bool:
        """Apply a fault. Returns whether the fault answered the request."""
        match fault:
            case Answer(status, headers, body):
                self._send(status, body, {**JSON, **headers})
                return True
            case Reset():
                self._reset()
                return True
            case Hold(until):
                while not until.wait(0.02) and not self.cluster.stopping.is_set():
                    continue
            case CutWatch() | WatchLine() | None:
                pass  # `watch` applies these faults
        return False

    def _behave(self, verb: str, body: bytes, fault: Misbehaviour | None) -> None:
        try:
            self._check_token()
            path, versions = urlsplit(self.path).path, self.cluster.versions
            page = fixed_page(path, versions)
            if page is not None:
                self._send_json(200, page)
            elif path == GATES_PATH:
                self._send(200, metrics_page(self.cluster.gates), TEXT)
            elif not versions and path.startswith(f"/apis/{GROUP}"):
                self._send(404, b"404 page not found\n", TEXT)
            elif verb == "watch":
                self._watch(fault)
            else:
                route = parse_route(self.path, versions)
                content_type = self.headers.get("Content-Type", "")
                accept = self.headers.get("Accept", "")
                ask = Ask(self.cluster.store, route, self.path, body, content_type, accept)
                self._send_json(*do(verb, ask))
        except Refused as refused:
            self._send_json(refused.code, refused.status)

    def _check_token(self) -> None:
        tokens = self.cluster.tokens
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if tokens is not None and given not in tokens:
            raise Refused(401, "Unauthorized", "Unauthorized")

    def _reset(self) -> None:
        """Close the connection with RST, as a failing load balancer does."""
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True

    def _send_json(self, status: int, obj: Mapping[str, Any]) -> None:
        rest = pieces(dict(obj))
        body = bytearray()
        for piece in rest:
            body += piece
            if len(body) >= GZIP_FROM_BYTES:
                self._send_chunks(status, [bytes(body)], rest)
                return
        self._send(status, bytes(body), JSON)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_chunks(self, status: int, first: list[bytes], rest: Iterable[bytes]) -> None:
        compressed = "gzip" in self.headers.get("Accept-Encoding", "")
        self.send_response(status)
        for key, value in (*JSON.items(), ("Transfer-Encoding", "chunked")):
            self.send_header(key, value)
        if compressed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        body = chain(first, rest)
        for piece in _compressed(body) if compressed else body:
            self._chunk(piece)
        self.wfile.write(b"0\r\n\r\n")

    def _watch(self, fault: Misbehaviour | None) -> None:
        cluster = self.cluster
        route, query = parse_route(self.path, cluster.versions), parse_query(self.path)
        watch = Watch(cluster.store, route, query, cluster.stopping, cluster.bookmark_seconds)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if isinstance(fault, CutWatch):
            self._chunk(b'{"type":"ADDED","object":{"kind":"Resour')
            if not fault.clean:
                self._reset()
                return
        else:
            if isinstance(fault, WatchLine):
                self._send_line(fault.line, fault.piece)
            self._send_events(watch)
        self.wfile.write(b"0\r\n\r\n")

    def _send_events(self, watch: Watch) -> None:
        try:
            for event in watch.events():
                self._send_line(dumps(event) + b"\n")
        except Refused as refused:
            event = {"type": "ERROR", "object": refused.status}
            self._send_line(dumps(event) + b"\n")

    def _send_line(self, line: bytes, piece: int = 0) -> None:
        size = piece or len(line)
        for start in range(0, len(line), size):
            self._chunk(line[start : start + size])

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def _compressed(body: Iterable[bytes]) -> Iterator[bytes]:
    """Compress the body with gzip, piece by piece."""
    packer = zlib.compressobj(1, wbits=16 + zlib.MAX_WBITS)
    for piece in body:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()
