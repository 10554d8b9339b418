# SPDX-License-Identifier: Apache-2.0
"""The chart and the image on a cluster without DRA, as an admin installs them: pods ask for extended resources and keep their devices through all
that happens to the driver's pod.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from hack.testbed.onenode.cluster import Cluster
from hack.testbed.onenode.driver import DRIVER_NAME, TAG, is_ready
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.node_files import NODE
from hack.testbed.onenode.release import NAMESPACE, Release, build_image
from tests.e2e.plugin_node import PluginNode, PluginStory

pytestmark = [pytest.mark.real, pytest.mark.shim(30, 31)]

RESOURCE = f"{DRIVER_NAME}/nvidia-gpu"  # the chart's class for the simulated H100s
STORIES: list[str] = []  # for the names of their namespaces
ALL = set(range(8))


class ChartNode(PluginNode):
    """The node with the driver of the chart. Its helm release is upgraded with other values; its pod is deleted and comes back."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.release = Release(cluster)

    def values(self, **more: Any) -> dict[str, Any]:
        """The values of a laptop's node, and nothing of the older API: the chart finds out itself what the cluster has."""
        return {"image": {"tag": TAG}, "backends": {"simulated": {"profile": "h100x8"}}, **more}

    def install(self) -> None:
        """Give the node the image, and install."""
        self.cluster.import_image(build_image(self.cluster.root / "driver.tar", version=TAG))
        self.release.install(self.values())

    def upgrade(self, **more: Any) -> None:
        """Upgrade the release, and wait until another pod of the driver runs."""
        before = self.pod_of_driver()
        self.release.upgrade(self.values(**more))
        assert self.pod_of_driver() != before

    def delete_driver(self) -> None:
        """Delete the driver's pod, and wait for the next one."""
        before = self.pod_of_driver()
        self.cluster.kubectl("--namespace", NAMESPACE, "delete", "pod", before, "--wait=false")
        wait_until(
            lambda: self._ready_pods() not in ([], [before]) and len(self._ready_pods()) == 1,
            "another pod of the driver",
            timeout_seconds=120,
        )

    def pod_of_driver(self) -> str:
        """The name of the driver's pod."""
        [name] = self._ready_pods()
        return name

    def _ready_pods(self) -> list[str]:
        pods = self.release.pods()
        return [str(pod["metadata"]["name"]) for pod in pods if is_ready(pod)]


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[ChartNode]:
    """A node on which the chart is installed."""
    found = ChartNode(cluster)
    found.make_device_files()
    found.install()
    found.wait_offered(8, RESOURCE)
    yield found
    if found.release.pods(component=""):
        found.release.uninstall()


@pytest.fixture
def story(node: ChartNode, request: pytest.FixtureRequest) -> Iterator[PluginStory]:
    """A namespace. After the test nothing is given out any more."""
    begun = PluginStory(node.cluster, f"chart-{len(STORIES)}")
    STORIES.append(request.node.name)
    begun.begin()
    yield begun
    begun.end()
    if node.release.pods():
        node.wait_all_free()


def test_pods_have_the_devices_of_a_class_and_nothing_asks_for_dra(
    node: ChartNode, story: PluginStory
) -> None:
    story.runs("one", 1, RESOURCE)
    story.runs("two", 2, RESOURCE)
    story.runs("none")
    one, two = story.has("one"), story.has("two")
    assert (len(one), len(two), story.has("none")) == (1, 2, set())
    assert not one & two
    made = node.release.helm("get", "manifest", node.release.name)
    assert "\napiVersion: resource.k8s.io" not in made  # in a ConfigMap, the lines are indented


def test_pods_keep_their_devices_while_the_driver_is_replaced_and_upgraded(
    node: ChartNode, story: PluginStory
) -> None:
    story.runs("before", 2, RESOURCE)
    before, container = story.has("before"), story.container_id("before")
    node.delete_driver()
    between = story.runs_at_last("between", 2, resource=RESOURCE)
    node.upgrade(log={"level": "info"})
    after = story.runs_at_last("after", 4, resource=RESOURCE)
    assert (story.has("before"), story.container_id("before")) == (before, container)
    parts = [story.has(name) for name in ("before", between, after)]
    assert set().union(*parts) == ALL
    assert sum(map(len, parts)) == len(ALL)
    story.delete_pod(between)
    story.runs("last", 2, RESOURCE)
    assert story.has("last") == parts[1]


def test_a_pod_keeps_its_device_when_the_kubelet_restarts(
    node: ChartNode, story: PluginStory
) -> None:
    story.runs("before", 2, RESOURCE)
    before, container = story.has("before"), story.container_id("before")
    node.cluster.restart_kubelet()
    after = story.runs_at_last("after", 6, resource=RESOURCE)
    assert story.has(after) == ALL - before
    assert (story.has("before"), story.container_id("before")) == (before, container)


def test_a_pod_is_placed_by_memory_and_generation(node: ChartNode, story: PluginStory) -> None:
    node.upgrade(nodeLabels="patch")
    facts = [
        {"key": f"{DRIVER_NAME}/memory-mib", "operator": "Gt", "values": ["40000"]},
        {"key": f"{DRIVER_NAME}/generation", "operator": "In", "values": ["hopper"]},
    ]
    wait_until(lambda: labels(node).get(facts[1]["key"]), "the labels of the Node")
    fits = story.runs_at_last("fits", 1, resource=RESOURCE, affinity=facts)
    assert len(story.has(fits)) == 1
    larger = {**facts[0], "values": ["400000"]}
    story.asks("too-large", 1, RESOURCE, affinity=[larger, facts[1]])
    assert "node affinity" in story.why_pending("too-large")


def test_four_containers_take_turns_on_each_device(node: ChartNode, story: PluginStory) -> None:
    node.upgrade(devicePlugin={"timeSlicing": {RESOURCE: {"replicas": 4}}})
    node.wait_offered(32, RESOURCE)
    story.runs("three", 3, RESOURCE)
    story.runs("one", 1, RESOURCE)
    assert 1 <= len(story.has("three")) <= 3
    assert len(story.has("one")) == 1
    story.delete_pod("three")
    story.delete_pod("one")
    node.wait_all_free()
    node.upgrade()
    node.wait_offered(8, RESOURCE)


def test_after_helm_uninstall_the_node_offers_nothing_and_pods_run_on(
    node: ChartNode, story: PluginStory
) -> None:
    story.runs("stays", 2, RESOURCE)
    before, container = story.has("stays"), story.container_id("stays")
    node.release.uninstall()
    node.wait_offered(8, RESOURCE, allocatable=0)
    assert (story.has("stays"), story.container_id("stays")) == (before, container)
    node.release.install(node.values())
    after = story.runs_at_last("after", 6, resource=RESOURCE)
    assert story.has(after) == ALL - before


def labels(node: ChartNode) -> dict[str, str]:
    """The labels of the Node."""
    found: dict[str, str] = node.cluster.get("node", NODE)["metadata"]["labels"]
    return found
