# SPDX-License-Identifier: Apache-2.0
"""From NVIDIA's library to the program in a container: real pods on a node whose GPUs are a mock of the library and real device files."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dra_driver.model.names import NOT_CLEAN_TAINT
from hack.testbed.onenode.cluster import CTR, Cluster
from hack.testbed.onenode.driver import Driver
from hack.testbed.onenode.namespaces import wait_until
from tests.e2e.nvidia_machine import (
    DRIVER,
    IMAGE,
    PROGRAM,
    WANTS_ALL,
    GpuStory,
    NvidiaNode,
    hardware,
    request,
    selector,
    wait_for_setting,
)

pytestmark = [pytest.mark.real, pytest.mark.needs("DRADeviceTaints")]
GIB = 1 << 30
CONFIG = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
LONG = {
    **CONFIG,
    "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
}
CONTROL_FILES = {"/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"}


@pytest.fixture(scope="module")
def node(cluster: Cluster, installed_driver: Driver) -> Iterator[NvidiaNode]:
    """A node with GPUs of NVIDIA, and the driver on it; another driver is there too."""
    installed_driver.ensure_running()
    found = NvidiaNode(cluster, hardware())
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def story(node: NvidiaNode, installed_driver: Driver, request: pytest.FixtureRequest) -> Iterator[GpuStory]:
    """A namespace; afterwards nothing is prepared, nothing is set, and nothing is tainted."""
    words = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))
    begun = GpuStory(installed_driver, f"nvidia-{words[:45].strip('-')}")
    begun.begin()
    yield begun
    node.befalls()
    begun.end()
    wait_until(lambda: not node.prepared(), "the release of all claims")
    wait_for_setting(node, {})
    wait_until(node.is_whole, "all devices, without taints")


def numbered(minor: int) -> list[dict[str, Any]]:
    """Selectors for one GPU."""
    return selector(f"own.minor == {minor}")


# What a container sees.


def test_a_program_lists_exactly_the_gpu_of_its_claim(node: NvidiaNode, story: GpuStory) -> None:
    story.gpu_claim("one", request())
    story.gpu_pod("has-one", "one")
    story.gpu_pod("has-none")
    story.wait_ready("has-one", "has-none")

    [device] = story.given("one")
    assert story.lists("has-one") == [node.uuids[device]]
    minor = device.removeprefix("gpu-")
    assert story.device_files("has-one") == {f"/dev/nvidia{minor}", *CONTROL_FILES}
    assert "NVIDIA_VISIBLE_DEVICES=void" in story.shell("has-one", "env")
    # Whoever makes the file of another GPU cannot open it.
    other = (int(minor) + 1) % 4
    assert "not permitted" in opened(story, "has-one", other)
    assert "No such device" in opened(story, "has-one", int(minor))

    assert story.lists("has-none") == []
    assert story.device_files("has-none") == set()


def opened(story: GpuStory, pod: str, minor: int) -> str:
    """What comes of an attempt to open the device of a GPU, by a file that the container makes itself."""
    return story.shell(pod, f"mknod /made{minor} c 120 {minor}; : <> /made{minor}")


def test_variables_of_nvidias_runtime_give_no_gpu(node: NvidiaNode, story: GpuStory) -> None:
    wish = [
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"},
    ]
    story.gpu_pod("says-all", env=wish)
    story.gpu_pod("image-says-all", image=WANTS_ALL)
    story.gpu_claim("one", request())
    story.gpu_pod("has-one", "one", image=WANTS_ALL)
    story.wait_ready("says-all", "image-says-all", "has-one")
    for pod in ("says-all", "image-says-all"):
        assert story.device_files(pod) == set()
        assert story.lists(pod) == []
        for minor in range(8):
            assert "not permitted" in opened(story, pod, minor)
    assert story.lists("has-one") == [node.uuids[story.given("one")[0]]]


def test_two_gpus_are_in_the_order_of_the_pci_bus(node: NvidiaNode, story: GpuStory) -> None:
    story.gpu_claim("two", request("second", selectors=numbered(0)), request("first", selectors=numbered(2)))
    story.gpu_pod("pod", "two")
    story.wait_ready("pod")
    assert story.lists("pod") == [node.uuids["gpu-2"], node.uuids["gpu-0"]]
    given = re.findall('"path": "(/dev/nvidia[0-9]+)"', container_of(node, story, "pod"))
    assert given == ["/dev/nvidia2", "/dev/nvidia0"]


def container_of(node: NvidiaNode, story: GpuStory, pod: str) -> str:
    """What containerd knows of the pod's container."""
    [status] = story._object("pod", pod)["status"]["containerStatuses"]
    identity = status["containerID"].partition("//")[2]
    return node.cluster.output_of([*CTR, "containers", "info", identity])


def test_a_program_lists_exactly_its_mig_devices(node: NvidiaNode, story: GpuStory) -> None:
    small = selector("own.profile == '1g.5gb'")
    story.gpu_claim("part", request(kind="mig.nvidia.com", selectors=small))
    story.gpu_claim("parts", request(kind="mig.nvidia.com", selectors=small, allocationMode="ExactCount", count=3))
    story.gpu_pod("has-one", "part")
    story.gpu_pod("has-three", "parts")
    story.wait_ready("has-one", "has-three")
    [device] = story.given("part")
    assert story.lists("has-one")[-1:] == [node.uuids[device]]
    files = story.device_files("has-one") - CONTROL_FILES
    parent = f"/dev/nvidia{device.split('-')[1]}"
    assert {parent} == {file for file in files if "caps" not in file}
    assert len(files) == 3  # the GPU, its instance, and the compute instance in it
    three = story.given("parts")
    assert len(three) == 3
    found = [uuid for uuid in story.lists("has-three") if uuid.startswith("MIG-")]
    assert sorted(found) == sorted(node.uuids[name] for name in three)


def test_a_container_without_any_rights_opens_its_gpu(node: NvidiaNode, story: GpuStory) -> None:
    story.gpu_claim("one", request())
    nobody = {
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    story.gpu_pod("pod", "one", securityContext=nobody)
    story.wait_ready("pod")
    assert "uid=1000" in story.shell("pod", "id")
    assert story.lists("pod") == [node.uuids[story.given("one")[0]]]


# The hardware and its settings.


def test_a_time_slice_is_set_for_a_claim_and_put_back(node: NvidiaNode, story: GpuStory) -> None:
    before = len(node.journal())
    story.gpu_claim("slow", request(selectors=numbered(1)), config=LONG)
    story.gpu_claim("usual", request(selectors=numbered(3)), config=CONFIG)
    story.gpu_pod("pod", "slow")
    story.gpu_pod("other", "usual")
    story.wait_ready("pod", "other")
    uuid = node.uuids["gpu-1"]
    [(name, value)] = node.settings().items()
    assert name.endswith(uuid)
    assert value == 3
    story.delete_pod("pod")
    wait_for_setting(node, {})
    changes = [line for line in node.journal()[before:] if "time" in line]
    assert [line.split()[-2:] for line in changes] == [[uuid, "3"], [uuid, "0"]]


def test_a_config_that_the_hardware_has_no_answer_to_is_refused(
    node: NvidiaNode, story: GpuStory
) -> None:
    story.gpu_claim("shared", request(), config={**CONFIG, "sharing": {"strategy": "MPS"}})
    story.gpu_pod("pod", "shared")
    wait_until(lambda: "MPS" in story.events("pod"), "the reason among the pod's events")
    assert "NVIDIA's" in story.events("pod")
    assert node.settings() == {}


def test_a_process_that_stays_keeps_new_pods_away(node: NvidiaNode, story: GpuStory) -> None:
    story.gpu_claim("one", request(selectors=numbered(0)))
    story.gpu_pod("pod", "one")
    story.wait_ready("pod")
    [index] = [gpu.index for gpu in node.facts.gpus if gpu.minor == 0]
    node.befalls(f"{index} process pid=4711 memory={3 * GIB}")
    story.delete_pod("pod")
    story.delete_claim("one")
    wait_until(lambda: node.taints().get("gpu-0"), "a taint")
    assert node.prepared()  # the driver still holds it

    node.befalls(f"{index} set memory_used={3 * GIB}")  # the process has gone, its memory has not
    wait_until(lambda: node.taints().get("gpu-0") == [NOT_CLEAN_TAINT], "the taint not-clean")
    story.gpu_claim("next", request(selectors=numbered(0)))
    story.gpu_pod("waits", "next")
    assert "cannot allocate all claims" in story.why_pending("waits")

    node.befalls()
    story.wait_ready("waits")
    assert story.lists("waits") == [node.uuids["gpu-0"]]


def test_claims_are_served_while_the_hardware_hangs_or_is_gone(node: NvidiaNode, story: GpuStory) -> None:
    restarts = node.restarts()
    story.gpu_claim("before", request())
    story.gpu_pod("before", "before")
    story.wait_ready("before")
    node.befalls("3 fail function=nvmlDeviceGet* hang=1")
    begun = time.monotonic()
    for name in ("one", "other"):
        story.gpu_claim(name, request(selectors=selector("own.minor < 3")))
        story.gpu_pod(name, name)
    story.wait_ready("one", "other")
    took = time.monotonic() - begun
    assert took < 30, f"two pods took {took:.0f} s"
    assert story.lists("before") == [node.uuids[story.given("before")[0]]]
    wait_until(lambda: node.restarts() > restarts, "another hardware process", timeout_seconds=90)
    node.befalls()

    node.kill_hardware()
    story.delete_pod("before")
    story.delete_pod("one")
    wait_until(lambda: len(node.prepared()) == 1, "two released claims")


def test_an_xid_taints_its_gpu_until_it_has_proved_itself(node: NvidiaNode, story: GpuStory) -> None:
    [index] = [gpu.index for gpu in node.facts.gpus if gpu.minor == 1]
    node.befalls(f"{index} event id=1 type=8 data=119")
    wait_until(lambda: set(node.taints()) == {"gpu-1"}, "a taint of this GPU alone")
    node.befalls()
    wait_until(node.is_whole, "no taint any more", timeout_seconds=120)
    assert not node.prepared()
    del story


# The manifests of others.


def test_each_pod_of_a_template_has_a_gpu_of_its_own(node: NvidiaNode, story: GpuStory) -> None:
    story.apply_example("one-gpu-each")
    pods = story.wait_all_ready(2)
    found = [uuid for pod in pods for uuid in story.lists(pod, container="main")]
    given = story.claims_by_pod()
    assert found == [node.uuids[device] for pod in pods for device in given[pod]]
    assert len(set(found)) == 2


def test_containers_and_pods_share_the_gpu_of_one_claim(node: NvidiaNode, story: GpuStory) -> None:
    story.apply_example("two-containers")
    story.apply_example("two-pods")
    story.wait_all_ready(3)
    left, right = (story.lists("shares-within", container=name) for name in ("left", "right"))
    assert left == right == [node.uuids[story.claims_by_pod()["shares-within"][0]]]
    first, second = (story.lists(f"shares-{name}", container="main") for name in ("first", "second"))
    assert first == second == [node.uuids[story.given("one-gpu-for-two")[0]]]
    assert first != left


def test_each_of_four_pods_has_four_parts_of_one_gpu(node: NvidiaNode, story: GpuStory) -> None:
    story.apply_example("mig-of-one-gpu")
    pods = story.wait_all_ready(4)
    given = story.claims_by_pod()
    parents = [{device.partition("-mig-")[0] for device in given[pod]} for pod in pods]
    assert sorted(map(len, parents)) == [1, 1, 1, 1]
    assert len(set.union(*parents)) == 4
    seen = []
    for pod in pods:
        for container in ("small-0", "small-1", "medium", "large"):
            [uuid] = [one for one in story.lists(pod, container=container) if one.startswith("MIG-")]
            seen.append(uuid)
        assert set(seen[-4:]) == {node.uuids[device] for device in given[pod]}
    assert len(set(seen)) == 16
    story._kubectl("delete", "deployment", "four-parts-each")


def test_a_gpu_is_chosen_by_product_and_index(node: NvidiaNode, story: GpuStory) -> None:
    story.apply_example("product-and-index")
    story.wait_ready("takes-long-turns")
    first = node.facts.gpus[0].uuid
    for container in ("left", "right"):
        assert story.lists("takes-long-turns", container=container) == [first]
    assert list(node.settings().values()) == [3]


def test_a_gpu_and_a_part_are_extended_resources(node: NvidiaNode, story: GpuStory) -> None:
    story.apply_example("extended-resources")
    story.wait_all_ready(2)
    given = story.claims_by_pod()
    whole, part = given["asks-for-a-gpu"], given["asks-for-a-part"]
    assert story.lists("asks-for-a-gpu", container="main") == [node.uuids[whole[0]]]
    assert story.lists("asks-for-a-part", container="main")[-1:] == [node.uuids[part[0]]]
    assert "-mig-1g5gb-" in part[0]


def test_a_claim_can_have_devices_of_two_drivers(node: NvidiaNode, story: GpuStory) -> None:
    story.apply_example("two-drivers", **{"net_example_com": "gpu"})
    story.wait_ready("uses-two-drivers")
    [gpu] = story.claims_by_pod()["uses-two-drivers"]
    assert story.lists("uses-two-drivers", container="main") == [node.uuids[gpu]]
    seen = story.seen_by("uses-two-drivers", container="main")
    assert len(seen.devices) == 1  # the other driver's


# With the program of NVIDIA's container toolkit: last, because it stays.


def test_nvidias_hooks_make_the_rest(node: NvidiaNode, story: GpuStory) -> None:
    story.gpu_claim("before", request())
    story.gpu_pod("without", "before")
    story.wait_ready("without")
    assert "hooks" not in container_of(node, story, "without")
    node.gpus.install_hook()
    node.kill_hardware()  # it looks for the program at its start, and from time to time

    story.gpu_claim("one", request())
    story.gpu_pod("with", "one", securityContext={"runAsUser": 1000, "readOnlyRootFilesystem": True})
    story.wait_ready("with")
    assert "nvidia-cdi-hook" in container_of(node, story, "with")
    assert story.lists("with") == [node.uuids[story.given("one")[0]]]
    assert "libcuda.so.1" in story.shell("with", "cat /etc/ld.so.cache")


__all__ = ["DRIVER", "IMAGE", "PROGRAM"]
