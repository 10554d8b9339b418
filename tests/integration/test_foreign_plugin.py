# SPDX-License-Identifier: Apache-2.0
"""The driver beside a stand-in for NVIDIA's device plugin: the same resource, the same IDs, one kubelet."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.model.ids import ResourceName
from dra_driver.testing.fake_api import FakeApi
from dra_driver.testing.fake_kubelet import KubeletError
from dra_driver.testing.stage import DRIVER, Stage
from tests.support.plugins import BarePlugin
from tests.support.stages import a_stage

GPU = "nvidia.com/gpu"
TAINT = f"{DRIVER}/held-by"


@pytest.fixture
def node() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(dir="/tmp") as root, FakeApi() as api:
        found = a_stage(Path(root), api)
        yield found
        found.close()


def tainted(node: Stage) -> set[str]:
    """The devices with the taint of the guard."""
    return {
        device["name"]
        for one in node.published()
        for device in one["spec"]["devices"]
        for taint in device.get("taints", ())
        if (taint["key"], taint["value"], taint["effect"])
        == (TAINT, "nvidia.com_gpu", "NoSchedule")
    }


def uuids(node: Stage) -> dict[str, str]:
    return {
        device["name"]: device["attributes"]["uuid"]["string"]
        for one in node.published()
        for device in one["spec"]["devices"]
    }


def test_devices_are_free_for_claims_when_the_plugin_and_its_pods_are_gone(node: Stage) -> None:
    node.start_registered()
    node.wait_for(node.published, "the slices")
    ids = uuids(node)
    assert tainted(node) == set()
    plugin = BarePlugin(
        node.kubelet, "nvidia.sock", ids["gpu-0"], ids["gpu-1"], resource=ResourceName(GPU)
    )
    assert plugin.register() == ""
    node.wait_for(lambda: tainted(node) == {"gpu-0", "gpu-1"}, "the taints")
    pod = node.kubelet.admit("default/old", {"main": {GPU: 1}})
    node.kubelet.start("default/old")
    (unit,) = node.kubelet.device_manager.units(pod)[GPU]
    (device,) = [name for name, uuid in ids.items() if uuid == unit]
    # The scheduler chose it before the taint was there.
    claim = node.claim("one", [device])
    with pytest.raises(KubeletError, match=f"device {device} is not free: pod {pod} has it"):
        node.kubelet.prepare(DRIVER, [claim], pod="default/new")
    plugin.close()
    manager = node.kubelet.device_manager
    node.wait_for(lambda: manager.capacity()[1].get(GPU) == 0, "the end of the plugin")
    begun, clock = manager.clock(), manager.clock
    manager.clock = lambda: clock() + 301 if clock() >= begun else 0.0
    manager.capacity()  # the kubelet forgets the plugin, and writes its checkpoint
    node.wait_for(lambda: tainted(node) == {device}, "only the pod's device is kept")
    node.kubelet.force_delete("default/old")
    node.kubelet.restart()  # it knows nothing of the pod any more
    node.kill()
    node.start_registered()
    node.wait_for(lambda: tainted(node) == {device}, "the pod runs on")
    node.kubelet.end_containers(pod)
    node.wait_for(lambda: tainted(node) == set(), "the pod has ended")
    assert node.kubelet.prepare(DRIVER, [claim], pod="default/new")[claim.uid]
