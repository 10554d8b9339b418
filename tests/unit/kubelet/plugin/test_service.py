# SPDX-License-Identifier: Apache-2.0
"""The calls of the device plugin API: what a kubelet gets for each answer and each error of the driver."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import pytest
import structlog
from structlog.testing import capture_logs

from dra_driver.errors import Permanent, Temporary
from dra_driver.kubelet.pb import deviceplugin_v1beta1_pb2 as pb
from dra_driver.kubelet.plugin.service import THREADS, PluginService
from dra_driver.kubelet.sockets import SocketServer
from dra_driver.kubelet.streams import STREAM_LIMIT
from dra_driver.model.cdi import DeviceNode, Mount
from dra_driver.model.ids import UnitId
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import LONGEST_UNIT_ID, ContainerAnswer
from tests.support.plugin_calls import GPU, HANG_SECONDS, Client, Units, Work, unit

GRPC_LIMIT_BYTES = 4 * 1024 * 1024
"""The longest message that a gRPC client takes by default. The kubelet dials without an option for more
(k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go, dial)."""


class Bed:
    """The service of one resource on a socket."""

    def __init__(self, path: Path) -> None:
        self.units = Units(unit("gpu-0", numa=(1,)), unit("gpu-1", healthy=False))
        self.work = Work()
        self.ended = 0
        log = structlog.get_logger()
        self.service = PluginService(GPU, self.units, self.work, log, stream_ended=self.count)
        self.server = SocketServer(path, [self.service.handler()], workers=THREADS, name="bed")
        self.server.start()
        self.client = Client(path)

    def count(self) -> None:
        with self.units.changed:
            self.ended += 1
            self.units.changed.notify_all()

    def until_ended(self, count: int) -> None:
        with self.units.changed:
            assert self.units.changed.wait_for(lambda: self.ended >= count, HANG_SECONDS)

    def close(self) -> None:
        self.client.close()
        self.service.end()
        self.server.stop(0)


@pytest.fixture
def bed(root: Path) -> Iterator[Bed]:
    found = Bed(root / "gpu.sock")
    yield found
    found.close()


def listed(*devices: tuple[str, str, tuple[int, ...] | None]) -> pb.ListAndWatchResponse:
    return pb.ListAndWatchResponse(
        devices=[
            pb.Device(
                ID=name,
                health=health,
                topology=None
                if nodes is None
                else pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in nodes]),
            )
            for name, health, nodes in devices
        ]
    )


def refused(bed: Bed) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        bed.client.allocate(["gpu-0"])
    return error.value.code(), error.value.details()


# The list of units.


def test_a_stream_sends_the_whole_list_now_and_after_each_change(bed: Bed) -> None:
    lists = bed.client.watch()
    assert next(lists) == listed(("gpu-0", "Healthy", (1,)), ("gpu-1", "Unhealthy", None))
    bed.units.tell(unit("gpu-1", numa=(0, 1)))
    assert next(lists) == listed(("gpu-1", "Healthy", (0, 1)))
    bed.units.tell()
    assert next(lists) == listed()


def test_a_stream_that_is_woken_without_a_change_sends_nothing(bed: Bed) -> None:
    # The kubelet writes its checkpoint for each list that it gets.
    lists = bed.client.watch()
    next(lists)
    for wakes in range(3):
        bed.units.until_waits(wakes + 1)
        bed.units.wake()
    bed.units.until_waits(4)
    bed.units.tell(unit("gpu-9"))
    assert next(lists) == listed(("gpu-9", "Healthy", None))


def test_a_stream_that_the_kubelet_left_is_told(bed: Bed) -> None:
    lists = bed.client.watch()
    next(lists)
    assert (bed.service.streams, bed.ended) == (1, 0)
    lists.cancel()
    bed.until_ended(1)
    bed.units.until_waiting(0)
    assert bed.service.streams == 0


def test_streams_are_bounded_and_end_at_once(bed: Bed) -> None:
    streams = [bed.client.watch() for _ in range(STREAM_LIMIT + 1)]
    for lists in streams[1:]:
        next(lists)
    bed.until_ended(1)
    assert bed.service.streams == STREAM_LIMIT
    bed.service.end()
    bed.units.until_waiting(0)
    assert bed.service.streams == 0


def test_a_thousand_units_with_the_longest_ids_fit_into_one_message(bed: Bed) -> None:
    # 125 devices with 8 replicas each, each near two NUMA nodes.
    names = [
        f"{device:03d}-{share}".rjust(LONGEST_UNIT_ID, "x")
        for device in range(125)
        for share in range(8)
    ]
    bed.units.units = tuple(unit(name, numa=(0, 1)) for name in names)
    response = next(bed.client.watch())
    assert [device.ID for device in response.devices] == names
    assert response.ByteSize() == 84_000
    assert response.ByteSize() * 40 < GRPC_LIMIT_BYTES
    bed.work.answer = lambda: ContainerAnswer(
        cdi_ids=tuple(f"k8s.example.com/gpu={name}" for name in names)
    )
    assert bed.client.allocate(names).ByteSize() * 40 < GRPC_LIMIT_BYTES


# Allocate.


def test_every_part_of_an_answer_reaches_the_kubelet(bed: Bed) -> None:
    bed.work.answer = lambda: ContainerAnswer(
        env={"GPU": "0"},
        device_nodes=(
            DeviceNode("/dev/gpu0"),
            DeviceNode("/dev/gpu1", host_path="/dev/card1", permissions="rwm"),
        ),
        mounts=(Mount("/usr/lib/a", "/lib/a"), Mount("/run/a", "/run/b", ("rw", "bind"))),
        annotations={"cdi.k8s.io/a": "b"},
        cdi_ids=("example.com/gpu=0", "example.com/gpu=1"),
    )
    assert bed.client.allocate(["gpu-0", "gpu-1"]) == pb.AllocateResponse(
        container_responses=[
            pb.ContainerAllocateResponse(
                envs={"GPU": "0"},
                devices=[
                    pb.DeviceSpec(
                        container_path="/dev/gpu0", host_path="/dev/gpu0", permissions="rw"
                    ),
                    pb.DeviceSpec(
                        container_path="/dev/gpu1", host_path="/dev/card1", permissions="rwm"
                    ),
                ],
                mounts=[
                    pb.Mount(container_path="/lib/a", host_path="/usr/lib/a", read_only=True),
                    pb.Mount(container_path="/run/b", host_path="/run/a", read_only=False),
                ],
                annotations={"cdi.k8s.io/a": "b"},
                cdi_devices=[
                    pb.CDIDevice(name="example.com/gpu=0"),
                    pb.CDIDevice(name="example.com/gpu=1"),
                ],
            )
        ]
    )
    assert bed.work.asked == [("allocate", GPU, "gpu-0", "gpu-1")]


def test_each_container_of_a_call_has_its_own_answer(bed: Bed) -> None:
    answers = iter((ContainerAnswer(env={"A": "1"}), ContainerAnswer(env={"A": "2"})))
    bed.work.answer = lambda: next(answers)
    responses = bed.client.allocate(["gpu-0"], ["gpu-1"]).container_responses
    assert [dict(response.envs) for response in responses] == [{"A": "1"}, {"A": "2"}]
    assert bed.work.asked == [("allocate", GPU, "gpu-0"), ("allocate", GPU, "gpu-1")]


def test_a_refusal_reaches_the_kubelet_as_its_sentence(bed: Bed) -> None:
    bed.work.answer = lambda: Refusal("gpu-0 is used by a claim")
    assert refused(bed) == (grpc.StatusCode.FAILED_PRECONDITION, "gpu-0 is used by a claim")
    bed.work.answer = lambda: Refusal("")
    assert refused(bed) == (grpc.StatusCode.FAILED_PRECONDITION, "refused, without a reason")
    bed.work.answer = lambda: Refusal("\udc80" + "x" * 20_000)
    assert refused(bed)[1].startswith("\\udc80xxx")


def failing(error: Exception) -> Sequence[UnitId]:
    raise error


def test_an_error_says_who_must_act(bed: Bed) -> None:
    bed.work.answer = lambda: failing(Temporary("the disk is full"))  # type: ignore[return-value, assignment]
    with capture_logs() as logs:
        assert refused(bed) == (grpc.StatusCode.UNAVAILABLE, "the disk is full")
    assert logs == [
        {
            "event": "call_not_done",
            "log_level": "warning",
            "call": "Allocate",
            "resource": GPU,
            "units": ["gpu-0"],
            "error": "the disk is full",
        }
    ]
    bed.work.answer = lambda: failing(Permanent("wrong options"))  # type: ignore[return-value, assignment]
    assert refused(bed) == (grpc.StatusCode.FAILED_PRECONDITION, "wrong options")
    defect = KeyError("gpu-0")
    bed.work.answer = lambda: failing(defect)  # type: ignore[return-value, assignment]
    with capture_logs() as logs:
        assert refused(bed) == (
            grpc.StatusCode.INTERNAL,
            "internal error of the driver: KeyError: 'gpu-0'; its log has the details",
        )
    assert logs == [
        {
            "event": "internal_error",
            "log_level": "error",
            "call": "Allocate",
            "resource": GPU,
            "units": ["gpu-0"],
            "exc_info": defect,
        }
    ]


# Options, preference, and the start of a container.


@pytest.mark.parametrize("required", [True, False])
def test_the_options_say_what_the_driver_wants_to_be_asked(bed: Bed, required: bool) -> None:
    bed.work.pre_start_required = required
    options = pb.DevicePluginOptions(
        pre_start_required=required, get_preferred_allocation_available=True
    )
    assert bed.client.call("GetDevicePluginOptions", pb.Empty(), pb.DevicePluginOptions) == options
    assert bed.service.options() == options


def preferred(bed: Bed) -> list[str]:
    request = pb.PreferredAllocationRequest(
        container_requests=[
            pb.ContainerPreferredAllocationRequest(
                available_deviceIDs=["gpu-0", "gpu-1"],
                must_include_deviceIDs=["gpu-1"],
                allocation_size=2,
            )
        ]
    )
    answer = bed.client.call("GetPreferredAllocation", request, pb.PreferredAllocationResponse)
    assert len(answer.container_responses) == 1
    return list(answer.container_responses[0].deviceIDs)


def test_a_preference_is_passed_on(bed: Bed) -> None:
    bed.work.preferred = lambda: (UnitId("gpu-1"), UnitId("gpu-0"))
    assert preferred(bed) == ["gpu-1", "gpu-0"]
    assert bed.work.asked == [("prefer", GPU, ("gpu-0", "gpu-1"), ("gpu-1",), 2)]


def test_a_preference_that_fails_does_not_fail_the_pod(bed: Bed) -> None:
    defect = ZeroDivisionError()
    bed.work.preferred = lambda: failing(defect)
    with capture_logs() as logs:
        assert preferred(bed) == []
    assert logs == [
        {"event": "no_preference", "log_level": "error", "resource": GPU, "exc_info": defect}
    ]


def test_the_start_of_a_container_can_be_refused(bed: Bed) -> None:
    request = pb.PreStartContainerRequest(devices_ids=["gpu-0"])
    bed.client.call("PreStartContainer", request, pb.PreStartContainerResponse)
    bed.work.refuses = Refusal("gpu-0 is not clean")
    with pytest.raises(grpc.RpcError, match="gpu-0 is not clean") as error:
        bed.client.call("PreStartContainer", request, pb.PreStartContainerResponse)
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert bed.work.asked == [("pre_start", GPU, "gpu-0")] * 2
