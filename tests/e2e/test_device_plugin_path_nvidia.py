# SPDX-License-Identifier: Apache-2.0
"""Pods of a node with NVIDIA GPUs and without DRA: a configuration of NVIDIA's device plugin that people bring along, and MIG devices."""

from collections.abc import Iterator
from typing import Any

import pytest

from dra_driver.backends.nvidia.facts import Node
from dra_driver.testing.nvml import boards, machine
from hack.testbed.onenode.cluster import Cluster
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.node_files import NODE
from hack.testbed.onenode.nvidia import HOST, MockGpus
from tests.e2e.nvidia_machine import IMAGE, PROGRAM, UUID, import_programs
from tests.e2e.plugin_node import GPU, PluginNode, PluginStory
from tests.support.nvidia_names import uuids

pytestmark = [pytest.mark.real, pytest.mark.shim(30, 31)]

MIG = "nvidia.com/mig-1g.5gb"
# A configuration in the form that guides tell, with the key `any` in its ConfigMap.
SLICED = """
version: v1
flags:
  migStrategy: none
sharing:
  timeSlicing:
    renameByDefault: false
    failRequestsGreaterThanOne: false
    resources:
    - name: nvidia.com/gpu
      replicas: 4
"""
LABEL = "nvidia.com/device-plugin.config"
STORIES: list[str] = []


def facts() -> Node:
    """A whole A100, and one that is cut into MIG devices."""
    return machine.node(boards.A100_40, 2, mig={1: "3g.20gb 2g.10gb 1g.5gb 1g.5gb"})


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[PluginNode]:
    """A node with these GPUs."""
    gpus = MockGpus(cluster, facts())
    gpus.install()
    import_programs(cluster)
    found = PluginNode(cluster)
    yield found
    found.stop()
    gpus.remove()


@pytest.fixture
def story(node: PluginNode, request: pytest.FixtureRequest) -> Iterator[PluginStory]:
    """A namespace. After the test nothing is given out any more."""
    begun = PluginStory(node.cluster, f"plugin-nvidia-{len(STORIES)}")
    STORIES.append(request.node.name)
    begun.begin()
    yield begun
    begun.end()
    node.wait_all_free()


def nvidia(options: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A config document for this machine."""
    return {"backends": {"nvidia": {"hostRoot": str(HOST), **(options or {})}}, **more}


def lists(story: PluginStory, pod: str) -> list[str]:
    """The UUIDs that NVIDIA's library shows a program in the container."""
    return UUID.findall(story.shell(pod, PROGRAM))


def test_a_pod_lists_its_gpu_and_another_pod_none(node: PluginNode, story: PluginStory) -> None:
    node.run(nvidia())
    node.wait_offered(1)
    story.runs("one", 1, image=IMAGE)
    story.runs("none", image=IMAGE)
    assert lists(story, "one") == [uuids(facts())["gpu-0"]]
    assert lists(story, "none") == []


def test_a_pod_has_a_mig_device(node: PluginNode, story: PluginStory) -> None:
    node.run(nvidia(devicePlugin={"migStrategy": "mixed"}))
    node.wait_offered(2, MIG)
    node.wait_offered(1)
    seen = set()
    for name in ("first", "second"):
        story.runs(name, 1, MIG, image=IMAGE)
        [found] = [uuid for uuid in lists(story, name) if uuid.startswith("MIG-")]
        seen.add(found)
    small = {uuid for name, uuid in uuids(facts()).items() if "mig-1g5gb" in name}
    assert seen == small


def test_four_pods_take_turns_on_a_gpu_by_a_configuration_of_nvidias_plugin(
    node: PluginNode, story: PluginStory
) -> None:
    folder = node.cluster.root / "nvidia-config"
    folder.mkdir()
    (folder / "any").write_text(SLICED)
    # The label is as guides tell it, and names no key of the ConfigMap.
    node.cluster.kubectl("label", "node", NODE, f"{LABEL}=time-slicing")
    node.run(nvidia({"devicePlugin": {"config": str(folder), "default": "any"}}))
    node.wait_offered(4)
    names = [f"turn-{number}" for number in range(4)]
    for name in names:
        story.runs(name, 1, image=IMAGE)
    for name in names:
        assert lists(story, name) == [uuids(facts())["gpu-0"]]
    story.asks("fifth", 1, image=IMAGE)
    assert f"Insufficient {GPU}" in story.why_pending("fifth")
    [told] = wait_until(lambda: node.said("plugin_config_refused"), "what is said of the label")
    assert "time-slicing" in told["reason"]
    assert "any" in told["reason"]
