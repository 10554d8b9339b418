# SPDX-License-Identifier: Apache-2.0
"""The driver's sockets and a kubelet's side of them, over real unix sockets."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Condition

import grpc
import pytest
import structlog

from dra_driver.errors import Fatal
from dra_driver.kubelet.health_stream import SERVICES, STREAM_LIMIT
from dra_driver.kubelet.pb import dra_health_v1_pb2 as health_pb
from dra_driver.kubelet.pb import grpc_health_v1_pb2 as check_pb
from dra_driver.kubelet.pod_resources import PodResources
from dra_driver.kubelet.server import KubeletServer, KubeletSockets
from dra_driver.kubelet.sockets import SocketServer
from dra_driver.model.claim import ClaimRef
from dra_driver.model.health import UNCHECKED, DeviceHealth, Health, HealthStatus
from dra_driver.model.ids import ClaimUid, DeviceName, DriverName, PoolName, ShareId
from dra_driver.model.plan import Refusal
from dra_driver.model.state import PodDevice, PreparedDevice, Unknown
from dra_driver.testing.fake_kubelet import FakeKubelet, KubeletError

DRIVER = DriverName("gpu.dra-driver.dev")
POOL = PoolName("node1")
REF = ClaimRef("default", "one", ClaimUid("11111111-aaaa"))
OTHER = ClaimRef("default", "two", ClaimUid("22222222-bbbb"))
NO_PROXY = (("grpc.use_local_subchannel_pool", 1),)
LONG = 30


class Feed:
    """A health feed that the test moves."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.version = 0
        self.devices: tuple[DeviceHealth, ...] = (
            DeviceHealth(POOL, DeviceName("gpu-0"), UNCHECKED, 7),
        )

    def snapshot(self) -> tuple[int, tuple[DeviceHealth, ...]]:
        with self.changed:
            return self.version, self.devices

    def wait(self, version: int, timeout: float) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.version != version, timeout)

    def wake(self) -> None:
        with self.changed:
            self.version += 1
            self.changed.notify_all()


class Service:
    """Answers claims the way the test says."""

    def __init__(self) -> None:
        self.prepared: list[ClaimRef] = []
        self.unprepared: list[ClaimRef] = []
        self.refused: dict[ClaimUid, str] = {}
        self.crash = False

    def prepare(
        self, refs: Sequence[ClaimRef], *, until: float | None = None
    ) -> dict[ClaimUid, tuple[PreparedDevice, ...] | Refusal]:
        if self.crash:
            raise ZeroDivisionError("a fault in the driver")
        self.prepared += refs
        return {
            ref.uid: Refusal(self.refused[ref.uid])
            if ref.uid in self.refused
            else (device_of(ref),)
            for ref in refs
        }

    def unprepare(
        self, refs: Sequence[ClaimRef], *, until: float | None = None
    ) -> dict[ClaimUid, Refusal | None]:
        if self.crash:
            raise ZeroDivisionError("a fault in the driver")
        self.unprepared += refs
        return {
            ref.uid: Refusal(self.refused[ref.uid]) if ref.uid in self.refused else None
            for ref in refs
        }


def device_of(ref: ClaimRef) -> PreparedDevice:
    return PreparedDevice(
        ("gpu",),
        POOL,
        DeviceName("gpu-0"),
        (f"k8s.{DRIVER}/claim={ref.uid}-gpu-0",),
        "GPU-1",
        ShareId("share-1"),
    )


class Node:
    """A server, its service and its feed, and where its kubelet looks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.service = Service()
        self.feed = Feed()
        self.wrong: tuple[str, ...] = ()
        self.sockets = KubeletSockets(
            root / "plugins" / DRIVER / "dra.sock", root / "plugins_registry" / f"{DRIVER}-reg.sock"
        )
        self.server = KubeletServer(
            self.sockets,
            driver=DRIVER,
            calls=(self.service.prepare, self.service.unprepare),
            feed=self.feed,
            checks={"": lambda: self.wrong},
            log=structlog.get_logger(),
        )

    def open_stream(self, service: str) -> "grpc.Call":
        channel = grpc.insecure_channel(f"unix:{self.sockets.endpoint}", options=NO_PROXY)
        watch = channel.unary_stream(
            f"/{service}/NodeWatchResources",
            request_serializer=bytes,
            response_deserializer=health_pb.NodeWatchResourcesResponse.FromString,
        )
        return watch(b"")


@pytest.fixture
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(
        dir="/tmp"
    ) as root:  # pytest's own folders are too long for sockets
        found = Node(Path(root))
        found.server.start()
        yield found
        found.server.stop(0)


@pytest.fixture
def kubelet(node: Node) -> Iterator[FakeKubelet]:
    found = FakeKubelet(node.root)
    yield found
    found.close()


@pytest.mark.parametrize(
    ("version", "service"),
    [
        ("1.32", "v1beta1.DRAPlugin"),
        ("1.33", "v1beta1.DRAPlugin"),
        ("1.34", "v1.DRAPlugin"),
        ("1.37", "v1.DRAPlugin"),
    ],
)
def test_each_kubelet_gets_the_service_that_it_knows(
    node: Node, version: str, service: str
) -> None:
    kubelet = FakeKubelet(node.root, version=version)
    plugin = kubelet.register(DRIVER)
    assert plugin is not None
    assert (plugin.name, plugin.endpoint, plugin.service) == (
        DRIVER,
        str(node.sockets.endpoint),
        service,
    )
    assert node.server.registrar.registered
    (device,) = kubelet.prepare(DRIVER, [REF])[REF.uid]
    assert (list(device.request_names), device.pool_name, device.device_name) == (
        ["gpu"],
        POOL,
        "gpu-0",
    )
    assert list(device.cdi_device_ids) == [f"k8s.{DRIVER}/claim={REF.uid}-gpu-0"]
    assert getattr(device, "share_id", "") == ("share-1" if service == "v1.DRAPlugin" else "")
    kubelet.unprepare(DRIVER, [REF])
    assert node.service.unprepared == [REF]
    kubelet.close()


def test_a_refused_claim_costs_only_its_own_entry(node: Node, kubelet: FakeKubelet) -> None:
    node.service.refused[OTHER.uid] = "device gpu-0 is prepared for claim default/one"
    with pytest.raises(
        KubeletError,
        match="failed for ResourceClaim two: device gpu-0 is prepared for claim default/one",
    ):
        kubelet.prepare(DRIVER, [REF, OTHER])
    assert node.service.prepared == [REF, OTHER]
    with pytest.raises(
        KubeletError, match="NodeUnprepareResources failed for ResourceClaim two: device gpu-0"
    ):
        kubelet.unprepare(DRIVER, [OTHER])


def test_a_fault_of_the_driver_becomes_an_entry_for_each_claim(
    node: Node, kubelet: FakeKubelet
) -> None:
    node.service.crash = True
    with pytest.raises(
        KubeletError,
        match="ResourceClaim one: internal error of the driver: ZeroDivisionError: a fault",
    ):
        kubelet.prepare(DRIVER, [REF])
    with pytest.raises(
        KubeletError,
        match="ResourceClaim one: internal error of the driver: ZeroDivisionError: a fault",
    ):
        kubelet.unprepare(DRIVER, [REF])


def test_a_kubelet_that_refuses_is_heard(node: Node, kubelet: FakeKubelet) -> None:
    kubelet.refuses = "no room for another driver"
    with pytest.raises(KubeletError, match="no room for another driver") as refusal:
        kubelet.register(DRIVER)
    assert isinstance(refusal.value.__cause__, grpc.RpcError)
    assert not node.server.registrar.registered
    assert node.server.registrar.reason == (
        "the kubelet refused the registration: no room for another driver"
    )
    kubelet.refuses = ""
    assert kubelet.register(DRIVER) is not None
    assert node.server.registrar.registered


def test_a_removed_registration_socket_comes_back(node: Node, kubelet: FakeKubelet) -> None:
    assert not node.server.registrar.ensure()
    node.sockets.registration.unlink()
    assert kubelet.register(DRIVER) is None
    assert node.server.registrar.ensure()
    assert kubelet.register(DRIVER) is not None


@pytest.mark.parametrize("streams", [16, 40])
def test_abandoned_health_streams_never_starve_a_prepare(
    node: Node, kubelet: FakeKubelet, streams: int
) -> None:
    calls = [node.open_stream(name) for _ in range(streams) for name in SERVICES]
    for call in calls[-2 * STREAM_LIMIT :]:
        assert next(call).devices[0].device.device_name == "gpu-0"
    assert kubelet.prepare(DRIVER, [REF])[REF.uid]
    for stream in node.server._streams:
        assert stream.streams <= STREAM_LIMIT + 1


def test_the_health_stream_says_what_changed(node: Node, kubelet: FakeKubelet) -> None:
    kubelet.register(DRIVER)
    reports = kubelet.health(DRIVER)
    first = next(reports).devices[0]
    assert (first.health, first.message, first.last_updated_time) == (
        health_pb.UNKNOWN,
        UNCHECKED.message,
        7,
    )
    assert first.health_check_timeout_seconds == 30
    ill = Health(HealthStatus.UNHEALTHY, "XID 79")
    node.feed.devices = (DeviceHealth(POOL, DeviceName("gpu-0"), ill, 8),)
    node.feed.wake()
    second = next(reports).devices[0]
    assert (second.health, second.message, second.last_updated_time) == (
        health_pb.UNHEALTHY,
        "XID 79",
        8,
    )
    reports.close()


def test_the_end_of_the_server_ends_streams_and_removes_sockets(node: Node) -> None:
    call = node.open_stream("v1.DRAResourceHealth")
    next(call)
    node.server.stop(LONG)
    with pytest.raises((grpc.RpcError, StopIteration)):
        next(call)
    assert not node.sockets.endpoint.exists()
    assert not node.sockets.registration.exists()


def test_the_health_check_follows_the_checks(node: Node) -> None:
    channel = grpc.insecure_channel(f"unix:{node.sockets.endpoint}", options=NO_PROXY)
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=check_pb.HealthCheckRequest.SerializeToString,
        response_deserializer=check_pb.HealthCheckResponse.FromString,
    )
    assert check(check_pb.HealthCheckRequest()).status == check_pb.HealthCheckResponse.SERVING
    node.wrong = ("not registered",)
    assert check(check_pb.HealthCheckRequest()).status == check_pb.HealthCheckResponse.NOT_SERVING
    with pytest.raises(grpc.RpcError, match="services are"):
        check(check_pb.HealthCheckRequest(service="other"))
    channel.close()


def test_a_server_that_is_gone_does_not_answer_its_own_question(node: Node) -> None:
    assert node.server.unanswered() == ()
    node.server.registrar.stop(0)
    (wrong,) = node.server.unanswered()
    assert str(node.sockets.registration) in wrong


def test_a_stale_socket_of_a_killed_process_is_replaced(node: Node) -> None:
    # The path exists; a second server takes it over, and the first one leaves it alone when it ends.
    second = SocketServer(node.sockets.endpoint, [], workers=1, name="second")
    second.start()
    node.server.stop(0)
    assert second.is_there()
    second.stop(0)
    assert not node.sockets.endpoint.exists()


def test_a_socket_path_that_no_kernel_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match="longer than 107 bytes; shorten --driver-name"):
        SocketServer(tmp_path / ("x" * 100) / "dra.sock", [], workers=1, name="long")


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Fatal, match=r"cannot listen on .*/file/dra\.sock"):
        SocketServer(tmp_path / "file" / "dra.sock", [], workers=1, name="none").start()


def test_pod_resources_name_the_claims_of_pods(node: Node, kubelet: FakeKubelet) -> None:
    kubelet.prepare(DRIVER, [REF], pod="default/a")
    held = PodResources(kubelet.pod_resources_socket, lambda: "v1.37.1")()
    cdi = (f"k8s.{DRIVER}/claim={REF.uid}-gpu-0",)
    assert held == frozenset(
        {PodDevice("default", "one", DRIVER, POOL, DeviceName("gpu-0"), ShareId("share-1"), cdi)}
    )


@pytest.mark.parametrize(
    ("version", "trusted"), [("v1.34.0", True), ("v1.33.9", False), ("", False), ("odd", False)]
)
def test_an_empty_answer_counts_only_from_a_kubelet_that_lists_claims(
    node: Node, kubelet: FakeKubelet, version: str, trusted: bool
) -> None:
    held = PodResources(kubelet.pod_resources_socket, lambda: version)()
    assert isinstance(held, frozenset) is trusted
    if isinstance(held, Unknown):
        assert "does not list claims" in held.reason


def test_a_kubelet_that_named_a_claim_once_lists_claims(node: Node, kubelet: FakeKubelet) -> None:
    ask = PodResources(kubelet.pod_resources_socket, lambda: "")
    kubelet.prepare(DRIVER, [REF])
    assert ask()
    kubelet.unprepare(DRIVER, [REF])
    assert ask() == frozenset()


def test_a_kubelet_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    held = PodResources(tmp_path / "kubelet.sock", lambda: "v1.37.0")()
    assert isinstance(held, Unknown)
    assert "no socket" in held.reason
    (tmp_path / "kubelet.sock").write_text("not a socket")
    held = PodResources(tmp_path / "kubelet.sock", lambda: "v1.37.0")()
    assert isinstance(held, Unknown)
    assert "did not answer" in held.reason
