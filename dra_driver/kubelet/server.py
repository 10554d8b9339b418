# SPDX-License-Identifier: Apache-2.0
"""Both sockets of the driver as one part: the DRA socket with all services, and the registration socket."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import grpc
from structlog.typing import FilteringBoundLogger

from dra_driver.kubelet.calls import OPEN_LIMIT, CallCounts
from dra_driver.kubelet.dra import DraPlugin, Prepare, Unprepare
from dra_driver.kubelet.dra_v1beta1 import DraPluginV1beta1
from dra_driver.kubelet.health_check import SERVICE as HEALTH_SERVICE
from dra_driver.kubelet.health_check import Check, HealthCheck
from dra_driver.kubelet.health_stream import SERVICES, STREAM_LIMIT, HealthFeed, HealthStream
from dra_driver.kubelet.pb import grpc_health_v1_pb2, pluginregistration_v1_pb2
from dra_driver.kubelet.registration import Registrar
from dra_driver.kubelet.sockets import SocketServer, text_of
from dra_driver.model.ids import DriverName

# Whoever comes while the limits below are reached is sent away at once, and needs a thread to be told so; so do probes.
_SPARE_THREADS = 8
# gRPC's threads, made as they are needed. All calls that may be open together have one each, so that no call waits before it
# is looked at; streams have one more than their limit, since a new one runs while the oldest is ending.
_THREADS = _SPARE_THREADS + 2 * OPEN_LIMIT + (STREAM_LIMIT + 1) * len(SERVICES)
_PROBE_SECONDS = 2.0
_ENSURE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class KubeletSockets:
    """Where the sockets are."""

    endpoint: Path
    registration: Path


class KubeletServer:
    """Serves a kubelet from `start` to `stop`."""

    def __init__(
        self,
        sockets: KubeletSockets,
        *,
        driver: DriverName,
        calls: tuple[Prepare, Unprepare],
        feed: HealthFeed,
        checks: Mapping[str, Check],
        log: FilteringBoundLogger,
    ) -> None:
        self.endpoint = sockets.endpoint
        self._log = log
        self.registrar = Registrar(
            sockets.registration, driver=driver, endpoint=sockets.endpoint, log=log
        )
        self._plugin = newest = DraPlugin(*calls, log)
        self._streams = [HealthStream(name, feed) for name in SERVICES]
        handlers = [
            newest.handler(),
            DraPluginV1beta1(newest).handler(),
            HealthCheck(checks).handler(),
        ]
        self._server = SocketServer(
            sockets.endpoint,
            [*handlers, *(stream.handler() for stream in self._streams)],
            workers=_THREADS,
            name="dra",
        )

    def start(self) -> None:
        """First the socket that is called, then the one that says so."""
        self._server.start()
        self.registrar.start()

    def stop(self, grace_seconds: float) -> None:
        """First the socket that says where we are, then the one that is called; running calls may end."""
        self.registrar.stop(0)
        for stream in self._streams:
            stream.end()
        self._server.stop(grace_seconds)
        self._plugin.close()

    def run(self, stop: Event) -> None:
        """Put a socket back whenever somebody removed it."""
        while not stop.wait(_ENSURE_SECONDS):
            self.ensure()

    def ensure(self) -> None:
        """Put back what is missing, in the order of `start`."""
        if self._server.ensure():
            self._log.warning("dra_socket_removed", path=str(self.endpoint))
        self.registrar.ensure()

    def calls(self) -> tuple[CallCounts, ...]:
        """How the kubelet's calls stand."""
        return self._plugin.counts()

    def unanswered(self) -> tuple[str, ...]:
        """Which of our own sockets do not answer, and why. Asks what no work stands behind: a busy driver answers."""
        check_health = (
            f"/{HEALTH_SERVICE}/Check",
            grpc_health_v1_pb2.HealthCheckRequest().SerializeToString(),
        )
        get_info = (
            "/pluginregistration.Registration/GetInfo",
            pluginregistration_v1_pb2.InfoRequest().SerializeToString(),
        )
        probes = ((self.endpoint, *check_health), (self.registrar.path, *get_info))
        return tuple(wrong for probe in probes if (wrong := _probe(*probe)))


def _probe(socket: Path, method: str, request: bytes) -> str:
    try:
        with grpc.insecure_channel(
            f"unix:{socket}", options=(("grpc.enable_http_proxy", 0),)
        ) as channel:
            call = channel.unary_unary(
                method, request_serializer=bytes, response_deserializer=bytes
            )
            call(request, timeout=_PROBE_SECONDS)
    except grpc.RpcError as error:
        return f"socket {socket} does not answer: {text_of(error)}"
    return ""
