# SPDX-License-Identifier: Apache-2.0
"""DRAPlugin v1: decode, call the service, encode.

A gRPC error would make the kubelet discard the answers for all claims of a call. So there is none: every claim has an entry of
its own, and an unexpected error becomes the entry of each claim that it concerns.
"""

from collections.abc import Callable, Mapping, Sequence

import grpc
from structlog.typing import FilteringBoundLogger

from dra_driver.kubelet.pb import dra_v1_pb2 as pb
from dra_driver.kubelet.sockets import service, unary
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import Refusal
from dra_driver.model.state import PreparedDevice

SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"

Prepare = Callable[[Sequence[ClaimRef]], Mapping[ClaimUid, tuple[PreparedDevice, ...] | Refusal]]
Unprepare = Callable[[Sequence[ClaimRef]], Mapping[ClaimUid, Refusal | None]]


class DraPlugin:
    """The two calls of the kubelet, as messages of v1."""

    def __init__(self, prepare: Prepare, unprepare: Unprepare, log: FilteringBoundLogger) -> None:
        self._prepare = prepare
        self._unprepare = unprepare
        self._log = log

    def prepare_resources(
        self, request: pb.NodePrepareResourcesRequest, _context: grpc.ServicerContext
    ) -> pb.NodePrepareResourcesResponse:
        """NodePrepareResources."""
        refs = _refs(request.claims)
        try:
            answers = self._prepare(refs)
        except Exception as error:  # noqa: BLE001  an entry for each claim instead of an error for all
            answers = self._failed("prepare", refs, error)
        response = pb.NodePrepareResourcesResponse()
        for ref in refs:
            response.claims[ref.uid].CopyFrom(_prepared(ref, answers))
        return response

    def unprepare_resources(
        self, request: pb.NodeUnprepareResourcesRequest, _context: grpc.ServicerContext
    ) -> pb.NodeUnprepareResourcesResponse:
        """NodeUnprepareResources."""
        refs = _refs(request.claims)
        answers: Mapping[ClaimUid, Refusal | None]
        try:
            answers = self._unprepare(refs)
        except Exception as error:  # noqa: BLE001  as above
            answers = self._failed("unprepare", refs, error)
        response = pb.NodeUnprepareResourcesResponse()
        for ref in refs:
            failure = answers.get(ref.uid)
            response.claims[ref.uid].error = failure.reason if failure else ""
        return response

    def handler(self) -> grpc.GenericRpcHandler:
        """The service for a server."""
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

    def _failed(
        self, verb: str, refs: Sequence[ClaimRef], error: Exception
    ) -> dict[ClaimUid, Refusal]:
        self._log.error(
            f"{verb}_failed_unexpectedly", exc_info=error, claims=[ref.uid for ref in refs]
        )
        refusal = Refusal(
            f"internal error of the driver: {type(error).__name__}: {error}; its log has the details"
        )
        return {ref.uid: refusal for ref in refs}


def _refs(claims: Sequence[pb.Claim]) -> list[ClaimRef]:
    """The claims of a call, each UID once."""
    return list(
        {
            claim.uid: ClaimRef(claim.namespace, claim.name, ClaimUid(claim.uid))
            for claim in claims
        }.values()
    )


def _prepared(
    ref: ClaimRef, answers: Mapping[ClaimUid, tuple[PreparedDevice, ...] | Refusal]
) -> pb.NodePrepareResourceResponse:
    answer = answers.get(ref.uid, Refusal("internal error of the driver: no answer for this claim"))
    if isinstance(answer, Refusal):
        return pb.NodePrepareResourceResponse(error=answer.reason)
    return pb.NodePrepareResourceResponse(devices=[_device(device) for device in answer])


def _device(device: PreparedDevice) -> pb.Device:
    return pb.Device(
        request_names=device.request_names,
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
        share_id=device.share_id or None,
    )
