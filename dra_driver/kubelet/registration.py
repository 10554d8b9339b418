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
NOT_YET = "the kubelet has not answered yet"
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
        self._reason = NOT_YET
        methods = {
            "GetInfo": unary(self.get_info, pb.InfoRequest),
            "NotifyRegistrationStatus": unary(self.notify, pb.RegistrationStatus),
        }
        self._server = SocketServer(
            path, [service(SERVICE, methods)], workers=_WORKERS, name="registration"
        )

    @property
    def registered(self) -> bool:
        """Whether the kubelet said that it registered the driver."""
        return not self.reason

    @property
    def reason(self) -> str:
        """Why the driver is not registered; empty when it is."""
        with self._changed:
            return self._reason

    def wait_registered(self, seconds: float) -> bool:
        """Wait until the kubelet registered the driver, at most so long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._reason, seconds)

    def start(self) -> None:
        """Let the socket appear."""
        self._server.start()

    def ensure(self) -> bool:
        """Make the socket anew if somebody removed it; answers whether that was needed."""
        if not self._server.is_removed():
            return False
        # To the kubelet a removed socket is a driver that left. It may find the new one at once.
        self._note(NOT_YET)
        if not self._server.ensure():
            return False
        self._log.warning("registration_socket_removed", path=str(self.path))
        return True

    def stop(self, grace_seconds: float) -> None:
        """Let the socket disappear, which is how the kubelet learns that the driver ends."""
        self._server.stop(grace_seconds)

    def get_info(self, _request: pb.InfoRequest, _context: grpc.ServicerContext) -> pb.PluginInfo:
        """GetInfo."""
        return self._info

    def notify(
        self, request: pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        """NotifyRegistrationStatus."""
        refused = request.error or "without a reason"
        self._note(
            "" if request.plugin_registered else f"the kubelet refused the registration: {refused}"
        )
        if request.plugin_registered:
            self._log.info("registered", endpoint=self._info.endpoint)
            return pb.RegistrationStatusResponse()
        self._log.error(
            "registration_refused",
            error=refused,
            next_step="see the kubelet's log; it tries again, at once when the driver restarts",
        )
        # The kubelet expects an error as answer to its error, as from other drivers.
        context.abort(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"registration refused by the kubelet: {refused}",
        )
        raise AssertionError("abort raises")

    def _note(self, reason: str) -> None:
        with self._changed:
            self._reason = reason
            self._changed.notify_all()
