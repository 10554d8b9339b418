# SPDX-License-Identifier: Apache-2.0
"""The registration socket: how the kubelet learns who we are, and what it made of it.

The kubelet looks for sockets in its registry directory, so this one appears only when the DRA socket already listens, and
goes first at the end.
"""

from pathlib import Path
from threading import Condition

import grpc
from structlog.typing import FilteringBoundLogger

from dra_driver.kubelet.pb import pluginregistration_v1_pb2 as pb
from dra_driver.kubelet.sockets import SocketServer, service, unary
from dra_driver.model.ids import DriverName

SERVICE = "pluginregistration.Registration"
# Kubelets from 1.34 on take the first DRA service of this list that they know, so the newest stands first; 1.32 and 1.33
# look for v1beta1 and ignore the rest. For the health service the kubelet's own preference counts.
SUPPORTED_VERSIONS = (
    "v1.DRAPlugin",
    "v1beta1.DRAPlugin",
    "v1.DRAResourceHealth",
    "v1alpha1.DRAResourceHealth",
)
_WORKERS = 2


class Registrar:
    """Serves the Registration service on `path` for the DRA socket `endpoint`."""

    def __init__(
        self, path: Path, *, driver: DriverName, endpoint: Path, log: FilteringBoundLogger
    ) -> None:
        self.path = path
        self._info = pb.PluginInfo(
            type="DRAPlugin",
            name=driver,
            endpoint=str(endpoint),
            supported_versions=SUPPORTED_VERSIONS,
        )
        self._log = log
        self._changed = Condition()
        self._registered = False
        self._reason = "the kubelet has not answered yet"
        self._server: SocketServer | None = None

    @property
    def registered(self) -> bool:
        """Whether the kubelet said that it registered the driver."""
        with self._changed:
            return self._registered

    @property
    def reason(self) -> str:
        """Why the driver is not registered; empty when it is."""
        with self._changed:
            return "" if self._registered else self._reason

    def wait_registered(self, seconds: float) -> bool:
        """Wait until the kubelet registered the driver, at most so long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._registered, seconds)

    def start(self) -> None:
        """Let the socket appear."""
        self._server = self._new_server()
        self._server.start()

    def ensure(self) -> bool:
        """Make the socket anew if somebody removed it; answers whether that was needed."""
        if self._server is None or self._server.is_there():
            return False
        self._log.warning("registration_socket_removed", path=str(self.path))
        self._server.stop(0)
        self.start()
        return True

    def stop(self, grace_seconds: float) -> None:
        """Let the socket disappear, which is how the kubelet learns that the driver ends."""
        if self._server is not None:
            self._server.stop(grace_seconds)

    def get_info(self, _request: pb.InfoRequest, _context: grpc.ServicerContext) -> pb.PluginInfo:
        """GetInfo."""
        return self._info

    def notify(
        self, request: pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        """NotifyRegistrationStatus."""
        with self._changed:
            self._registered = request.plugin_registered
            self._reason = f"the kubelet refused the registration: {request.error}"
            self._changed.notify_all()
        if request.plugin_registered:
            self._log.info("registered", endpoint=self._info.endpoint)
            return pb.RegistrationStatusResponse()
        self._log.error(
            "registration_refused",
            error=request.error,
            next_step="see the kubelet's log; it tries again",
        )
        context.abort(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"registration refused by the kubelet: {request.error}",
        )
        raise AssertionError("abort raises")

    def _new_server(self) -> SocketServer:
        methods = {
            "GetInfo": unary(self.get_info, pb.InfoRequest),
            "NotifyRegistrationStatus": unary(self.notify, pb.RegistrationStatus),
        }
        return SocketServer(
            self.path, [service(SERVICE, methods)], workers=_WORKERS, name="registration"
        )
