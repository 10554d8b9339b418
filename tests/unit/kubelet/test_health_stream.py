# SPDX-License-Identifier: Apache-2.0
"""Health streams: what they send and when, how many there are, and how each one ends."""

from collections.abc import Iterator
from pathlib import Path
from threading import Condition
from typing import Any

import grpc
import pytest

from dra_driver.kubelet.health_stream import SERVICES, STREAM_LIMIT, TIMEOUT_SECONDS, HealthStream
from dra_driver.kubelet.pb import pluginregistration_v1_pb2
from dra_driver.kubelet.sockets import SocketServer, service, unary
from dra_driver.model.health import UNCHECKED, DeviceHealth, Health, HealthStatus
from dra_driver.model.ids import DeviceName, PoolName

HANG_SECONDS = 300
NEVER_SECONDS = 1000.0
SPARE_WORKERS = 2
DEVICES = 4000  # a report of 3.7 MB: more than a connection takes for a client that does not read
POOL = PoolName("node1")
ILL = Health(HealthStatus.UNHEALTHY, "XID 79")
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


def drain(reports: Any) -> None:
    """Read until the driver ended the stream: as cancelled, or without error where its worker was quicker."""
    try:
        for _ in reports:
            pass
    except grpc.RpcError:
        assert reports.code() is grpc.StatusCode.CANCELLED


class Feed:
    """A feed that the test moves; it counts who waits."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.version = 0
        self.waiting = 0
        self.timeouts: list[float] = []
        self.devices: tuple[DeviceHealth, ...] = (entry("gpu-0", UNCHECKED),)

    def snapshot(self) -> tuple[int, tuple[DeviceHealth, ...]]:
        with self.changed:
            return self.version, self.devices

    def wait(self, version: int, timeout: float) -> bool:
        with self.changed:
            self.timeouts.append(timeout)
            self.waiting += 1
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

    def tell(self, *devices: DeviceHealth) -> None:
        self.devices = devices
        self.wake()

    def until_waiting(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.waiting == count, HANG_SECONDS), self.waiting


def entry(name: str, health: Health) -> DeviceHealth:
    return DeviceHealth(POOL, DeviceName(name), health, 7)


class Bed:
    """One version of the service on a socket, with a unary method beside it."""

    def __init__(self, path: Path, name: str, resend_seconds: float = NEVER_SECONDS) -> None:
        self.path = path
        self.name = name
        self.pb: Any = SERVICES[name]
        self.feed = Feed()
        self.stream = HealthStream(name, self.feed, resend_seconds=resend_seconds)
        info = pluginregistration_v1_pb2
        ask = unary(lambda _request, _context: info.PluginInfo(name="here"), info.InfoRequest)
        handlers = [self.stream.handler(), service("a.Service", {"Ask": ask})]
        workers = STREAM_LIMIT + 1 + SPARE_WORKERS
        self.server = SocketServer(path, handlers, workers=workers, name="bed")
        self.channels: list[grpc.Channel] = []

    def open(self) -> Any:
        self.channels.append(grpc.insecure_channel(f"unix:{self.path}", options=OPTIONS))
        watch = self.channels[-1].unary_stream(
            f"/{self.name}/NodeWatchResources",
            request_serializer=self.pb.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=self.pb.NodeWatchResourcesResponse.FromString,
        )
        return watch(self.pb.NodeWatchResourcesRequest())

    def ask(self) -> str:
        with grpc.insecure_channel(f"unix:{self.path}", options=OPTIONS) as channel:
            call = channel.unary_unary(
                "/a.Service/Ask",
                request_serializer=bytes,
                response_deserializer=pluginregistration_v1_pb2.PluginInfo.FromString,
            )
            answer: Any = call(b"", timeout=HANG_SECONDS)
            name: str = answer.name
            return name

    def report(self, *devices: tuple[str, int, str]) -> Any:
        return self.pb.NodeWatchResourcesResponse(
            devices=[
                self.pb.DeviceHealth(
                    device=self.pb.DeviceIdentifier(pool_name=POOL, device_name=name),
                    health=health,
                    last_updated_time=7,
                    health_check_timeout_seconds=TIMEOUT_SECONDS,
                    message=message,
                )
                for name, health, message in devices
            ]
        )

    def close(self) -> None:
        for channel in self.channels:
            channel.close()
        self.stream.end()
        self.server.stop(0)


@pytest.fixture(params=sorted(SERVICES))
def bed(root: Path, request: pytest.FixtureRequest) -> Iterator[Bed]:
    found = Bed(root / "dra.sock", request.param)
    found.server.start()
    yield found
    found.close()


def test_a_stream_sends_everything_at_first_and_at_each_change(bed: Bed) -> None:
    reports = bed.open()
    assert next(reports) == bed.report(("gpu-0", bed.pb.UNKNOWN, UNCHECKED.message))
    bed.feed.tell(entry("gpu-0", ILL), entry("gpu-1", Health(HealthStatus.HEALTHY)))
    assert next(reports) == bed.report(
        ("gpu-0", bed.pb.UNHEALTHY, "XID 79"), ("gpu-1", bed.pb.HEALTHY, "")
    )
    bed.feed.tell()
    assert next(reports) == bed.report()
    bed.feed.until_waiting(1)
    assert bed.feed.timeouts == [NEVER_SECONDS] * 3


def test_a_stream_repeats_itself_before_the_kubelet_would_forget(root: Path) -> None:
    bed = Bed(root / "dra.sock", "v1.DRAResourceHealth", resend_seconds=0.001)
    bed.server.start()
    reports = bed.open()
    assert [len(next(reports).devices) for _ in range(3)] == [1, 1, 1]
    bed.close()
    assert HealthStream("v1.DRAResourceHealth", bed.feed)._resend_seconds < TIMEOUT_SECONDS / 2


def test_a_client_that_leaves_frees_its_stream(bed: Bed) -> None:
    reports = bed.open()
    next(reports)
    bed.feed.until_waiting(1)
    assert bed.stream.streams == 1
    reports.cancel()
    bed.feed.until_waiting(0)
    assert bed.stream.streams == 0


def test_one_stream_too_many_ends_the_oldest(bed: Bed) -> None:
    streams = [bed.open() for _ in range(1)]
    next(streams[0])
    for _ in range(STREAM_LIMIT):
        streams.append(bed.open())
        next(streams[-1])
    drain(streams[0])
    bed.feed.until_waiting(STREAM_LIMIT)
    assert bed.stream.streams == STREAM_LIMIT
    bed.feed.tell(entry("gpu-9", ILL))
    for reports in streams[1:]:
        # Ending a stream wakes the others, so some say once more what they said before.
        names = (report.devices[0].device.device_name for report in reports)
        assert next(name for name in names if name == "gpu-9")


@pytest.mark.parametrize("count", [16, 40])
def test_streams_that_nobody_reads_leave_workers_for_other_calls(bed: Bed, count: int) -> None:
    # Large reports, so that each worker is soon stuck in sending: nothing but cancelling the call frees it.
    message = Health(HealthStatus.UNKNOWN, "x" * 900)
    bed.feed.devices = tuple(entry(f"gpu-{index}", message) for index in range(DEVICES))
    unread = []  # kept, since gRPC cancels a call that nobody refers to
    for _ in range(count):
        unread.append(bed.open())
        bed.feed.wake()
    assert bed.ask() == "here"
    newest = bed.open()
    assert len(next(newest).devices) == DEVICES
    assert bed.ask() == "here"
    assert bed.stream.streams <= STREAM_LIMIT
    assert len(unread) == count


def test_the_end_comes_at_once_for_all_and_for_those_to_come(bed: Bed) -> None:
    streams = [bed.open() for _ in range(3)]
    for reports in streams:
        next(reports)
    bed.stream.end()
    for reports in (*streams, bed.open()):
        drain(reports)
    bed.feed.until_waiting(0)
    assert bed.stream.streams == 0
