# SPDX-License-Identifier: Apache-2.0
"""grpc.health.v1 on the DRA socket, for probes. Services: "" and "liveness", "readiness"."""

from collections.abc import Callable, Mapping

import grpc

from dra_driver.kubelet.pb import grpc_health_v1_pb2 as pb
from dra_driver.kubelet.sockets import service, unary

SERVICE = "grpc.health.v1.Health"

Check = Callable[[], tuple[str, ...]]


class HealthCheck:
    """Answers by the same checks as /livez and /readyz; a check says what is wrong, or nothing."""

    def __init__(self, checks: Mapping[str, Check]) -> None:
        self._checks = checks

    def check(
        self, request: pb.HealthCheckRequest, context: grpc.ServicerContext
    ) -> pb.HealthCheckResponse:
        """Check."""
        check = self._checks.get(request.service)
        if check is None:
            context.abort(
                grpc.StatusCode.NOT_FOUND, f"services are: {', '.join(sorted(self._checks))}"
            )
            raise AssertionError("abort raises")
        status = pb.HealthCheckResponse.NOT_SERVING if check() else pb.HealthCheckResponse.SERVING
        return pb.HealthCheckResponse(status=status)

    def handler(self) -> grpc.GenericRpcHandler:
        """The service for a server; Watch is answered UNIMPLEMENTED, as clients of it expect."""
        return service(SERVICE, {"Check": unary(self.check, pb.HealthCheckRequest)})
