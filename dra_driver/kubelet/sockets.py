# SPDX-License-Identifier: Apache-2.0
"""gRPC servers on unix sockets: they replace stale files, set file modes, and notice a removed socket.

The services need no generated gRPC code: `unary`, `stream` and `service` make the handlers from plain methods.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2s
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import grpc
from msgspec import Struct

from dra_driver.errors import Fatal
from dra_driver.model.quotes import quoted

PATH_LIMIT_BYTES = 107  # a unix socket's path without the closing NUL
DIRECTORY_MODE = 0o750
SOCKET_MODE = 0o600
GRACE_SECONDS = 45.0  # how long the kubelet waits for an answer
STOP_SECONDS = 2.0  # enough for a gRPC server to end after it cancelled its calls
# gRPC notices at once that a client process was killed. A frozen client is noticed by these pings (measured: after 80 s).
_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
)

# The type is a string, because the class of grpc is generic only in its type stubs, not at run time.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Unary = Callable[[Any, grpc.ServicerContext], Any]


def unary(method: Unary, request: type[Any]) -> Handler:
    """A gRPC handler for a method with one request and one response. `request` is the class of the request message."""
    return grpc.unary_unary_rpc_method_handler(
        method, request_deserializer=request.FromString, response_serializer=_serialize
    )


def stream(
    method: Callable[[Any, grpc.ServicerContext], Iterable[Any]], request: type[Any]
) -> Handler:
    """A gRPC handler for a method with one request and a stream of responses."""
    return grpc.unary_stream_rpc_method_handler(
        method, request_deserializer=request.FromString, response_serializer=_serialize
    )


def service(name: str, methods: dict[str, Handler]) -> grpc.GenericRpcHandler:
    """The gRPC handler of a whole service. `name` is its full name with the package; `methods` maps method names."""
    return grpc.method_handlers_generic_handler(name, methods)


def text_of(error: Exception, *, quoting: bool = False) -> str:
    """The error of a failed gRPC call in one line: status code and details, which are quoted for a message that may leave the node."""
    if isinstance(error, grpc.Call):
        details = error.details() or ""
        return f"{error.code().name}: {quoted(details) if quoting else details}"
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
        # When a gRPC server ends, it deletes the path that it bound, even if another process has made its own socket there in
        # the meantime. So gRPC binds a hidden name of its own, which the kubelet ignores. When the socket listens, it is renamed
        # to its real path, and this class deletes that path only if it is still this server's socket (see `stop`).
        digest = blake2s(os.fsencode(path.name), digest_size=2).hexdigest()
        self._bound = path.with_name(f".{digest}")
        self._handlers = tuple(handlers)
        self._workers = workers
        self._name = name
        self._mutex = Lock()
        self._running: _Running | None = None

    def start(self) -> None:
        """Listen. A socket file that a killed process left is replaced. Raises Fatal if the socket cannot be made."""
        with self._mutex:
            self._running = self._listen()

    def ensure(self) -> bool:
        """Listen again if somebody removed the socket file. Returns whether it did.

        Calls on the old socket may end as with `stop`. If another process has made a socket at the same path, it stays: two
        processes that take the path from each other would both serve nobody. Does nothing before `start` and after `stop`.
        """
        with self._mutex:
            old = self._running
            if old is None or self.path.exists():
                return False
            self._running = self._listen()
        old.server.stop(GRACE_SECONDS)  # does not wait; the threads of the old server end with it
        return True

    def is_removed(self) -> bool:
        """Whether the socket file is missing although the server runs: then `ensure` makes it again."""
        with self._mutex:
            return self._running is not None and not self.path.exists()

    def is_there(self) -> bool:
        """Whether the socket file at the path is the one of this server, and not of another process."""
        with self._mutex:
            return self._running is not None and self._running.is_at(self.path)

    def stop(self, grace_seconds: float) -> None:
        """Accept no new calls. Running calls have `grace_seconds` to end; then they are cancelled."""
        with self._mutex:
            running, self._running = self._running, None
        if running is not None:
            if running.is_at(self.path):
                self.path.unlink(missing_ok=True)
            # The wait has a limit, because it would never return if the server's own thread has died.
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
            # The mode is set by chmod and not by umask: umask is for the whole process, and another thread may make a file now.
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


class _Running(Struct):
    """A running gRPC server. `inode` identifies its socket file, whose path another process may have taken over."""

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
