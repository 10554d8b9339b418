# SPDX-License-Identifier: Apache-2.0
"""DRAResourceHealth v1 and v1alpha1: a stream of what is known about each device.

A synchronous stream holds a worker thread for its life, and a client that went away without a word, or stopped reading,
leaves its stream behind. So streams are bounded: at most `STREAM_LIMIT` for each version of the service; a further one
ends the oldest. A stream's worker is either waiting for the feed or, when the client does not read and its window is
full, stuck in sending. The first is woken; only cancelling the call reaches the second. The server has more workers
than all streams together, which is why prepare always finds one.
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


class HealthFeed(Protocol):
    """Where the health comes from."""

    def snapshot(self) -> tuple[int, tuple[DeviceHealth, ...]]:
        """A version that grows with each change, and all devices."""

    def wait(self, version: int, timeout: float) -> bool:
        """Wait until the version is another one, at most so many seconds; whether it is."""

    def wake(self) -> None:
        """Let every `wait` return."""


class _Open:
    """One open stream."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context
        self._ended = Event()

    def has_ended(self) -> bool:
        return self._ended.is_set()

    def end(self) -> None:
        """Wherever its worker stands now; the feed must be woken after it."""
        self._ended.set()
        self._context.cancel()


class HealthStream:
    """One version of the service: `name` as announced, `pb` its messages."""

    def __init__(
        self, name: str, feed: HealthFeed, *, resend_seconds: float = RESEND_SECONDS
    ) -> None:
        self._name = name
        self._pb: Any = SERVICES[name]
        self._feed = feed
        self._resend_seconds = resend_seconds
        self._mutex = Lock()
        self._open: deque[_Open] = deque()
        self._closed = False

    def watch_resources(self, _request: object, context: grpc.ServicerContext) -> Iterator[Any]:
        """NodeWatchResources: everything at once, then again at each change and every `resend_seconds`."""
        opened = self._enter(context)

        def left() -> None:
            self._end([opened])

        # Called when the client goes away or the server stops; refused when that has happened already.
        if not context.add_callback(left):
            left()
        while not opened.has_ended():
            # In this order a wake between the two is not lost: it changes the version that `wait` compares.
            version, devices = self._feed.snapshot()
            if opened.has_ended():
                break
            yield self._response(devices)
            self._feed.wait(version, self._resend_seconds)

    def end(self) -> None:
        """End all streams now, and each later one at once."""
        with self._mutex:
            self._closed = True
            streams = list(self._open)
        self._end(streams)

    @property
    def streams(self) -> int:
        """How many streams are open."""
        with self._mutex:
            return len(self._open)

    def handler(self) -> grpc.GenericRpcHandler:
        """The service for a server."""
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
