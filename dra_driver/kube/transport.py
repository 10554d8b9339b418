# SPDX-License-Identifier: Apache-2.0
"""How is a request sent to the API server, when is it repeated, and when does the driver give up?

A request has one deadline for everything: connecting, waiting, reading the body, and repetitions. A GET is repeated after a
connection error and after the statuses 429, 502, 503 and 504; it waits as long as `Retry-After` says, if the server sends it.
A write is sent only once, because after an error the driver does not know whether the API server carried it out. After a 401 any
request is repeated once with credentials that are read again. `dra_driver.kube.failures` turns the last failure into an error of
the driver.

Connections are pooled. TCP keepalive notices within about a minute that the other side is gone, so that a silent watch ends. If
the TLS context changes (a rotated CA), there is a new pool.
"""

import random
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from threading import Event, Lock
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import msgspec
import urllib3
from msgspec import Struct
from msgspec.structs import replace
from urllib3.connection import HTTPConnection

from dra_driver import PROJECT, __version__
from dra_driver.errors import DriverError
from dra_driver.kube.connection import Connection, without_userinfo
from dra_driver.kube.failures import (
    RETRIED_STATUSES,
    ApiCall,
    garbage,
    read_answer,
    refused,
    too_large,
    too_slow,
    unreachable,
)
from dra_driver.kube.strict import Undecodable, decode
from dra_driver.model.events import ApiAnswered, Observer, ignore

DEADLINE_SECONDS = 10.0
CONNECT_SECONDS = 5.0
POOL_SIZE = 8
PIECE_BYTES = 64 * 1024
LARGEST_BODY_BYTES = 16 * 1024 * 1024
ANY_JSON = "application/json"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Requests a list of objects with their metadata only. The version must be "v1": a server refuses "1" (406)."""
APPLY = "application/apply-patch+yaml"
"""Content of a server-side apply. JSON is YAML, so the body is JSON like any other."""
MERGE = "application/merge-patch+json"
AS_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
"""Requests a list as kubectl shows it: rows that begin with the name, without labels, annotations and owners."""

_FIRST_DELAY_SECONDS = 0.1
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_jitter = random.SystemRandom().uniform


class Exchange(Struct, frozen=True):
    """One request: its name in messages (`call`), what is sent, and how large the answer may be."""

    call: ApiCall
    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: Mapping[str, Any] | None = None
    accept: str = ANY_JSON
    content_type: str = ANY_JSON
    largest_bytes: int = LARGEST_BODY_BYTES

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


class Transport:
    """Requests to one API server; safe to use from several threads."""

    def __init__(
        self,
        connection: Connection,
        *,
        sleep: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        deadline_seconds: float = DEADLINE_SECONDS,
        observe: Observer = ignore,
    ) -> None:
        self._connection = connection
        self._closed = Event()
        self._sleep = sleep or self._closed.wait
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._observe = observe
        self._lock = Lock()
        self._pool: urllib3.PoolManager | None = None
        self._door: tuple[urllib3.PoolManager | urllib3.HTTPConnectionPool, str]
        self._pool_context: ssl.SSLContext | None = None

    def request(self, exchange: Exchange) -> dict[str, Any]:
        """Send the request; returns the JSON object of the answer. Raises DriverError."""
        body = self.fetch(exchange)
        return decoded(self.named(exchange).call, body)

    def fetch(self, exchange: Exchange) -> bytes:
        """Send the request; returns the body of the answer, not decoded. Raises DriverError."""
        exchange = self.named(exchange)
        deadline = self._clock() + self._deadline_seconds
        delay, renewed = _FIRST_DELAY_SECONDS, False
        while True:
            try:
                code, headers, body = self._attempt(exchange, deadline)
            except urllib3.exceptions.HTTPError as error:
                failure: DriverError = self._unreachable(exchange.call, error)
                failure.__cause__ = error
                pause, repeatable = delay, exchange.method == "GET"
            else:
                if HTTPStatus.OK <= code < HTTPStatus.MULTIPLE_CHOICES:
                    return body
                answer = read_answer(code, headers, body)
                failure = refused(exchange.call, answer)
                pause = delay if answer.retry_after_seconds is None else answer.retry_after_seconds
                repeatable = exchange.method == "GET" and code in RETRIED_STATUSES
                if code == HTTPStatus.UNAUTHORIZED and not renewed:
                    self._connection.credentials.forget()
                    pause, repeatable, renewed = 0.0, True, True
            if not repeatable or self._closed.is_set() or self._clock() + pause >= deadline:
                raise failure
            if pause:
                self._sleep(pause * _jitter(1.0, 1.2))
            delay *= 2

    def open_watch(
        self, exchange: Exchange, *, read_timeout_seconds: float
    ) -> urllib3.BaseHTTPResponse:
        """Start a watch; returns when the headers have arrived. The caller reads and closes the response. Raises DriverError."""
        exchange = self.named(exchange)
        silence = min(self._deadline_seconds, read_timeout_seconds)
        timeout = urllib3.Timeout(connect=min(CONNECT_SECONDS, silence), read=silence)
        try:
            response = self._send(exchange, timeout)
            if response.status == HTTPStatus.UNAUTHORIZED:
                response.close()
                self._connection.credentials.forget()
                response = self._send(exchange, timeout)
            if response.status == HTTPStatus.OK:
                _allow_silence(response, read_timeout_seconds)
                return response
            body = self._read(exchange, response, self._clock() + self._deadline_seconds)
        except urllib3.exceptions.HTTPError as error:
            raise self._unreachable(exchange.call, error) from error
        raise refused(exchange.call, read_answer(response.status, response.headers, body))

    def broken(self, call: ApiCall, error: Exception) -> DriverError:
        """The error for a watch whose connection broke."""
        return self._unreachable(replace(call, server=self._connection.shown_server), error)

    def close(self) -> None:
        """Close idle connections. A request that fails from now on is not repeated."""
        self._closed.set()
        with self._lock:
            if self._pool is not None:
                self._pool.clear()
                # Whoever sends a request in this moment ends it; then nobody has the connections any more. A later one gets a new pool.
                self._pool = None
                del self._door

    def _attempt(self, exchange: Exchange, deadline: float) -> tuple[int, Mapping[str, str], bytes]:
        left = max(0.001, deadline - self._clock())
        response = self._send(
            exchange, urllib3.Timeout(connect=min(CONNECT_SECONDS, left), read=left)
        )
        return response.status, response.headers, self._read(exchange, response, deadline)

    def _send(self, exchange: Exchange, timeout: urllib3.Timeout) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": exchange.accept, "User-Agent": f"{PROJECT}/{__version__}"}
        headers |= self._connection.credentials.headers()
        body = None
        if exchange.body is not None:
            headers["Content-Type"] = exchange.content_type
            body = msgspec.json.encode(exchange.body)
        if exchange.query is None or "watch" not in exchange.query:
            headers["Accept-Encoding"] = "gzip"
        code = "unreachable"
        try:
            door, base = self._current_door()
            response = door.request(
                exchange.method,
                base + exchange.target,
                headers=headers,
                body=body,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            code = str(response.status)
            return response
        finally:
            self._observe(ApiAnswered(exchange.call.verb, exchange.call.resource, code))

    def _read(
        self, exchange: Exchange, response: urllib3.BaseHTTPResponse, deadline: float
    ) -> bytes:
        """Read the whole body and give the connection back to the pool. If the body is too late or too large, close the connection."""
        pieces, size = [], 0
        while piece := response.read1(PIECE_BYTES, decode_content=True):
            pieces.append(piece)
            size += len(piece)
            late = self._clock() >= deadline
            if late or size > exchange.largest_bytes:
                response.close()
                if late:
                    raise too_slow(exchange.call, self._deadline_seconds)
                raise too_large(exchange.call, exchange.largest_bytes)
        response.release_conn()
        return b"".join(pieces)

    def _current_door(self) -> tuple[urllib3.PoolManager | urllib3.HTTPConnectionPool, str]:
        """Return what sends a request, and what its URL begins with."""
        context = (
            self._connection.tls.current()
            if urlsplit(self._connection.server).scheme == "https"
            else None
        )
        with self._lock:
            if self._pool is None or context is not self._pool_context:
                self._pool, self._pool_context = _make_pool(self._connection, context), context
                server = self._connection.server.rstrip("/")
                self._door = (self._pool, server)
                if not self._connection.proxy:
                    # One server: the manager would look for its pool again for each request.
                    self._door = (self._pool.connection_from_url(server), urlsplit(server).path)
            return self._door

    def named(self, exchange: Exchange) -> Exchange:
        """The same request, with the server's address for messages."""
        return replace(exchange, call=replace(exchange.call, server=self._connection.shown_server))

    def _unreachable(self, call: ApiCall, error: Exception) -> DriverError:
        proxy = without_userinfo(self._connection.proxy)
        return unreachable(
            call, error, proxy=proxy, source=self._connection.source or "the settings"
        )


def decoded(call: ApiCall, body: bytes) -> dict[str, Any]:
    """The JSON object in a body. Raises Temporary if it is none: a proxy may have answered."""
    try:
        found = decode(body)
    except Undecodable as error:
        raise garbage(call, body) from error
    if not isinstance(found, dict):
        raise garbage(call, body)
    return found


def _allow_silence(response: urllib3.BaseHTTPResponse, seconds: float) -> None:
    """Raise the read timeout of a watch: the headers had to come before the deadline, but events may be rare."""
    connection = response.connection
    if isinstance(connection, HTTPConnection) and connection.sock is not None:
        connection.sock.settimeout(seconds)


def _make_pool(connection: Connection, context: ssl.SSLContext | None) -> urllib3.PoolManager:
    options: dict[str, Any] = {
        "maxsize": POOL_SIZE,
        "socket_options": [*HTTPConnection.default_socket_options, *_KEEPALIVE],
    }
    if context is not None:
        options["ssl_context"] = context
        if connection.tls_server_name:
            options["server_hostname"] = connection.tls_server_name
        if not context.check_hostname:
            # The user chose insecure-skip-tls-verify in the kubeconfig. A warning for each request would not help.
            options |= {"cert_reqs": "CERT_NONE", "assert_hostname": False}
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    if not connection.proxy:
        return urllib3.PoolManager(**options)
    user = urlsplit(connection.proxy)
    headers = None
    if user.username:
        headers = urllib3.make_headers(
            proxy_basic_auth=f"{unquote(user.username)}:{unquote(user.password or '')}"
        )
    return urllib3.ProxyManager(
        without_userinfo(connection.proxy), proxy_headers=headers, **options
    )
