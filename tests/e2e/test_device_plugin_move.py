# SPDX-License-Identifier: Apache-2.0
"""A node changes from the device plugin API to DRA, and the same driver stays on it: no device is offered twice, and pods get theirs."""

from collections.abc import Iterator

import pytest

from hack.testbed.onenode import build
from hack.testbed.onenode.cluster import CTR, Cluster, Options
from hack.testbed.onenode.features import API_VERSIONS, DRA, minor_of
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.node_files import NODE
from hack.testbed.onenode.selection import kubernetes_version
from tests.e2e.agreement import published
from tests.e2e.plugin_node import PluginNode, PluginStory
from tests.e2e.story import request as ask

pytestmark = [pytest.mark.real, pytest.mark.shim]

DEVICES = {f"gpu-{number}" for number in range(8)}
GPU_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.dra-driver.dev"'}}]},
}
CHANGE_SECONDS = 120  # the driver asks the API server twice a minute what it serves


@pytest.fixture
def old_cluster() -> Iterator[Cluster]:
    """One without DRA, that a test may change."""
    version = kubernetes_version()
    off = {DRA: False} if minor_of(version) in API_VERSIONS else {}
    cluster = Cluster(build.build(version), Options(version=version, feature_gates=off))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def node(old_cluster: Cluster) -> PluginNode:
    """A node with eight GPUs."""
    found = PluginNode(old_cluster)
    found.make_device_files()
    found.run(found.simulated())
    found.wait_offered(8)
    return found


@pytest.fixture
def story(node: PluginNode) -> PluginStory:
    """A namespace."""
    begun = PluginStory(node.cluster, "moves")
    begun.begin()
    return begun


def in_slices(story: PluginStory) -> set[str]:
    """The devices that claims can have."""
    return set(published(story.driver))


def wait_in_slices(story: PluginStory, devices: set[str]) -> None:
    """Wait until claims can have exactly these."""
    wait_until(
        lambda: in_slices(story) == devices,
        f"slices with {sorted(devices)}",
        timeout_seconds=CHANGE_SECONDS,
    )


def names(minors: set[int]) -> set[str]:
    """The devices with these numbers."""
    return {f"gpu-{minor}" for minor in minors}


@pytest.mark.shim(30, 31)
def test_a_drained_node_goes_on_as_the_newest_release_with_slices(
    node: PluginNode, story: PluginStory
) -> None:
    story.runs("old", 2, grace_seconds=1)
    story.delete_pod("old")
    node.cluster.kubectl("cordon", NODE)
    node.cluster.replace_release(build.KUBERNETES)
    node.cluster.kubectl("uncordon", NODE)
    wait_in_slices(story, DEVICES)
    node.wait_offered(8, allocatable=0)

    node.cluster.apply(GPU_CLASS)
    story.claim("one", ask())
    story.pod("new", "one")
    story.wait_ready("new")
    [device] = story.allocated("one")
    assert names(story.has("new")) == {device}


@pytest.mark.shim(
    33
)  # the newest release that was tried whose gate is off by default; from 1.35 on it is locked
def test_dra_is_switched_on_under_a_pod_whose_container_then_starts_again(
    node: PluginNode, story: PluginStory
) -> None:
    story.runs("keeps", 2, restart="Always")
    kept, first = story.has("keeps"), story.container_id("keeps")
    assert len(kept) == 2

    node.cluster.change_gates({DRA: True})
    wait_in_slices(story, DEVICES - names(kept))
    node.cluster.output_of([*CTR, "task", "kill", "--signal", "SIGKILL", first])
    wait_until(lambda: story.restarts("keeps") == 1, "another start of the container")
    story.wait_ready("keeps")
    assert story.has("keeps") == kept
    assert in_slices(story) == DEVICES - names(kept)
    node.wait_offered(2)

    story.delete_pod("keeps")
    wait_in_slices(story, DEVICES)
