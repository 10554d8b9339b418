# SPDX-License-Identifier: Apache-2.0
"""The DRAPlugin service, version v1: decode the request, call the driver's service, encode the response.

One call has several claims, and the response has one entry for each. On a gRPC error the kubelet would throw away the results
of all claims of the call. So the call itself always succeeds. Errors, also unexpected ones and missed deadlines, go into the
entries of the claims.
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

# Enough for a full node with a slow API server. Further calls wait in a queue.
PREPARE_WORKERS = 32
UNPREPARE_WORKERS = 16


class Prepare(Protocol):
    """Prepares claims; see `services/prepare.py`. `until` is a time in seconds of the monotonic clock."""

    def __call__(
        self, refs: Sequence[ClaimRef], /, *, until: float | None = None
    ) -> Mapping[ClaimUid, tuple[PreparedDevice, ...] | Refusal]: ...


class Unprepare(Protocol):
    """Unprepares claims; see `services/unprepare.py`. The result of a claim is None if it succeeded."""

    def __call__(
        self, refs: Sequence[ClaimRef], /, *, until: float | None = None
    ) -> Mapping[ClaimUid, Refusal | None]: ...


class DraPlugin:
    """NodePrepareResources and NodeUnprepareResources with the messages of v1."""

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
        """The counts of prepare and unprepare calls, for the liveness check."""
        return self._prepares.counts(), self._unprepares.counts()

    def close(self) -> None:
        """Accept no new calls. Work that has begun goes on."""
        self._prepares.close()
        self._unprepares.close()

    def prepare_resources(
        self, request: pb.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodePrepareResourcesResponse:
        """Answer a NodePrepareResources call: for each claim the CDI devices, or an error."""
        refs = _refs(request.claims)
        entries: dict[str, pb.NodePrepareResourceResponse]
        try:
            results = self._prepares.do(
                lambda until: self._prepare(refs, until=until),
                seconds_left=context.time_remaining(),
            )
            entries = {ref.uid: _prepared(results.get(ref.uid, NO_ANSWER)) for ref in refs}
        except Temporary as error:
            late = pb.NodePrepareResourceResponse(error=self._not_done("prepare", refs, error))
            entries = {ref.uid: late for ref in refs}
        except BaseException as error:  # noqa: BLE001  an entry for each claim: gRPC does not answer after a SystemExit
            failed = pb.NodePrepareResourceResponse(error=self._internal("prepare", refs, error))
            entries = {ref.uid: failed for ref in refs}
        return pb.NodePrepareResourcesResponse(claims=entries)

    def unprepare_resources(
        self, request: pb.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodeUnprepareResourcesResponse:
        """Answer a NodeUnprepareResources call: for each claim an empty entry, or an error."""
        refs = _refs(request.claims)
        entries: dict[str, pb.NodeUnprepareResourceResponse]
        try:
            results = self._unprepares.do(
                lambda until: self._unprepare(refs, until=until),
                seconds_left=context.time_remaining(),
            )
            entries = {ref.uid: _unprepared(results.get(ref.uid, NO_ANSWER)) for ref in refs}
        except Temporary as error:
            late = pb.NodeUnprepareResourceResponse(error=self._not_done("unprepare", refs, error))
            entries = {ref.uid: late for ref in refs}
        except BaseException as error:  # noqa: BLE001  as above
            failed = pb.NodeUnprepareResourceResponse(
                error=self._internal("unprepare", refs, error)
            )
            entries = {ref.uid: failed for ref in refs}
        return pb.NodeUnprepareResourcesResponse(claims=entries)

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

    def _not_done(self, verb: str, refs: Sequence[ClaimRef], error: Temporary) -> str:
        self._log.warning(
            "call_not_done", call=verb, claims=[str(ref) for ref in refs], error=str(error)
        )
        return _text(str(error))

    def _internal(self, verb: str, refs: Sequence[ClaimRef], error: BaseException) -> str:
        self._log.error(
            "internal_error", call=verb, claims=[str(ref) for ref in refs], exc_info=error
        )
        return _text(
            f"internal error of the driver: {type(error).__name__}: {error}; its log has the details"
        )


def _refs(claims: Iterable[pb.Claim]) -> list[ClaimRef]:
    """The claims of a call, each UID once: the response is a map by UID and has room for one entry per UID."""
    refs: dict[ClaimUid, ClaimRef] = {}
    for claim in claims:
        uid = ClaimUid(claim.uid)
        refs.setdefault(uid, ClaimRef(claim.namespace, claim.name, uid))
    return list(refs.values())


def _prepared(result: tuple[PreparedDevice, ...] | Refusal) -> pb.NodePrepareResourceResponse:
    if isinstance(result, Refusal):
        return pb.NodePrepareResourceResponse(error=_text(result.reason))
    return pb.NodePrepareResourceResponse(devices=[_device(device) for device in result])


def _unprepared(result: Refusal | None) -> pb.NodeUnprepareResourceResponse:
    return pb.NodeUnprepareResourceResponse(error=_text(result.reason) if result else "")


def _text(reason: str) -> str:
    """An error text that the kubelet can read. It is valid UTF-8, and never empty: an empty error means success."""
    return reason.encode("utf-8", "backslashreplace").decode() or "refused, without a reason"


def _device(device: PreparedDevice) -> pb.Device:
    return pb.Device(
        request_names=device.request_names,
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
        share_id=device.share_id or None,
    )
