# SPDX-License-Identifier: Apache-2.0
"""DRAPlugin v1: decode, call the service, encode.

A gRPC error would make the kubelet discard the answers for all claims of a call. So there is none: every claim has an entry of
its own, and an unexpected error, or a deadline that comes near, becomes the entry of each claim that it concerns.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import grpc
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import Temporary
from dra_driver.kubelet.calls import CallCounts, Calls
from dra_driver.kubelet.pb import dra_v1_pb2 as pb
from dra_driver.kubelet.sockets import service, unary
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import Refusal
from dra_driver.model.state import PreparedDevice

SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"

NO_ANSWER = Refusal("internal error of the driver: no answer for this claim")

# Enough for a full node whose API server is slow; more calls wait for their turn.
PREPARE_WORKERS = 32
UNPREPARE_WORKERS = 16


class Prepare(Protocol):
    """The service behind NodePrepareResources; `until` is a time of the monotonic clock."""

    def __call__(
        self, refs: Sequence[ClaimRef], /, *, until: float | None = None
    ) -> Mapping[ClaimUid, tuple[PreparedDevice, ...] | Refusal]: ...


class Unprepare(Protocol):
    """The service behind NodeUnprepareResources."""

    def __call__(
        self, refs: Sequence[ClaimRef], /, *, until: float | None = None
    ) -> Mapping[ClaimUid, Refusal | None]: ...


class DraPlugin:
    """The two calls of the kubelet, as messages of v1."""

    def __init__(
        self,
        prepare: Prepare,
        unprepare: Unprepare,
        log: FilteringBoundLogger,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prepare = prepare
        self._unprepare = unprepare
        self._log = log
        self._prepares = Calls("prepare", workers=PREPARE_WORKERS, clock=clock)
        self._unprepares = Calls("unprepare", workers=UNPREPARE_WORKERS, clock=clock)

    def counts(self) -> tuple[CallCounts, ...]:
        """How the calls of each kind stand."""
        return self._prepares.counts(), self._unprepares.counts()

    def close(self) -> None:
        """Begin no call any more."""
        self._prepares.close()
        self._unprepares.close()

    def prepare_resources(
        self, request: pb.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodePrepareResourcesResponse:
        """NodePrepareResources."""
        refs = _refs(request.claims)
        answers: dict[str, pb.NodePrepareResourceResponse]
        try:
            found = self._prepares.do(
                lambda until: self._prepare(refs, until=until),
                seconds_left=context.time_remaining(),
            )
            answers = {ref.uid: _prepared(found.get(ref.uid, NO_ANSWER)) for ref in refs}
        except Temporary as error:
            late = pb.NodePrepareResourceResponse(error=self._not_done("prepare", refs, error))
            answers = {ref.uid: late for ref in refs}
        except Exception as error:  # noqa: BLE001  an entry for each claim instead of an error for all
            failed = pb.NodePrepareResourceResponse(error=self._internal("prepare", refs, error))
            answers = {ref.uid: failed for ref in refs}
        return pb.NodePrepareResourcesResponse(claims=answers)

    def unprepare_resources(
        self, request: pb.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodeUnprepareResourcesResponse:
        """NodeUnprepareResources."""
        refs = _refs(request.claims)
        answers: dict[str, pb.NodeUnprepareResourceResponse]
        try:
            found = self._unprepares.do(
                lambda until: self._unprepare(refs, until=until),
                seconds_left=context.time_remaining(),
            )
            answers = {ref.uid: _unprepared(found.get(ref.uid, NO_ANSWER)) for ref in refs}
        except Temporary as error:
            late = pb.NodeUnprepareResourceResponse(error=self._not_done("unprepare", refs, error))
            answers = {ref.uid: late for ref in refs}
        except Exception as error:  # noqa: BLE001  as above
            failed = pb.NodeUnprepareResourceResponse(
                error=self._internal("unprepare", refs, error)
            )
            answers = {ref.uid: failed for ref in refs}
        return pb.NodeUnprepareResourcesResponse(claims=answers)

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

    def _not_done(self, verb: str, refs: Sequence[ClaimRef], error: Temporary) -> str:
        self._log.warning(
            "call_not_done", call=verb, claims=[str(ref) for ref in refs], error=str(error)
        )
        return _text(str(error))

    def _internal(self, verb: str, refs: Sequence[ClaimRef], error: Exception) -> str:
        self._log.error(
            "internal_error", call=verb, claims=[str(ref) for ref in refs], exc_info=error
        )
        return _text(
            f"internal error of the driver: {type(error).__name__}: {error}; its log has the details"
        )


def _refs(claims: Iterable[pb.Claim]) -> list[ClaimRef]:
    """The claims of a call, each UID once: there is one entry for each, so a second one could not be answered."""
    refs: dict[ClaimUid, ClaimRef] = {}
    for claim in claims:
        uid = ClaimUid(claim.uid)
        refs.setdefault(uid, ClaimRef(claim.namespace, claim.name, uid))
    return list(refs.values())


def _prepared(answer: tuple[PreparedDevice, ...] | Refusal) -> pb.NodePrepareResourceResponse:
    if isinstance(answer, Refusal):
        return pb.NodePrepareResourceResponse(error=_text(answer.reason))
    return pb.NodePrepareResourceResponse(devices=[_device(device) for device in answer])


def _unprepared(answer: Refusal | None) -> pb.NodeUnprepareResourceResponse:
    return pb.NodeUnprepareResourceResponse(error=_text(answer.reason) if answer else "")


def _text(reason: str) -> str:
    """An error as the kubelet can read it: never empty, which would mean success, and always UTF-8."""
    return reason.encode("utf-8", "backslashreplace").decode() or "refused, without a reason"


def _device(device: PreparedDevice) -> pb.Device:
    return pb.Device(
        request_names=device.request_names,
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
        share_id=device.share_id or None,
    )
