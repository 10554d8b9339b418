# SPDX-License-Identifier: Apache-2.0
"""gRPC servers on unix sockets: stale files, modes, removal, and services without generated code."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2s
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import grpc

from dra_driver.errors import Fatal

PATH_LIMIT_BYTES = 107  # a unix socket's path without the closing NUL
DIRECTORY_MODE = 0o750
SOCKET_MODE = 0o600
GRACE_SECONDS = 45.0  # the kubelet waits so long for an answer
STOP_SECONDS = 2.0  # a server that was told to cancel its calls is gone by then
# A killed client is noticed at once, a frozen one by these pings (measured: after 80 s).
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


def text_of(error: Exception) -> str:
    """What became of a call, in one line."""
    if isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return str(error)


class SocketServer:
    """A gRPC server on the unix socket `path`, with `workers` threads. It listens from `start` to `stop`."""

    def __init__(
        self, path: Path, handlers: Sequence[grpc.GenericRpcHandler], *, workers: int, name: str
    ) -> None:
        if len(os.fsencode(path)) > PATH_LIMIT_BYTES:
            raise Fatal(
                f"socket path {path} is longer than {PATH_LIMIT_BYTES} bytes; "
                f"shorten --driver-name, --plugins-dir or --registry-dir"
            )
        self.path = path
        # gRPC removes the path that it bound when it ends, whoever's socket is there by then. So it binds a name of its
        # own (the kubelet does not look at dot files), and the socket moves to its place when it listens.
        digest = blake2s(os.fsencode(path.name), digest_size=2).hexdigest()
        self._bound = path.with_name(f".{digest}")
        self._handlers = tuple(handlers)
        self._workers = workers
        self._name = name
        self._mutex = Lock()
        self._running: _Running | None = None

    def start(self) -> None:
        """Listen. A socket that a killed predecessor left is replaced. Raises Fatal when the socket cannot be made."""
        with self._mutex:
            self._running = self._listen()

    def ensure(self) -> bool:
        """Listen anew if somebody removed the socket; answers whether that was needed.

        Calls that came in by the old socket may end as `stop` would let them. A socket that another process put into its
        place stays: two that take it from each other would serve nobody. Nothing happens before `start` and after `stop`.
        """
        with self._mutex:
            old = self._running
            if old is None or self.path.exists():
                return False
            self._running = self._listen()
        old.server.stop(GRACE_SECONDS)  # its threads end with it
        return True

    def is_removed(self) -> bool:
        """Whether `ensure` has something to do."""
        with self._mutex:
            return self._running is not None and not self.path.exists()

    def is_there(self) -> bool:
        """Whether the path leads to this server."""
        with self._mutex:
            return self._running is not None and self._running.is_at(self.path)

    def stop(self, grace_seconds: float) -> None:
        """Take no new calls, let running ones end for so long, then end them."""
        with self._mutex:
            running, self._running = self._running, None
        if running is not None:
            if running.is_at(self.path):
                self.path.unlink(missing_ok=True)
            # Without end where the server's own thread has died.
            running.server.stop(grace_seconds).wait(grace_seconds + STOP_SECONDS)
            running.pool.shutdown(wait=False)

    def _listen(self) -> "_Running":
        bound = self._bound
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix=self._name)
        server = grpc.server(pool, handlers=list(self._handlers), options=_OPTIONS)
        running = _Running(server, pool)
        try:
            self.path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            server.add_insecure_port(f"unix:{bound}")
            # Not by umask, which is the whole process's: another thread may be making a file now.
            bound.chmod(SOCKET_MODE)
            server.start()
            running.inode = bound.stat().st_ino
            bound.replace(self.path)
        except (OSError, RuntimeError) as error:
            server.stop(0)
            raise Fatal(
                f"cannot listen on {self.path}: {error}; the directory must exist, be writable, and be the kubelet's"
            ) from error
        return running


@dataclass(slots=True)
class _Running:
    """A gRPC server and the socket that it has."""

    server: grpc.Server
    pool: ThreadPoolExecutor
    inode: int = 0

    def is_at(self, path: Path) -> bool:
        try:
            return path.stat().st_ino == self.inode
        except OSError:
            return False


def _serialize(message: Any) -> bytes:
    text: bytes = message.SerializeToString()
    return text
