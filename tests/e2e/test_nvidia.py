# SPDX-License-Identifier: Apache-2.0
"""From NVIDIA's library to the program in a container: real pods on a node whose GPUs are a mock of the library and real device files."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dra_driver.backends.nvidia.facts import Process
from dra_driver.model.names import HELD_TAINT, NOT_CLEAN_TAINT, XID_TAINT
from dra_driver.testing.nvml.kernel_files import LOCAL_MAJORS
from hack.testbed.onenode.cluster import CTR, Cluster
from hack.testbed.onenode.driver import Driver
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.nvidia import HOOK_PATH
from tests.e2e.nvidia_machine import (
    SECONDS,
    WANTS_ALL,
    GpuStory,
    NvidiaNode,
    hardware,
    request,
    selector,
    wait_for_settings,
)

pytestmark = [pytest.mark.real, pytest.mark.needs("DRADeviceTaints")]
GIB = 1 << 30
LOOK_SECONDS = 1.5  # for a look at the hardware; nobody sees from outside that one has ended
CONFIG = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
LONG = {
    **CONFIG,
    "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}},
}
CONTROL_FILES = {
    "/dev/nvidiactl",
    "/dev/nvidia-modeset",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
}


@pytest.fixture(scope="module")
def node(cluster: Cluster, installed_driver: Driver) -> Iterator[NvidiaNode]:
    """A node with GPUs of NVIDIA, and the driver on it; another driver is there too."""
    installed_driver.ensure_running()
    found = NvidiaNode(cluster, hardware())
    try:
        found.start()
        yield found
        wait_until(
            lambda: not found.prepared(), "the release of all claims", timeout_seconds=SECONDS
        )
        wait_for_settings(found, {})
    finally:
        found.stop()


@pytest.fixture
def story(
    node: NvidiaNode, installed_driver: Driver, request: pytest.FixtureRequest
) -> Iterator[GpuStory]:
    """A namespace. What is left of it is waited for after the last test."""
    words = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))
    begun = GpuStory(installed_driver, f"nvidia-{words[:45].strip('-')}")
    begun.begin()
    yield begun
    node.control.clear()
    begun.leave()


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
    others = [number for number in range(8) if number != int(minor)]
    assert opened(story, "has-one", *others).count("not permitted") == len(others)
    assert "No such device" in opened(story, "has-one", int(minor))

    assert story.lists("has-none") == []
    assert story.device_files("has-none") == set()


def opened(story: GpuStory, pod: str, *minors: int) -> str:
    """What comes of attempts to open the devices of GPUs, by files that the container makes itself."""
    listed = " ".join(map(str, minors))
    tries = (
        f"for m in {listed}; do mknod /made$m c {LOCAL_MAJORS.nvidia} $m; ( : <> /made$m ); done"
    )
    return story.shell(pod, tries)


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
        assert opened(story, pod, *range(8)).count("not permitted") == 8
    assert story.lists("has-one") == [node.uuids[story.given("one")[0]]]


def test_two_gpus_are_in_the_order_of_the_pci_bus(node: NvidiaNode, story: GpuStory) -> None:
    story.gpu_claim(
        "two", request("second", selectors=numbered(0)), request("first", selectors=numbered(2))
    )
    story.gpu_pod("pod", "two")
    story.wait_ready("pod")
    assert story.lists("pod") == [node.uuids["gpu-2"], node.uuids["gpu-0"]]


def container_of(node: NvidiaNode, story: GpuStory, pod: str) -> str:
    """What containerd knows of the pod's container."""
    [status] = story._object("pod", pod)["status"]["containerStatuses"]
    identity = status["containerID"].partition("//")[2]
    return node.cluster.output_of([*CTR, "containers", "info", identity])


def test_a_program_lists_exactly_its_mig_devices(node: NvidiaNode, story: GpuStory) -> None:
    small = selector("own.profile == '1g.5gb'")
    story.gpu_claim("part", request(kind="mig.nvidia.com", selectors=small))
    story.gpu_claim(
        "parts",
        request(kind="mig.nvidia.com", selectors=small, allocationMode="ExactCount", count=3),
    )
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
    before = len(node.control.journal())
    story.gpu_claim("slow", request(selectors=numbered(1)), config=LONG)
    story.gpu_claim("usual", request(selectors=numbered(3)), config=CONFIG)
    story.gpu_pod("pod", "slow")
    story.gpu_pod("other", "usual")
    story.wait_ready("pod", "other")
    assert node.settings() == {"gpu-1": {"time slice": 3}}
    story.delete_pod("pod")
    wait_for_settings(node, {})
    uuid = node.uuids["gpu-1"]
    told = [line for line in node.control.journal()[before:] if line.startswith("time-slice")]
    assert told == [f"time-slice {uuid} 3", f"time-slice {uuid} 0"]


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
    index = node.index_of("gpu-0")
    node.control.add_process(index, Process(pid=4711, used_memory=3 * GIB))
    story.delete_pod("pod")
    story.delete_claim("one")
    node.wait(lambda: node.taints().get("gpu-0") == [HELD_TAINT], "the taint held", "gpu-0")

    node.control.set(index, memory_used=3 * GIB)
    node.control.remove_process(4711)  # it has gone, and its memory is not free
    node.wait(lambda: node.taints().get("gpu-0") == [NOT_CLEAN_TAINT], "not-clean", "gpu-0")
    story.gpu_claim("next", request(selectors=numbered(0)))
    story.gpu_pod("waits", "next")
    assert "cannot allocate all claims" in story.why_pending("waits")

    node.control.clear()
    node.wait(lambda: "gpu-0" not in node.taints(), "no taint any more", "gpu-0")
    story.wait_ready("waits")
    assert story.lists("waits") == [node.uuids["gpu-0"]]


def test_an_xid_taints_its_gpu_until_it_has_proved_itself(
    node: NvidiaNode, story: GpuStory
) -> None:
    node.control.xid(node.index_of("gpu-1"), 119)
    wait_until(lambda: XID_TAINT in node.taints().get("gpu-1", ()), "the taint of the XID")
    assert set(node.taints()) == {"gpu-1"}
    node.wait(lambda: "gpu-1" not in node.taints(), "no taint any more", "gpu-1")
    assert story.pods() == []


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
    first, second = (
        story.lists(f"shares-{name}", container="main") for name in ("first", "second")
    )
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
            [uuid] = [
                one for one in story.lists(pod, container=container) if one.startswith("MIG-")
            ]
            seen.append(uuid)
        assert set(seen[-4:]) == {node.uuids[device] for device in given[pod]}
    assert len(set(seen)) == 16


def test_a_gpu_is_chosen_by_product_and_index(node: NvidiaNode, story: GpuStory) -> None:
    story.apply_example("product-and-index")
    story.wait_ready("takes-long-turns")
    first = node.facts.gpus[0].uuid
    for container in ("left", "right"):
        assert story.lists("takes-long-turns", container=container) == [first]
    assert node.settings() == {"gpu-2": {"time slice": 3}}


def test_a_gpu_and_a_part_are_extended_resources(node: NvidiaNode, story: GpuStory) -> None:
    story.apply_example("extended-resources")
    story.wait_all_ready(2)
    given = story.claims_by_pod()
    whole, part = given["asks-for-a-gpu"], given["asks-for-a-part"]
    assert len(whole) == len(part) == 1, story.driver.cluster.get("-n", story.namespace, "pods")
    assert story.lists("asks-for-a-gpu", container="main") == [node.uuids[whole[0]]]
    assert story.lists("asks-for-a-part", container="main")[-1:] == [node.uuids[part[0]]]
    assert "-mig-1g5gb-" in part[0]


def test_a_claim_can_have_devices_of_two_drivers(node: NvidiaNode, story: GpuStory) -> None:
    story.apply_example("two-drivers", {"net.example.com": "gpu"})
    story.wait_ready("uses-two-drivers")
    [gpu] = story.claims_by_pod()["uses-two-drivers"]
    assert story.lists("uses-two-drivers", container="main") == [node.uuids[gpu]]
    seen = story.seen_by("uses-two-drivers", container="main")
    assert len(seen.devices) == 1  # the other driver's


# With the program of NVIDIA's container toolkit, which stays from here on.


def test_nvidias_hooks_make_the_rest(node: NvidiaNode, story: GpuStory) -> None:
    story.gpu_claim("before", request())
    story.gpu_pod("without", "before")
    story.wait_ready("without")
    assert HOOK_PATH not in container_of(node, story, "without")
    node.gpus.install_hook()
    node.befalls("gpu-0")
    time.sleep(LOOK_SECONDS)
    story.gpu_claim("one", request())
    nobody = {"runAsUser": 1000, "readOnlyRootFilesystem": True}
    story.gpu_pod("with", "one", securityContext=nobody)
    story.wait_ready("with")
    assert HOOK_PATH in container_of(node, story, "with")
    assert story.lists("with") == [node.uuids[story.given("one")[0]]]
    assert "found" in story.shell("with", "grep -q libcuda.so.1 /etc/ld.so.cache && echo found")


# At last the hardware container is gone.


def test_claims_are_served_while_the_hardware_hangs_or_is_gone(
    node: NvidiaNode, story: GpuStory
) -> None:
    wait_until(node.is_whole, "all devices without taints, after all other tests")
    story.gpu_claim("before", request())
    story.gpu_pod("before", "before")
    story.wait_ready("before")
    before = node.hardware_processes().keys()
    node.control.hang("nvmlDevice*", node.index_of("gpu-3"))
    node.befalls("gpu-0")
    for name in ("one", "other"):
        story.gpu_claim(name, request(selectors=selector("own.minor < 3")))
        story.gpu_pod(name, name)
    story.wait_ready("one", "other")
    assert story.lists("one") == [node.uuids[story.given("one")[0]]]
    wait_until(
        lambda: node.hardware_processes().keys() - before,
        "another process that calls the library",
    )
    node.control.clear()

    node.end_hardware()
    story.delete_pod("one")
    story.gpu_claim("next", request(selectors=selector("own.minor < 3")))
    story.gpu_pod("next", "next")
    story.wait_ready("next")
    assert story.lists("next") == [node.uuids[story.given("next")[0]]]
    assert story.lists("before") == [node.uuids[story.given("before")[0]]]
