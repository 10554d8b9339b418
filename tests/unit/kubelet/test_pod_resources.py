# SPDX-License-Identifier: Apache-2.0
"""When an answer of the kubelet's pod-resources counts, and what it says."""

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from dra_driver.errors import Temporary
from dra_driver.kubelet.pb import podresources_v1_pb2 as pb
from dra_driver.kubelet.pod_resources import (
    PodResources,
    allocatable,
    container_uses,
    plugin_devices,
)
from dra_driver.kubelet.sockets import SocketServer, service, unary
from dra_driver.model.ids import (
    DeviceKey,
    DeviceName,
    DriverName,
    PoolName,
    ResourceName,
    ShareId,
    UnitId,
)
from dra_driver.model.plugin import PodUnits
from dra_driver.model.state import PodDevice, Unknown
from dra_driver.model.usage import ContainerUse
from dra_driver.testing.fake_kubelet import FakeKubelet
from tests.support.plugin_calls import GPU, unit
from tests.support.plugins import BarePlugin


class Kubelet:
    """A pod-resources server that says what the test wants."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.response = pb.ListPodResourcesResponse()
        self.fails = False
        methods = {"List": unary(self.answer, pb.ListPodResourcesRequest)}
        handlers = [service("v1.PodResourcesLister", methods)]
        self.server = SocketServer(socket, handlers, workers=1, name="pods")

    def answer(
        self, _request: pb.ListPodResourcesRequest, context: grpc.ServicerContext
    ) -> pb.ListPodResourcesResponse:
        if self.fails:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        return self.response

    def holds(self, *devices: pb.ClaimResource) -> None:
        claim = pb.DynamicResource(
            claim_name="one", claim_namespace="default", claim_resources=devices
        )
        container = pb.ContainerResources(name="main", dynamic_resources=[claim])
        plain = pb.ContainerResources(name="side", cpu_ids=[1, 2])
        pod = pb.PodResources(name="a", namespace="default", containers=[plain, container])
        self.response = pb.ListPodResourcesResponse(pod_resources=[pod])


@pytest.fixture
def kubelet(root: Path) -> Iterator[Kubelet]:
    found = Kubelet(root / "kubelet.sock")
    found.server.start()
    yield found
    found.server.stop(0)


def unavailable() -> str:
    raise Temporary("the API server does not answer")


def test_every_device_of_every_driver_is_named(kubelet: Kubelet) -> None:
    kubelet.holds(
        pb.ClaimResource(
            cdi_devices=[pb.CDIDevice(name="a/b=c"), pb.CDIDevice(name="a/b=d")],
            driver_name="gpu.example.com",
            pool_name="node1",
            device_name="gpu-0",
            share_id="s-1",
        ),
        pb.ClaimResource(driver_name="nic.example.com", pool_name="node1", device_name="nic-0"),
    )
    assert PodResources(kubelet.socket, lambda: "")() == frozenset(
        {
            PodDevice(
                *("default", "one", DriverName("gpu.example.com"), PoolName("node1")),
                *(DeviceName("gpu-0"), ShareId("s-1"), ("a/b=c", "a/b=d")),
            ),
            PodDevice(
                *("default", "one", DriverName("nic.example.com"), PoolName("node1")),
                DeviceName("nic-0"),
            ),
        }
    )


@pytest.mark.parametrize("version", ["v1.34.0", "1.35.1", "v1.36.0-rc.1", "v1.37.1+k3s1", "v2.0.0"])
def test_no_claims_from_a_kubelet_that_lists_them_means_none(
    kubelet: Kubelet, version: str
) -> None:
    assert PodResources(kubelet.socket, lambda: version)() == frozenset()


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        (lambda: "v1.33.9", "v1.33.9"),
        (lambda: "v1.4.0", "v1.4.0"),
        (lambda: "v0.99.0", "v0.99.0"),
        (lambda: "canary", "canary"),
        (lambda: "", "version unknown"),
        (unavailable, "version unknown"),
    ],
)
def test_no_claims_from_any_other_kubelet_mean_nothing(
    kubelet: Kubelet, version: Callable[[], str], shown: str
) -> None:
    # A pod without claims in the answer is no proof either.
    kubelet.response.pod_resources.add(name="a", namespace="default")
    assert PodResources(kubelet.socket, version)() == Unknown(
        f"this kubelet ({shown}) does not list claims; 1.34 and newer do"
    )


def test_a_kubelet_that_named_a_claim_once_is_believed_ever_after(kubelet: Kubelet) -> None:
    ask = PodResources(kubelet.socket, lambda: "v1.33.0")  # with the feature gate turned on
    assert isinstance(ask(), Unknown)
    kubelet.holds(pb.ClaimResource(driver_name="nic.example.com"))
    assert isinstance(ask(), frozenset)
    kubelet.response = pb.ListPodResourcesResponse()
    assert ask() == frozenset()


def test_a_call_that_fails_is_unknown_and_the_next_one_counts(kubelet: Kubelet) -> None:
    ask = PodResources(kubelet.socket, lambda: "v1.37.0")
    kubelet.fails = True
    assert ask() == Unknown(
        f"the kubelet did not answer on {kubelet.socket}: RESOURCE_EXHAUSTED: “rejected by rate limit”"
    )
    kubelet.fails = False
    assert ask() == frozenset()


def test_more_pods_than_grpc_takes_by_default_are_read(kubelet: Kubelet) -> None:
    kubelet.response.pod_resources.extend(
        pb.PodResources(name="x" * 1000, namespace="default") for _ in range(6000)
    )
    assert PodResources(kubelet.socket, lambda: "v1.37.0")() == frozenset()


def test_a_socket_that_is_not_there_is_named(root: Path) -> None:
    hint = "is the kubelet running and --pod-resources-socket right?"
    none, odd = root / "kubelet.sock", root / ("x" * 300)
    assert PodResources(none, lambda: "v1.37.0")() == Unknown(
        f"no socket {none}: No such file or directory; {hint}"
    )
    assert PodResources(odd, lambda: "v1.37.0")() == Unknown(
        f"no socket {odd}: File name too long; {hint}"
    )


def test_a_socket_without_a_kubelet_is_unknown(kubelet: Kubelet, root: Path) -> None:
    dead = root / "dead.sock"
    kubelet.socket.rename(dead)
    kubelet.server.stop(0)
    held = PodResources(dead, lambda: "v1.37.0")()
    assert isinstance(held, Unknown)
    assert held.reason.startswith(f"the kubelet did not answer on {dead}: UNAVAILABLE: ")


# What device plugins offer.


def test_devices_of_device_plugins_are_counted_by_resource(root: Path) -> None:
    kubelet = FakeKubelet(root)
    try:
        assert allocatable(kubelet.pod_resources_socket) == {}
        kubelet.device_plugins = {"nvidia.com/gpu": ("GPU-1", "GPU-2"), "amd.com/gpu": ("0",)}
        assert allocatable(kubelet.pod_resources_socket) == {"nvidia.com/gpu": 2, "amd.com/gpu": 1}
    finally:
        kubelet.close()


def test_a_kubelet_that_cannot_be_asked_for_them_is_unknown(kubelet: Kubelet, root: Path) -> None:
    assert allocatable(root / "none.sock") == Unknown(
        f"no socket {root}/none.sock: No such file or directory; is the kubelet running and --pod-resources-socket right?"
    )
    found = allocatable(kubelet.socket)  # an old one, which does not know the question
    assert isinstance(found, Unknown)
    assert found.reason.startswith(
        f"the kubelet did not answer on {kubelet.socket}: UNIMPLEMENTED: "
    )


# Which pod has which units of device plugins.


def test_the_units_of_each_container_and_resource_are_named(root: Path) -> None:
    kubelet = FakeKubelet(root)
    gpu = BarePlugin(kubelet, "gpu.sock", "gpu-0")
    nic = BarePlugin(kubelet, "nic.sock", "nic-0", resource=ResourceName("other.com/nic"))
    try:
        assert plugin_devices(kubelet.pod_resources_socket) == frozenset()
        gpu.units.units = (unit("gpu-0", numa=(0, 1)), unit("gpu-1"), unit("gpu-2"))
        gpu.register()
        nic.register()
        kubelet.admit("default/a", {"main": {GPU: 2, "other.com/nic": 1}, "side": {GPU: 1}})
        assert plugin_devices(kubelet.pod_resources_socket) == {
            PodUnits("default", "a", "main", GPU, frozenset(map(UnitId, ("gpu-0", "gpu-1")))),
            PodUnits(
                *("default", "a", "main", ResourceName("other.com/nic")),
                frozenset({UnitId("nic-0")}),
            ),
            PodUnits("default", "a", "side", GPU, frozenset({UnitId("gpu-2")})),
        }
        kubelet.force_delete("default/a")
        assert plugin_devices(kubelet.pod_resources_socket) == frozenset()
    finally:
        kubelet.close()
        gpu.close()
        nic.close()


def test_without_a_kubelet_nobody_knows_the_units(root: Path) -> None:
    found = plugin_devices(root / "none.sock")
    assert isinstance(found, Unknown)
    assert found.reason.startswith(f"no socket {root}/none.sock: No such file or directory; ")


def test_containers_are_named_with_what_they_have(kubelet: Kubelet) -> None:
    device = pb.ClaimResource(
        driver_name="d", pool_name="node-1", device_name="gpu-0", share_id="s1"
    )
    kubelet.holds(device)
    units = pb.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["a", "b"])
    kubelet.response.pod_resources[0].containers[0].devices.append(units)
    key = DeviceKey(PoolName("node-1"), DeviceName("gpu-0"), ShareId("s1"))
    assert container_uses(kubelet.socket) == (
        ContainerUse(
            "default",
            "a",
            "side",
            resource=ResourceName("nvidia.com/gpu"),
            units=frozenset({UnitId("a"), UnitId("b")}),
        ),
        ContainerUse("default", "a", "main", claim="one", device=key),
    )


def test_without_a_kubelet_nobody_knows_the_containers(root: Path) -> None:
    found = container_uses(root / "none.sock")
    assert isinstance(found, Unknown)
    assert "none.sock" in found.reason
