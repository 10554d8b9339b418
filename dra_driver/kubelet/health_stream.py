# SPDX-License-Identifier: Apache-2.0
"""The DRAResourceHealth service, v1 and v1alpha1: it streams the health of all devices to the kubelet.

The gRPC server has more threads than all streams together need. So a prepare call always finds a free thread.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import grpc

from dra_driver.kubelet.pb import dra_health_v1_pb2, dra_health_v1alpha1_pb2
from dra_driver.kubelet.sockets import service, stream
from dra_driver.kubelet.streams import STREAM_LIMIT, Feed, Streams
from dra_driver.model.health import DeviceHealth
from dra_driver.services.watch_health import TIMEOUT_SECONDS

__all__ = ["SERVICES", "STREAM_LIMIT", "TIMEOUT_SECONDS", "HealthSource", "HealthStream"]

RESEND_SECONDS = 10.0
SERVICES = {
    "v1.DRAResourceHealth": dra_health_v1_pb2,
    "v1alpha1.DRAResourceHealth": dra_health_v1alpha1_pb2,
}


HealthSource: TypeAlias = Feed[tuple[DeviceHealth, ...]]
"""The source of health data; see `services/watch_health.py`."""


class HealthStream:
    """One version of the service. `name` is the name that the registration announces, a key of `SERVICES`."""

    def __init__(
        self, name: str, feed: HealthSource, *, resend_seconds: float = RESEND_SECONDS
    ) -> None:
        self._name = name
        self._pb: Any = SERVICES[name]
        self._resend_seconds = resend_seconds
        self._streams = Streams(feed, resend_seconds=resend_seconds)

    def watch_resources(self, _request: object, context: grpc.ServicerContext) -> Iterator[Any]:
        """Answer a NodeWatchResources call: send all devices now, after each change, and every `resend_seconds`."""
        return self._streams.send(context, self._response)

    def end(self) -> None:
        """End all streams. A stream that opens later is ended at once."""
        self._streams.end()

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return self._streams.count

    def handler(self) -> grpc.GenericRpcHandler:
        """The gRPC handler of this version; given to `SocketServer`."""
        method = stream(self.watch_resources, self._pb.NodeWatchResourcesRequest)
        return service(self._name, {"NodeWatchResources": method})

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
