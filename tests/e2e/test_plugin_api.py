# SPDX-License-Identifier: Apache-2.0
"""A pod with a device of a device plugin, on nodes without DRA: does the test bed run them, and survive what its tests do to them?"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hack.testbed.onenode import build, init
from hack.testbed.onenode.cluster import CTR, Cluster, Options
from hack.testbed.onenode.features import DRA
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.node_files import IMAGE, NODE
from hack.testbed.onenode.selection import kubernetes_version

pytestmark = [pytest.mark.real, pytest.mark.shim]

SERVER = Path(__file__).with_name("device_plugin_server.py")
RESOURCE = "example.com/gpu"
POD, OTHER = "with-a-plugin-device", "the-next-pod"
CDI_GATE = "DevicePluginCDIDevices"
OLD_CLAIM = {
    "apiVersion": "resource.k8s.io/v1alpha3",
    "kind": "ResourceClaim",
    "metadata": {"name": "old", "namespace": "default"},
    "spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu"}]}},
}


@contextmanager
def plugged(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with a device plugin that offers one device."""
    folder = str(init.KUBELET_FOLDER / "device-plugins")
    argv = [sys.executable, str(SERVER), folder, RESOURCE, "GPU-1"]
    program = cluster.run_inside(argv, log="device-plugin")
    wait_until(lambda: offered(cluster) == "1", f"{RESOURCE} on the node")
    yield cluster
    cluster.kubectl("delete", "pod", POD, OTHER, "--ignore-not-found", "--now")
    program.stop()


@pytest.fixture
def plugin(cluster: Cluster) -> Iterator[Cluster]:
    with plugged(cluster):
        yield cluster


@pytest.fixture
def old_cluster() -> Iterator[Cluster]:
    """One that a test may make a newer one of."""
    version = kubernetes_version()
    cluster = Cluster(build.build(version), Options(version=version))
    try:
        cluster.start()
        with plugged(cluster):
            yield cluster
    finally:
        cluster.stop()


def offered(cluster: Cluster) -> str:
    status = cluster.get("node", NODE)["status"]
    return str(status["allocatable"].get(RESOURCE, ""))


def create_pod(cluster: Cluster, name: str = POD, *, script: str = "exec sleep infinity") -> None:
    limits = {"limits": {RESOURCE: "1"}}
    command = ["sh", "-c", script]
    container = {"name": "c0", "image": IMAGE, "command": command, "resources": limits}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 10}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    cluster.apply(pod)


def run_pod(cluster: Cluster, name: str = POD, *, script: str = "exec sleep infinity") -> str:
    """The UID of a pod that is Ready."""
    create_pod(cluster, name, script=script)
    wait_until(lambda: is_ready(cluster, name), f"pod {name}")
    return str(cluster.get("pod", name)["metadata"]["uid"])


def is_ready(cluster: Cluster, name: str = POD) -> bool:
    conditions = cluster.get("pod", name)["status"].get("conditions", [])
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def container_id(cluster: Cluster) -> str:
    [status] = cluster.get("pod", POD)["status"]["containerStatuses"]
    return str(status["containerID"]).partition("://")[2]


def is_running(cluster: Cluster, container: str) -> bool:
    tasks = cluster.output_of([*CTR, "tasks", "ls"]).splitlines()
    return any(line.startswith(container) and line.endswith("RUNNING") for line in tasks)


def served(cluster: Cluster) -> set[str]:
    versions = cluster.kubectl("api-versions").split()
    return {name for name in versions if name.startswith("resource.k8s.io/")}


def explained(cluster: Cluster, subject: str) -> str:
    """What `dra-driver explain` says of it."""
    words = ("explain", subject, "--kubeconfig", str(cluster.admin_kubeconfig))
    command = [sys.executable, "-m", "dra_driver", *words]
    ended = cluster.namespaces.run(command, env=cluster.environment)
    return ended.stdout + ended.stderr


def entries(cluster: Cluster) -> list[Any]:
    """The kubelet's checkpoint: which pod has which device?"""
    file = cluster.plugin_folder / "kubelet_internal_checkpoint"
    return json.loads(file.read_text())["Data"]["PodDeviceEntries"] or []


def test_a_pod_gets_its_device_and_keeps_it_when_the_kubelet_restarts(plugin: Cluster) -> None:
    uid = run_pod(plugin)
    said = plugin.kubectl("exec", POD, "--", "sh", "-c", "echo $EXAMPLE_COM_GPU")
    assert said == "GPU-1\n"
    [entry] = entries(plugin)
    assert (entry["PodUID"], entry["ResourceName"]) == (uid, RESOURCE)
    assert entry["DeviceIDs"] == {"-1": ["GPU-1"]}
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


@pytest.mark.shim(31)  # where DRA is off at first and can be switched on
def test_dra_can_be_switched_on_and_off_while_a_pod_runs(plugin: Cluster) -> None:
    run_pod(plugin)
    before = container_id(plugin)
    assert (plugin.resource_api, served(plugin)) == ("", set())

    plugin.change_gates({DRA: True})
    assert (plugin.resource_api, served(plugin)) == ("v1alpha3", {"resource.k8s.io/v1alpha3"})
    assert container_id(plugin) == before
    create = ["kubectl", "create", "-f", "-"]
    plugin.namespaces.run(create, env=plugin.environment, stdin=json.dumps(OLD_CLAIM))
    said = explained(plugin, "claim/old")
    assert (
        "it serves v1alpha3; pods of such a cluster get devices by the extended resources" in said
    )
    plugin.kubectl("delete", "resourceclaim", "old")
    plugin.change_gates({DRA: False})
    assert served(plugin) == set()
    assert container_id(plugin) == before


def test_an_emptied_plugin_folder_fills_again_when_the_kubelet_restarts(plugin: Cluster) -> None:
    plugin.empty_plugin_folder()
    assert not (plugin.plugin_folder / "kubelet.sock").exists()

    plugin.restart_kubelet()
    wait_until(lambda: offered(plugin) == "1", f"{RESOURCE} on the node")
    run_pod(plugin)


def test_the_kubelet_writes_down_an_ended_pod_until_the_next_pod_asks(plugin: Cluster) -> None:
    first = run_pod(plugin)
    plugin.kubectl("delete", "pod", POD, "--now")
    assert [entry["PodUID"] for entry in entries(plugin)] == [first]

    second = run_pod(plugin, OTHER)
    assert [entry["PodUID"] for entry in entries(plugin)] == [second]


# Later kubelets give it away as well, but end the container within seconds, whatever the pod's grace period.
@pytest.mark.shim(30)
def test_the_kubelet_gives_a_device_away_that_a_container_still_uses(plugin: Cluster) -> None:
    run_pod(plugin, script="trap '' TERM; while true; do sleep 1; done")
    container = container_id(plugin)
    plugin.kubectl("delete", "pod", POD, "--force", "--grace-period=0")

    second = run_pod(plugin, OTHER)
    assert [entry["PodUID"] for entry in entries(plugin)] == [second]
    assert is_running(plugin, container)
    wait_until(lambda: not is_running(plugin, container), "the end of the first pod's container")


@pytest.mark.shim(30, 31)
def test_a_node_goes_on_as_the_newest_release_with_its_pods(old_cluster: Cluster) -> None:
    uid = run_pod(old_cluster)
    assert old_cluster.resource_api == ""

    old_cluster.replace_release(build.KUBERNETES)
    assert (old_cluster.resource_api, served(old_cluster)) == ("v1", {"resource.k8s.io/v1"})
    wait_until(lambda: is_ready(old_cluster), f"pod {POD}")
    assert old_cluster.get("pod", POD)["metadata"]["uid"] == uid
    assert [entry["PodUID"] for entry in entries(old_cluster)] == [uid]
    wait_until(lambda: offered(old_cluster) == "1", f"{RESOURCE} on the node")
