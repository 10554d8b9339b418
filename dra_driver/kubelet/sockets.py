# SPDX-License-Identifier: Apache-2.0
"""gRPC servers on unix sockets: stale files, modes, removal, and services without generated code."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from dra_driver.errors import Fatal

PATH_LIMIT_BYTES = 107  # a unix socket's path without the closing NUL
DIRECTORY_MODE = 0o750
SOCKET_MODE = 0o600
# A client that is gone without a word (a killed kubelet, a frozen one) is noticed after about 40 s.
_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
)

# Only the stubs of grpc are generic, not the class.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Unary = Callable[[Any, grpc.ServicerContext], Any]


def unary(method: Unary, request: type[Any]) -> Handler:
    """A handler for one request and one response; `request` is the message class."""
    return grpc.unary_unary_rpc_method_handler(
        method, request_deserializer=request.FromString, response_serializer=_serialize
    )


def stream(
    method: Callable[[Any, grpc.ServicerContext], Iterable[Any]], request: type[Any]
) -> Handler:
    """A handler for one request and a stream of responses."""
    return grpc.unary_stream_rpc_method_handler(
        method, request_deserializer=request.FromString, response_serializer=_serialize
    )


def service(name: str, methods: dict[str, Handler]) -> grpc.GenericRpcHandler:
    """All methods of the service with this full name."""
    return grpc.method_handlers_generic_handler(name, methods)


class SocketServer:
    """A gRPC server on the unix socket `path`, with `workers` threads. It listens from `start` on."""

    def __init__(
        self, path: Path, handlers: Sequence[grpc.GenericRpcHandler], *, workers: int, name: str
    ) -> None:
        if len(os.fsencode(path)) > PATH_LIMIT_BYTES:
            raise Fatal(
                f"socket path {path} is longer than {PATH_LIMIT_BYTES} bytes; "
                f"shorten --driver-name, --plugins-dir or --registry-dir"
            )
        self.path = path
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._server = grpc.server(self._pool, handlers=list(handlers), options=_OPTIONS)
        self._inode: int | None = None

    def start(self) -> None:
        """Listen. A socket that a killed predecessor left is replaced. Raises Fatal when the socket cannot be made."""
        try:
            self.path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            # gRPC removes the path that it bound when it ends, whoever's socket is there by then. So it binds a name of
            # its own (the kubelet does not look at dot files), and the socket moves to its place when it listens.
            bound = self.path.with_name(f".{os.getpid()}")
            bound.unlink(missing_ok=True)
            before = os.umask(0o777 - SOCKET_MODE)
            try:
                self._server.add_insecure_port(f"unix:{bound}")
            finally:
                os.umask(before)
            self._server.start()
            self._inode = bound.stat().st_ino
            bound.replace(self.path)
        except (OSError, RuntimeError) as error:
            raise Fatal(
                f"cannot listen on {self.path}: {error}; the directory must exist, be writable, and be the kubelet's"
            ) from error

    def is_there(self) -> bool:
        """Whether the path still leads to this server."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def unlink(self) -> None:
        """Remove the socket's file, if it still is this server's."""
        if self._inode is not None and self.is_there():
            self.path.unlink(missing_ok=True)

    def stop(self, grace_seconds: float) -> None:
        """Take no new calls, let running ones end for so long, then end them."""
        self.unlink()
        self._server.stop(grace_seconds).wait()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _serialize(message: Any) -> bytes:
    text: bytes = message.SerializeToString()
    return text
