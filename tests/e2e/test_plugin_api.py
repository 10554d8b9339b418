# SPDX-License-Identifier: Apache-2.0
"""A pod with a device of a device plugin, on nodes without DRA: does the test bed run them, and survive what its tests do to them?"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.testbed.onenode import init
from hack.testbed.onenode.cluster import Cluster
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.node_files import IMAGE, NODE

pytestmark = [pytest.mark.real, pytest.mark.shim]

SERVER = Path(__file__).with_name("device_plugin_server.py")
RESOURCE = "example.com/gpu"
POD = "with-a-plugin-device"
CDI_GATE = "DevicePluginCDIDevices"


@pytest.fixture
def plugin(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with a device plugin that offers one device."""
    folder = str(init.KUBELET_FOLDER / "device-plugins")
    argv = [sys.executable, str(SERVER), folder, RESOURCE, "GPU-1"]
    program = cluster.run_inside(argv, log="device-plugin")
    wait_until(lambda: offered(cluster) == "1", f"{RESOURCE} on the node")
    yield cluster
    cluster.kubectl("delete", "pod", POD, "--ignore-not-found", "--now")
    program.stop()


def offered(cluster: Cluster) -> str:
    status = cluster.get("node", NODE)["status"]
    return str(status["allocatable"].get(RESOURCE, ""))


def run_pod(cluster: Cluster) -> None:
    container = {"name": "c0", "image": IMAGE, "resources": {"limits": {RESOURCE: "1"}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": spec}
    cluster.apply(pod)
    wait_until(lambda: is_ready(cluster), f"pod {POD}")


def is_ready(cluster: Cluster) -> bool:
    conditions = cluster.get("pod", POD)["status"].get("conditions", [])
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def container_id(cluster: Cluster) -> str:
    [status] = cluster.get("pod", POD)["status"]["containerStatuses"]
    return str(status["containerID"])


def entries(cluster: Cluster) -> list[Any]:
    """The kubelet's checkpoint: which pod has which device?"""
    file = cluster.plugin_folder / "kubelet_internal_checkpoint"
    return json.loads(file.read_text())["Data"]["PodDeviceEntries"] or []


def test_a_pod_gets_its_device_and_keeps_it_when_the_kubelet_restarts(plugin: Cluster) -> None:
    run_pod(plugin)
    said = plugin.kubectl("exec", POD, "--", "sh", "-c", "echo $EXAMPLE_COM_GPU")
    assert said == "GPU-1\n"
    [entry] = entries(plugin)
    assert (entry["ResourceName"], entry["DeviceIDs"]) == (RESOURCE, {"-1": ["GPU-1"]})
    before = container_id(plugin)

    plugin.restart_kubelet()
    wait_until(lambda: offered(plugin) == "1", f"{RESOURCE} on the node")
    assert is_ready(plugin)
    assert container_id(plugin) == before


@pytest.mark.shim(30)  # the gate is locked later
def test_a_gate_of_the_kubelet_alone_can_be_changed_while_a_pod_runs(plugin: Cluster) -> None:
    run_pod(plugin)
    before = container_id(plugin)

    plugin.change_gates({CDI_GATE: False}, of=["kubelet"])
    assert container_id(plugin) == before
    plugin.change_gates({CDI_GATE: True}, of=["kubelet"])
    assert container_id(plugin) == before


def test_an_emptied_plugin_folder_fills_again_when_the_kubelet_restarts(plugin: Cluster) -> None:
    plugin.empty_plugin_folder()
    assert not (plugin.plugin_folder / "kubelet.sock").exists()

    plugin.restart_kubelet()
    wait_until(lambda: offered(plugin) == "1", f"{RESOURCE} on the node")
    run_pod(plugin)
