# SPDX-License-Identifier: Apache-2.0
"""Lists of units and work that a test moves, and the calls of the device plugin API as a kubelet makes them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Condition
from typing import Any

import grpc

from dra_driver.kubelet.pb import deviceplugin_v1beta1_pb2 as pb
from dra_driver.model.ids import ResourceName, UnitId
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import ContainerAnswer, ListedUnit

HANG_SECONDS = 300
GPU = ResourceName("example.com/gpu")
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


def unit(name: str, *, healthy: bool = True, numa: tuple[int, ...] = ()) -> ListedUnit:
    return ListedUnit(UnitId(name), healthy, numa)


class Units:
    """A list of units that the test moves; it counts who waits."""

    def __init__(self, *units: ListedUnit) -> None:
        self.changed = Condition()
        self.version = 0
        self.waiting = 0
        self.waits = 0  # how many waits have begun
        self.units = units

    def snapshot(self) -> tuple[int, tuple[ListedUnit, ...]]:
        with self.changed:
            return self.version, self.units

    def wait(self, version: int, timeout: float) -> bool:
        with self.changed:
            self.waiting += 1
            self.waits += 1
            self.changed.notify_all()
            try:
                return self.changed.wait_for(lambda: self.version != version, timeout)
            finally:
                self.waiting -= 1
                self.changed.notify_all()

    def wake(self) -> None:
        with self.changed:
            self.version += 1
            self.changed.notify_all()

    def tell(self, *units: ListedUnit) -> None:
        self.units = units
        self.wake()

    def until_waits(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.waits >= count, HANG_SECONDS), self.waits

    def until_waiting(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.waiting == count, HANG_SECONDS), self.waiting


class Work:
    """Answers what the test says, and records what it was asked."""

    def __init__(self) -> None:
        self.pre_start_required = False
        self.answer: Callable[[], ContainerAnswer | Refusal] = ContainerAnswer
        self.preferred: Callable[[], Sequence[UnitId]] = tuple
        self.refuses: Refusal | None = None
        self.asked: list[tuple[object, ...]] = []

    def allocate(self, resource: ResourceName, ids: Sequence[UnitId]) -> ContainerAnswer | Refusal:
        self.asked.append(("allocate", resource, *ids))
        return self.answer()

    def prefer(
        self,
        resource: ResourceName,
        available: Sequence[UnitId],
        must_include: Sequence[UnitId],
        size: int,
    ) -> Sequence[UnitId]:
        self.asked.append(("prefer", resource, tuple(available), tuple(must_include), size))
        return self.preferred()

    def pre_start(self, resource: ResourceName, ids: Sequence[UnitId]) -> Refusal | None:
        self.asked.append(("pre_start", resource, *ids))
        return self.refuses


class Client:
    """Calls a plugin on its socket, as a kubelet without options for larger messages does."""

    def __init__(self, path: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{path}", options=OPTIONS)

    def call(self, method: str, request: Any, answer: Any) -> Any:
        send = self._channel.unary_unary(
            f"/v1beta1.DevicePlugin/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return send(request, timeout=HANG_SECONDS)

    def watch(self) -> Any:
        send = self._channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=pb.Empty.SerializeToString,
            response_deserializer=pb.ListAndWatchResponse.FromString,
        )
        return send(pb.Empty())

    def allocate(self, *containers: Sequence[str]) -> pb.AllocateResponse:
        requests = [pb.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
        response: pb.AllocateResponse = self.call(
            "Allocate", pb.AllocateRequest(container_requests=requests), pb.AllocateResponse
        )
        return response

    def close(self) -> None:
        self._channel.close()
