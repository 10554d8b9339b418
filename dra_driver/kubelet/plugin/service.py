# SPDX-License-Identifier: Apache-2.0
"""The DevicePlugin service of one extended resource: it lists the units, and says what a container with some of them needs.

Unlike the DRA calls, these calls have no place for an error in their responses. So an error is a gRPC error. The kubelet shows its text
in the status of the pod, which stays failed: a controller must make a new pod. Only GetPreferredAllocation answers an error with "no
preference": the kubelet asks for advice there, and would fail the pod too.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

import grpc
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError, Temporary
from dra_driver.kubelet.pb import deviceplugin_v1beta1_pb2 as pb
from dra_driver.kubelet.sockets import service, stream, unary
from dra_driver.kubelet.streams import STREAM_LIMIT, Feed, Streams
from dra_driver.model.ids import ResourceName, UnitId
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import ContainerAnswer, ListedUnit

SERVICE = "v1beta1.DevicePlugin"
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
# The kubelet has one call of each kind open for a resource. A stream keeps its thread; one more starts while the oldest still ends.
THREADS = STREAM_LIMIT + 1 + 4
_LONGEST_TEXT = (
    2000  # characters of an error; some gRPC clients drop a call whose error has more than 8 KiB
)

UnitSource: TypeAlias = Feed[tuple[ListedUnit, ...]]
"""The source of a resource's list of units."""

Result = TypeVar("Result")


class PluginWork(Protocol):
    """What the service asks the driver. Each method may raise DriverError."""

    @property
    def pre_start_required(self) -> bool:
        """Whether the kubelet calls `pre_start` before each start of a container."""

    def allocate(
        self, resource: ResourceName, ids: Sequence[UnitId], /
    ) -> ContainerAnswer | Refusal:
        """What a container with these units needs."""

    def prefer(
        self,
        resource: ResourceName,
        available: Sequence[UnitId],
        must_include: Sequence[UnitId],
        size: int,
        /,
    ) -> Sequence[UnitId]:
        """`size` of the available units, with all that must be included. Fewer are allowed: the kubelet adds others."""

    def pre_start(self, resource: ResourceName, ids: Sequence[UnitId], /) -> Refusal | None:
        """Whether a container with these units may start now."""


class PluginService:
    """The DevicePlugin service of `resource`. `stream_ended` is called when a ListAndWatch stream has ended."""

    def __init__(
        self,
        resource: ResourceName,
        source: UnitSource,
        work: PluginWork,
        log: FilteringBoundLogger,
        *,
        stream_ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._resource = resource
        self._work = work
        self._log = log
        self._streams = Streams(source, ended=stream_ended)

    @property
    def streams(self) -> int:
        """The number of open ListAndWatch streams."""
        return self._streams.count

    def end(self) -> None:
        """End all streams. The kubelet then regards all units as unhealthy."""
        self._streams.end()

    def handler(self) -> grpc.GenericRpcHandler:
        """The gRPC handler; given to `SocketServer`."""
        return service(
            SERVICE,
            {
                "GetDevicePluginOptions": unary(self.get_options, pb.Empty),
                "ListAndWatch": stream(self.list_and_watch, pb.Empty),
                "GetPreferredAllocation": unary(self.prefer, pb.PreferredAllocationRequest),
                "Allocate": unary(self.allocate, pb.AllocateRequest),
                "PreStartContainer": unary(self.pre_start, pb.PreStartContainerRequest),
            },
        )

    def options(self) -> pb.DevicePluginOptions:
        """What the kubelet is told at the registration, and asks again when it connects."""
        return pb.DevicePluginOptions(
            pre_start_required=self._work.pre_start_required,
            get_preferred_allocation_available=True,
        )

    def get_options(
        self, _request: pb.Empty, _context: grpc.ServicerContext
    ) -> pb.DevicePluginOptions:
        """Answer a GetDevicePluginOptions call."""
        return self.options()

    def list_and_watch(
        self, _request: pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        """Answer a ListAndWatch call: send all units now and after each change."""
        return self._streams.send(context, _listed)

    def prefer(
        self, request: pb.PreferredAllocationRequest, _context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        """Answer a GetPreferredAllocation call. No preference after an error, so that the pod does not fail."""
        return pb.PreferredAllocationResponse(
            container_responses=[
                pb.ContainerPreferredAllocationResponse(deviceIDs=self._preferred(container))
                for container in request.container_requests
            ]
        )

    def allocate(
        self, request: pb.AllocateRequest, context: grpc.ServicerContext
    ) -> pb.AllocateResponse:
        """Answer an Allocate call: what each container needs."""
        responses = []
        for container in request.container_requests:
            ids = _ids(container.devices_ids)
            answer = self._done("Allocate", ids, context, partial(self._allocated, ids))
            responses.append(answer)
        return pb.AllocateResponse(container_responses=responses)

    def pre_start(
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        """Answer a PreStartContainer call."""
        ids = _ids(request.devices_ids)
        work = partial(self._work.pre_start, self._resource, ids)
        self._done("PreStartContainer", ids, context, work)
        return pb.PreStartContainerResponse()

    def _allocated(self, ids: Sequence[UnitId]) -> pb.ContainerAllocateResponse | Refusal:
        answer = self._work.allocate(self._resource, ids)
        return answer if isinstance(answer, Refusal) else encoded(answer)

    def _preferred(self, request: pb.ContainerPreferredAllocationRequest) -> Sequence[UnitId]:
        available = _ids(request.available_deviceIDs)
        must_include = _ids(request.must_include_deviceIDs)
        try:
            return self._work.prefer(
                self._resource, available, must_include, request.allocation_size
            )
        except Exception as error:  # noqa: BLE001  advice is not worth a pod
            self._log.error("no_preference", resource=self._resource, exc_info=error)
            return ()

    def _done(
        self,
        call: str,
        ids: Sequence[UnitId],
        context: grpc.ServicerContext,
        work: Callable[[], Result | Refusal],
    ) -> Result:
        """The result of `work`; a refusal or an exception ends the gRPC call."""
        try:
            result = work()
        except Temporary as error:
            code, text = grpc.StatusCode.UNAVAILABLE, str(error)
            self._log.warning(
                "call_not_done", call=call, resource=self._resource, units=list(ids), error=text
            )
        except DriverError as error:
            code, text = grpc.StatusCode.FAILED_PRECONDITION, str(error)
        except Exception as error:  # noqa: BLE001  the pod's status shall say more than "exception calling application"
            code = grpc.StatusCode.INTERNAL
            text = f"internal error of the driver: {type(error).__name__}: {error}; its log has the details"
            self._log.error(
                "internal_error",
                call=call,
                resource=self._resource,
                units=list(ids),
                exc_info=error,
            )
        else:
            if not isinstance(result, Refusal):
                return result
            code, text = grpc.StatusCode.FAILED_PRECONDITION, result.reason
        context.abort(code, _text(text))
        raise AssertionError("abort raises")


def encoded(answer: ContainerAnswer) -> pb.ContainerAllocateResponse:
    """The message for one container. The API has only a part of what CDI has: it drops other options of a mount than "ro"."""
    return pb.ContainerAllocateResponse(
        envs=answer.env,
        mounts=[
            pb.Mount(
                container_path=mount.container_path,
                host_path=mount.host_path,
                read_only="ro" in mount.options,
            )
            for mount in answer.mounts
        ],
        devices=[
            pb.DeviceSpec(
                container_path=node.path,
                host_path=node.host_path or node.path,
                permissions=node.permissions,
            )
            for node in answer.device_nodes
        ],
        annotations=answer.annotations,
        cdi_devices=[pb.CDIDevice(name=name) for name in answer.cdi_ids],
    )


def _listed(units: Sequence[ListedUnit]) -> pb.ListAndWatchResponse:
    return pb.ListAndWatchResponse(
        devices=[
            pb.Device(
                ID=unit.id,
                health=HEALTHY if unit.healthy else UNHEALTHY,
                # Without nodes the field is left out: GetAllocatableResources of a kubelet has no units with an empty list.
                topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in unit.numa_nodes])
                if unit.numa_nodes
                else None,
            )
            for unit in units
        ]
    )


def _ids(ids: Sequence[str]) -> tuple[UnitId, ...]:
    return tuple(map(UnitId, ids))


def _text(reason: str) -> str:
    """An error text that the kubelet can read: valid UTF-8, never empty, and not too long."""
    text = reason.encode("utf-8", "backslashreplace").decode()[:_LONGEST_TEXT]
    return text or "refused, without a reason"
