# SPDX-License-Identifier: Apache-2.0
"""DRAResourceHealth v1 and v1alpha1: a stream of what is known about each device.

A synchronous stream holds a worker thread for its life, and a kubelet that went away without a word leaves its stream
behind. So streams are bounded: at most `STREAM_LIMIT` for each version of the service; a further one ends the oldest.
The server has more workers than all streams together, which is why prepare always finds one.
"""

from collections import deque
from collections.abc import Callable, Iterator
from threading import Event, Lock
from typing import Any, Protocol

import grpc

from dra_driver.kubelet.pb import dra_health_v1_pb2, dra_health_v1alpha1_pb2
from dra_driver.kubelet.sockets import service, stream
from dra_driver.model.health import DeviceHealth

STREAM_LIMIT = 8
RESEND_SECONDS = 10.0
TIMEOUT_SECONDS = (
    30  # told to the kubelet: three reports may get lost before a device becomes UNKNOWN
)
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
        self._open: deque[Event] = deque()

    def watch_resources(self, _request: object, context: grpc.ServicerContext) -> Iterator[Any]:
        """NodeWatchResources: everything at once, then again at each change and every `resend_seconds`."""
        ended = self._enter()
        # Called when the client goes away or the server stops.
        if not context.add_callback(self._ender(ended)):
            ended.set()
        try:
            while not ended.is_set():
                version, devices = self._feed.snapshot()
                yield self._response(devices)
                self._feed_wait(version, ended)
        finally:
            self._leave(ended)

    def end(self) -> None:
        """End all streams now."""
        with self._mutex:
            for ended in self._open:
                ended.set()
        self._feed.wake()

    @property
    def streams(self) -> int:
        """How many streams are open."""
        with self._mutex:
            return len(self._open)

    def handler(self) -> grpc.GenericRpcHandler:
        """The service for a server."""
        method = stream(self.watch_resources, self._pb.NodeWatchResourcesRequest)
        return service(self._name, {"NodeWatchResources": method})

    def _feed_wait(self, version: int, ended: Event) -> None:
        # Waking is for all streams; each looks whether it was meant.
        if not ended.is_set():
            self._feed.wait(version, self._resend_seconds)

    def _enter(self) -> Event:
        ended = Event()
        with self._mutex:
            self._open.append(ended)
            oldest = self._open.popleft() if len(self._open) > STREAM_LIMIT else None
        if oldest is not None:
            oldest.set()
            self._feed.wake()
        return ended

    def _leave(self, ended: Event) -> None:
        with self._mutex:
            if ended in self._open:
                self._open.remove(ended)

    def _ender(self, ended: Event) -> Callable[[], None]:
        def end() -> None:
            ended.set()
            self._feed.wake()

        return end

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
