# SPDX-License-Identifier: Apache-2.0
"""One port for /metrics, /livez and /readyz.

A check is a callable that answers what is wrong, or nothing. Both paths answer 200 "ok", or 503 and the reasons.
"""

import socket
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from dra_driver.errors import Fatal

Check = Callable[[], tuple[str, ...]]


class HttpEndpoint:
    """Serves until `close`. An empty host means all addresses, IPv6 and IPv4; port 0 lets the system choose."""

    def __init__(
        self, address: tuple[str, int], registry: CollectorRegistry, checks: Mapping[str, Check]
    ) -> None:
        handler = type("Handler", (_Handler,), {"registry": registry, "checks": dict(checks)})
        host, port = address
        try:
            self._server = _server_class(host)((host, port), handler)
        except OSError as error:
            raise Fatal(
                f"cannot listen on {host or 'all addresses'} port {port}: {error}; choose another --http-address"
            ) from error
        self.port: int = self._server.server_address[1]
        self._mutex = Lock()
        self._serving = False
        self._closed = False

    def serve(self) -> None:
        """Answer requests until `close`; at once back after it."""
        with self._mutex:
            if self._closed:
                return
            self._serving = True
        self._server.serve_forever(poll_interval=0.5)

    def close(self) -> None:
        """Stop answering, whether or not `serve` was ever called."""
        with self._mutex:
            self._closed = True
        if self._serving:  # else nobody would ever answer the request to shut down
            self._server.shutdown()
        self._server.server_close()


class _DualStack(ThreadingHTTPServer):
    address_family = socket.AF_INET6
    daemon_threads = True

    def server_bind(self) -> None:
        if self.server_address[0] in ("", "::"):
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class _IPv4(ThreadingHTTPServer):
    daemon_threads = True


def _server_class(host: str) -> type[ThreadingHTTPServer]:
    return _DualStack if ":" in host or (not host and socket.has_dualstack_ipv6()) else _IPv4


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10  # seconds for a client that says nothing
    registry: CollectorRegistry
    checks: Mapping[str, Check]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4)
        elif path in self.checks:
            wrong = type(self).checks[path]()
            text = "\n".join(wrong) + "\n" if wrong else "ok\n"
            self._answer(503 if wrong else 200, text.encode(), "text/plain; charset=utf-8")
        else:
            self._answer(
                404, b"/metrics, /livez and /readyz are served here\n", "text/plain; charset=utf-8"
            )

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it
        """Say nothing: a probe every few seconds is no news."""

    def _answer(self, code: int, body: bytes, content_type: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
