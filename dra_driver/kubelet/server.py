# SPDX-License-Identifier: Apache-2.0
"""The driver's two sockets as one object: the DRA socket with all its services, and the registration socket."""

from collections.abc import Mapping
from pathlib import Path
from threading import Event

import grpc
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from dra_driver.kubelet.calls import OPEN_LIMIT, CallCounts
from dra_driver.kubelet.dra import DraPlugin, Prepare, Unprepare
from dra_driver.kubelet.dra_v1beta1 import DraPluginV1beta1
from dra_driver.kubelet.health_check import SERVICE as HEALTH_SERVICE
from dra_driver.kubelet.health_check import Check, HealthCheck
from dra_driver.kubelet.health_stream import SERVICES, STREAM_LIMIT, HealthSource, HealthStream
from dra_driver.kubelet.pb import grpc_health_v1_pb2, pluginregistration_v1_pb2
from dra_driver.kubelet.registration import Registrar
from dra_driver.kubelet.sockets import SocketServer, text_of
from dra_driver.model.ids import DriverName

# A call beyond `OPEN_LIMIT` is refused at once, and sending that answer needs a thread. Probes need one too.
_SPARE_THREADS = 8
# The maximum number of gRPC threads; gRPC starts them when needed. Each open call has a thread, so that no call waits before
# `Calls` sees it. Streams need one more than their limit: a new stream starts while the oldest one still ends.
THREADS = _SPARE_THREADS + 2 * OPEN_LIMIT + (STREAM_LIMIT + 1) * len(SERVICES)
_PROBE_SECONDS = 2.0
_ENSURE_SECONDS = 5.0


class KubeletSockets(Struct, frozen=True):
    """The paths of the DRA socket (`endpoint`) and of the registration socket."""

    endpoint: Path
    registration: Path


class KubeletServer:
    """Serves the kubelet from `start` to `stop`, and puts its sockets back if somebody removes them."""

    def __init__(
        self,
        sockets: KubeletSockets,
        *,
        driver: DriverName,
        calls: tuple[Prepare, Unprepare],
        feed: HealthSource,
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
            workers=THREADS,
            name="dra",
        )

    def start(self) -> None:
        """Make the sockets. Raises Fatal if one cannot be made."""
        # The registration socket comes last: when the kubelet sees it, the DRA socket must already listen.
        self._server.start()
        self.registrar.start()

    def stop(self, grace_seconds: float) -> None:
        """Remove the sockets. Running calls have `grace_seconds` to end."""
        # The registration socket goes first, so that the kubelet does not use a DRA socket that is about to close.
        self.registrar.stop(0)
        for stream in self._streams:
            stream.end()
        self._server.stop(grace_seconds)
        self._plugin.close()

    def run(self, stop: Event) -> None:
        """Every few seconds until `stop` is set: put back a socket that somebody removed."""
        while not stop.wait(_ENSURE_SECONDS):
            self.ensure()

    def ensure(self) -> None:
        """Make missing sockets again, in the order of `start`."""
        if self._server.ensure():
            self._log.warning("dra_socket_removed", path=str(self.endpoint))
        self.registrar.ensure()

    def calls(self) -> tuple[CallCounts, ...]:
        """The counts of the kubelet's open calls, for the liveness check."""
        return self._plugin.counts()

    def unanswered(self) -> tuple[str, ...]:
        """Which of the driver's own sockets do not answer, with the reason.

        The probes call methods that need no worker, so that a driver with many calls still answers them.
        """
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
