# SPDX-License-Identifier: Apache-2.0
"""Pods of a node without DRA: they ask for extended resources, and the driver gives them devices through the device plugin API."""

import time
from collections.abc import Iterator

import pytest

from hack.testbed.onenode.cluster import Cluster
from hack.testbed.onenode.namespaces import wait_until
from tests.e2e.plugin_node import GPU, PluginNode, PluginStory
from tests.e2e.runtime_times import RuntimeTimes

pytestmark = [pytest.mark.real, pytest.mark.shim(30, 31)]

CDI_GATE = "DevicePluginCDIDevices"
STORIES: list[str] = []  # for the names of their namespaces
HELD = "may still be used by the container that had it before"


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[PluginNode]:
    """A node with files of simulated devices."""
    found = PluginNode(cluster)
    found.make_device_files()
    yield found
    found.stop()


@pytest.fixture
def gpus(node: PluginNode) -> PluginNode:
    """The node with eight GPUs."""
    node.run(node.simulated())
    node.wait_offered(8)
    return node


@pytest.fixture
def story(node: PluginNode, request: pytest.FixtureRequest) -> Iterator[PluginStory]:
    """A namespace. After the test nothing is given out any more."""
    begun = PluginStory(node.cluster, f"plugin-{len(STORIES)}")
    STORIES.append(request.node.name)
    begun.begin()
    yield begun
    begun.end()
    node.set_faults({})
    node.wait_all_free()


@pytest.fixture
def times(story: PluginStory) -> Iterator[RuntimeTimes]:
    """The runtime's events of this test."""
    found = RuntimeTimes(story.driver.cluster)
    yield found
    found.kill_all()
    found.close()


def test_pods_have_exactly_the_devices_that_they_ask_for(
    gpus: PluginNode, story: PluginStory
) -> None:
    story.runs("one", 1)
    story.runs("two", 2)
    story.runs("none")
    one, two = story.has("one"), story.has("two")
    assert (len(one), len(two)) == (1, 2)
    assert not one & two
    assert story.has("none") == set()


def test_a_device_is_given_out_again_when_its_pod_has_ended(
    gpus: PluginNode, story: PluginStory
) -> None:
    story.runs("all", 8, grace_seconds=1)
    story.asks("next", 8)
    assert f"Insufficient {GPU}" in story.why_pending("next")
    story.delete_pod("all")
    story.wait_ready("next")
    assert story.has("next") == set(range(8))


def test_a_pod_that_comes_after_another_has_ended_is_admitted(
    gpus: PluginNode, story: PluginStory
) -> None:
    story.runs("first", 8, grace_seconds=1)
    story.delete_pod("first")
    gpus.wait_all_free()
    # The kubelet's checkpoint names the first pod until the second one is admitted; the driver looks at it every two seconds.
    time.sleep(3)
    story.runs("second", 8)
    assert story.has("second") == set(range(8))


@pytest.mark.shim(30)
@pytest.mark.parametrize("gate", [True, False])
def test_an_old_kubelet_passes_on_files_and_variables(
    gpus: PluginNode, story: PluginStory, *, gate: bool
) -> None:
    gpus.cluster.change_gates({CDI_GATE: gate}, of=["kubelet"])
    try:
        gpus.wait_offered(8)
        story.runs("two", 2)
        assert len(story.has("two")) == 2
    finally:
        gpus.cluster.change_gates({CDI_GATE: True}, of=["kubelet"])


@pytest.mark.parametrize("strategy", ["cdi", "edits", "cdi-annotations"])
def test_a_container_gets_its_devices_in_each_way_that_the_admin_can_choose(
    node: PluginNode, story: PluginStory, strategy: str
) -> None:
    node.run(node.simulated(deviceListStrategy=strategy))
    node.wait_offered(8)
    story.runs("two", 2)
    assert len(story.has("two")) == 2


def test_units_of_memory_are_added_up(node: PluginNode, story: PluginStory) -> None:
    memory = f"{GPU}-memory"
    node.run(node.simulated("t4x2", devicePlugin={"memoryUnits": [memory]}))
    node.wait_offered(30, memory)  # 15 GiB each
    for name in ("first", "second"):
        story.runs(name, 10, memory)
    first, second = story.has("first"), story.has("second")
    assert len(first) == len(second) == 1
    assert first != second  # 10 and 10 GiB do not fit into 15
    story.runs("third", 5, memory)
    assert len(story.has("third")) == 1
    story.asks("fourth", 10, memory)
    assert f"Insufficient {memory}" in story.why_pending("fourth")


def test_a_pod_runs_on_when_the_kubelet_restarts(gpus: PluginNode, story: PluginStory) -> None:
    story.runs("before", 2)
    before, container = story.has("before"), story.container_id("before")
    gpus.cluster.restart_kubelet()
    gpus.wait_offered(8)
    story.runs("after", 6)
    assert story.has("after") == set(range(8)) - before
    assert (story.has("before"), story.container_id("before")) == (before, container)


def test_a_pod_runs_on_when_the_driver_is_killed(gpus: PluginNode, story: PluginStory) -> None:
    story.runs("before", 2)
    before, container = story.has("before"), story.container_id("before")
    gpus.stop()
    gpus.wait_offered(8, allocatable=0)
    gpus.start()
    gpus.wait_offered(8)
    story.runs("after", 6)
    assert story.has("after") == set(range(8)) - before
    assert (story.has("before"), story.container_id("before")) == (before, container)


def test_no_device_is_given_out_twice_when_all_that_the_kubelet_wrote_down_is_deleted(
    gpus: PluginNode, story: PluginStory, times: RuntimeTimes
) -> None:
    story.runs("before", 2)
    before, container = story.has("before"), story.container_id("before")
    gpus.cluster.empty_plugin_folder()
    gpus.cluster.restart_kubelet()
    gpus.wait_offered(8)
    # The kubelet believes that all devices are free, until the driver has told it otherwise.
    after = story.runs_at_last("after", 6)
    if story.phase("before") == "Failed":
        # If the kubelet hears of the pod late, it admits it as a new one, before it has a list of devices.
        assert times.started(story.container_id(after)) > times.ended(container)
        return
    assert story.has(after) == set(range(8)) - before
    assert (story.has("before"), story.container_id("before")) == (before, container)


def test_the_driver_offers_its_devices_again_when_its_socket_is_deleted(
    gpus: PluginNode, story: PluginStory
) -> None:
    story.runs("before", 2)
    registered = len(gpus.said("plugin_registered"))
    [path] = gpus.cluster.plugin_folder.glob("*gpu.dra-driver.dev*")
    path.unlink()
    wait_until(lambda: len(gpus.said("plugin_registered")) > registered, "another registration")
    after = story.runs_at_last("after", 6)
    assert story.has(after) == set(range(8)) - story.has("before")


def test_a_device_that_is_ill_is_not_given_out_until_it_is_well(
    gpus: PluginNode, story: PluginStory
) -> None:
    story.runs("patient", 1)
    [ill] = story.has("patient")
    container = story.container_id("patient")
    gpus.set_faults({f"gpu-{ill}": {"unhealthy": "XID 79: GPU has fallen off the bus"}})
    gpus.wait_offered(8, allocatable=7)
    story.delete_pod("patient", wait=False)
    assert story.container_id("patient") == container
    story.runs("others", 7)
    assert story.has("others") == set(range(8)) - {ill}
    gpus.set_faults({})
    gpus.wait_offered(8)
    story.wait_gone("patient")
    story.runs("next", 1)
    assert story.has("next") == {ill}


def test_a_pod_keeps_its_device_when_that_falls_ill(gpus: PluginNode, story: PluginStory) -> None:
    story.runs("patient", 1)
    before, container = story.has("patient"), story.container_id("patient")
    [ill] = before
    gpus.set_faults({f"gpu-{ill}": {"unhealthy": "XID 79: GPU has fallen off the bus"}})
    gpus.wait_offered(8, allocatable=7)
    assert (story.has("patient"), story.container_id("patient")) == (before, container)


def test_after_a_force_delete_the_next_container_starts_when_the_old_one_has_ended(
    gpus: PluginNode, story: PluginStory, times: RuntimeTimes
) -> None:
    story.runs("first", 8, grace_seconds=60)
    first = story.container_id("first")
    story._kubectl("delete", "pod", "first", "--force", "--grace-period=0")
    after = story.runs_at_last("next", 8)
    assert times.started(story.container_id(after)) > times.ended(first)
    assert story.has(after) == set(range(8))


def test_no_pod_has_the_device_of_a_container_that_runs_on_without_its_pod(
    gpus: PluginNode, story: PluginStory, times: RuntimeTimes
) -> None:
    story.runs("first", 8, grace_seconds=600)
    first = story.container_id("first")
    story.remove_without_deletion("first")
    story.asks("refused", 8)
    assert HELD in story.refused("refused")
    gpus.wait_offered(8, allocatable=0)
    assert times.runs(first)
    times.kill(first)
    gpus.wait_offered(8)
    story.runs("next", 8)
    assert times.started(story.container_id("next")) > times.ended(first)
    assert story.has("next") == set(range(8))


def test_an_init_container_and_the_main_one_have_the_same_device(
    gpus: PluginNode, story: PluginStory
) -> None:
    story.runs("pod", 1, init=True)
    assert len(story.has("pod")) == 1
    [first] = story.found("pod")["status"]["initContainerStatuses"]
    seen = [f"{key}={value}" for key, value in story.seen_by("pod").devices.items()]
    assert first["state"]["terminated"]["message"].split() == seen


def test_the_second_container_of_a_pod_has_devices_of_its_own(
    gpus: PluginNode, story: PluginStory
) -> None:
    story.runs("pod", 1, init=True)
    story.runs("other", 1)
    assert not story.has("pod") & story.has("other")
    wait_until(lambda: len(gpus.rows()) == 2, "a row for each pod")
