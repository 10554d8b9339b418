# SPDX-License-Identifier: Apache-2.0
"""The DRAResourceHealth service, v1 and v1alpha1: it streams the health of all devices to the kubelet.

Each open stream needs one gRPC thread for its whole life. A client may disappear without closing its stream, or stop reading.
So the number of streams is limited: at most `STREAM_LIMIT` for each version of the service, and a further stream ends the oldest.

To end a stream, its thread must be reached in one of two places. Normally it waits for the next change of health: then the feed
wakes it. If the client does not read, the thread waits inside gRPC until the client takes the data: then only cancelling the
call ends it. `_Open.end` and `HealthStream._end` do both.

The gRPC server has more threads than all streams together need. So a prepare call always finds a free thread.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from threading import Event, Lock
from typing import Any, Protocol

import grpc

from dra_driver.kubelet.pb import dra_health_v1_pb2, dra_health_v1alpha1_pb2
from dra_driver.kubelet.sockets import service, stream
from dra_driver.model.health import DeviceHealth
from dra_driver.services.watch_health import TIMEOUT_SECONDS

STREAM_LIMIT = 8
RESEND_SECONDS = 10.0
SERVICES = {
    "v1.DRAResourceHealth": dra_health_v1_pb2,
    "v1alpha1.DRAResourceHealth": dra_health_v1alpha1_pb2,
}


class HealthSource(Protocol):
    """The source of health data; see `services/watch_health.py`."""

    def snapshot(self) -> tuple[int, tuple[DeviceHealth, ...]]:
        """A version number, which grows with each change, and the health of all devices."""

    def wait(self, version: int, timeout: float) -> bool:
        """Wait at most `timeout` seconds until the version differs from `version`. Returns whether it does."""

    def wake(self) -> None:
        """Let every `wait` return."""


class _Open:
    """One open stream: whether it has ended, and its gRPC context."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context
        self._ended = Event()

    def has_ended(self) -> bool:
        return self._ended.is_set()

    def end(self) -> None:
        """End the stream. The caller must wake the feed afterwards, in case the stream's thread waits for a change."""
        self._ended.set()
        self._context.cancel()


class HealthStream:
    """One version of the service. `name` is the name that the registration announces, a key of `SERVICES`."""

    def __init__(
        self, name: str, feed: HealthSource, *, resend_seconds: float = RESEND_SECONDS
    ) -> None:
        self._name = name
        self._pb: Any = SERVICES[name]
        self._feed = feed
        self._resend_seconds = resend_seconds
        self._mutex = Lock()
        self._open: deque[_Open] = deque()
        self._closed = False

    def watch_resources(self, _request: object, context: grpc.ServicerContext) -> Iterator[Any]:
        """Answer a NodeWatchResources call: send all devices now, after each change, and every `resend_seconds`."""
        opened = self._enter(context)

        def client_left() -> None:
            self._end([opened])

        # gRPC calls it when the client goes away or the server stops. If that has happened already, `add_callback` returns False.
        if not context.add_callback(client_left):
            client_left()
        while not opened.has_ended():
            # `snapshot` must come before `wait`. A change between the two calls raises the version, and `wait` returns at once.
            version, devices = self._feed.snapshot()
            if opened.has_ended():
                break
            yield self._response(devices)
            self._feed.wait(version, self._resend_seconds)

    def end(self) -> None:
        """End all streams. A stream that opens later is ended at once."""
        with self._mutex:
            self._closed = True
            streams = list(self._open)
        self._end(streams)

    @property
    def streams(self) -> int:
        """The number of open streams."""
        with self._mutex:
            return len(self._open)

    def handler(self) -> grpc.GenericRpcHandler:
        """The gRPC handler of this version; given to `SocketServer`."""
        method = stream(self.watch_resources, self._pb.NodeWatchResourcesRequest)
        return service(self._name, {"NodeWatchResources": method})

    def _enter(self, context: grpc.ServicerContext) -> _Open:
        entered = _Open(context)
        with self._mutex:
            self._open.append(entered)
            surplus = [entered] if self._closed else list(self._open)[:-STREAM_LIMIT]
        self._end(surplus)
        return entered

    def _end(self, streams: Sequence[_Open]) -> None:
        with self._mutex:
            for opened in streams:
                if opened in self._open:
                    self._open.remove(opened)
        # Outside the mutex: cancelling a call may run `client_left` at once, which calls this method again.
        for opened in streams:
            opened.end()
        if streams:
            self._feed.wake()

    def _response(self, devices: tuple[DeviceHealth, ...]) -> Any:
        return self._pb.NodeWatchResourcesResponse(
            devices=[
                self._pb.DeviceHealth(
                    device=self._pb.DeviceIdentifier(
                        pool_name=entry.pool, device_name=entry.device
                    ),
                    health=entry.health.status.value,
                    last_updated_time=entry.checked_at,
                    health_check_timeout_seconds=TIMEOUT_SECONDS,
                    message=entry.health.message,
                )
                for entry in devices
            ]
        )
