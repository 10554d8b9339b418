# SPDX-License-Identifier: Apache-2.0
"""The DRAPlugin service, version v1beta1, for kubelets 1.32 and 1.33. It converts the messages and calls the v1 service.

The only difference is that v1beta1 has no share IDs.
"""

import grpc

from dra_driver.kubelet.dra import DraPlugin
from dra_driver.kubelet.pb import dra_v1_pb2 as v1
from dra_driver.kubelet.pb import dra_v1beta1_pb2 as pb
from dra_driver.kubelet.sockets import service, unary

SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"


class DraPluginV1beta1:
    """NodePrepareResources and NodeUnprepareResources with the messages of v1beta1."""

    def __init__(self, newest: DraPlugin) -> None:
        self._newest = newest

    def prepare_resources(
        self, request: pb.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodePrepareResourcesResponse:
        """Answer a NodePrepareResources call of v1beta1."""
        converted = v1.NodePrepareResourcesRequest.FromString(request.SerializeToString())
        response = self._newest.prepare_resources(converted, context)
        for entry in response.claims.values():
            for device in entry.devices:
                device.ClearField("share_id")
        # Both versions have the same fields with the same numbers, so the bytes of one can be parsed as the other.
        return pb.NodePrepareResourcesResponse.FromString(response.SerializeToString())

    def unprepare_resources(
        self, request: pb.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodeUnprepareResourcesResponse:
        """Answer a NodeUnprepareResources call of v1beta1."""
        converted = v1.NodeUnprepareResourcesRequest.FromString(request.SerializeToString())
        response = self._newest.unprepare_resources(converted, context)
        return pb.NodeUnprepareResourcesResponse.FromString(response.SerializeToString())

    def handler(self) -> grpc.GenericRpcHandler:
        """The gRPC handler that serves both methods; given to `SocketServer`."""
        return service(
            SERVICE,
            {
                "NodePrepareResources": unary(
                    self.prepare_resources, pb.NodePrepareResourcesRequest
                ),
                "NodeUnprepareResources": unary(
                    self.unprepare_resources, pb.NodeUnprepareResourcesRequest
                ),
            },
        )
