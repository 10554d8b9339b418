# SPDX-License-Identifier: Apache-2.0
"""The service grpc.health.v1 on the DRA socket, for gRPC probes. Its service names are "", "liveness" and "readiness"."""

from collections.abc import Callable, Mapping

import grpc

from dra_driver.kubelet.pb import grpc_health_v1_pb2 as pb
from dra_driver.kubelet.sockets import service, unary

SERVICE = "grpc.health.v1.Health"

Check = Callable[[], tuple[str, ...]]


class HealthCheck:
    """Answers with the same checks as /livez and /readyz. A check returns the list of problems, empty if there are none."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks

    def check(
        self, request: pb.HealthCheckRequest, context: grpc.ServicerContext
    ) -> pb.HealthCheckResponse:
        """Answer a Check call: SERVING if the check of the requested service finds no problem."""
        check = self._checks.get(request.service)
        if check is None:
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"services are: {', '.join(sorted(self._checks))}"
            )
            raise AssertionError("abort raises")
        status = pb.HealthCheckResponse.NOT_SERVING if check() else pb.HealthCheckResponse.SERVING
        return pb.HealthCheckResponse(status=status)

    def handler(self) -> grpc.GenericRpcHandler:
        """The gRPC handler. It has no Watch method: gRPC then answers UNIMPLEMENTED, and clients fall back to Check."""
        return service(SERVICE, {"Check": unary(self.check, pb.HealthCheckRequest)})
