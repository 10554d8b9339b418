# SPDX-License-Identifier: Apache-2.0
"""The registration socket: the kubelet finds the driver through it and reports whether the registration succeeded.

The kubelet watches its registry directory. When a socket appears there, it calls GetInfo on it, then connects to the DRA socket
that GetInfo names. So the registration socket is made after the DRA socket, and removed before it.
"""

from pathlib import Path
from threading import Lock

import grpc
from structlog.typing import FilteringBoundLogger

from dra_driver.kubelet.pb import pluginregistration_v1_pb2 as pb
from dra_driver.kubelet.sockets import SocketServer, service, unary
from dra_driver.model.ids import DriverName

SERVICE = "pluginregistration.Registration"
# A kubelet from 1.34 on uses the first DRA service of this list that it knows, so the newest version comes first. Kubelets 1.32
# and 1.33 look for v1beta1 and ignore the rest. For the health service the order does not matter.
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
        self._mutex = Lock()
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
        """Whether the last NotifyRegistrationStatus call of the kubelet reported success."""
        return not self.reason

    @property
    def reason(self) -> str:
        """Why the driver is not registered; empty when it is."""
        with self._mutex:
            return self._reason

    def start(self) -> None:
        """Make the socket and serve it."""
        self._server.start()

    def ensure(self) -> bool:
        """Make the socket again if somebody removed it. Returns whether it did."""
        if not self._server.is_removed():
            return False
        # When its socket is removed, the kubelet forgets the driver. The status must be reset before the new socket exists:
        # the kubelet may find the socket and report success at once.
        self._note(NOT_YET)
        if not self._server.ensure():
            return False
        self._log.warning("registration_socket_removed", path=str(self.path))
        return True

    def stop(self, grace_seconds: float) -> None:
        """Remove the socket. The kubelet then unregisters the driver."""
        self._server.stop(grace_seconds)

    def get_info(self, _request: pb.InfoRequest, _context: grpc.ServicerContext) -> pb.PluginInfo:
        """Answer a GetInfo call: driver name, DRA socket and service versions."""
        return self._info

    def notify(
        self, request: pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        """Answer a NotifyRegistrationStatus call: the kubelet reports whether it registered the driver."""
        refused = request.error or "without a reason"
        before = self.reason
        self._note(
            "" if request.plugin_registered else f"the kubelet refused the registration: {refused}"
        )
        if request.plugin_registered:
            self._log.info("registered", endpoint=self._info.endpoint)
            return pb.RegistrationStatusResponse()
        if self.reason != before:  # a kubelet without DRA refuses for ever
            self._log.error(
                "registration_refused",
                error=refused,
                next_step="see the kubelet's log; it tries again, at once when the driver restarts",
            )
        # The kubelet plugin helper of Kubernetes answers a failed registration with an error too.
        context.abort(
            grpc.StatusCode.FAILED_PRECONDITION,
            f"registration refused by the kubelet: {refused}",
        )
        raise AssertionError("abort raises")

    def _note(self, reason: str) -> None:
        with self._mutex:
            self._reason = reason
