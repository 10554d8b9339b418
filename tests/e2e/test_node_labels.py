# SPDX-License-Identifier: Apache-2.0
"""Is the Node labelled, ready and free of its startup taint, and what of Nodes can a driver's pod not change?

The driver runs with the chart's `nodeLabels`, `nodeCondition` and `startupTaint`; what it may write is tried with a token like its own.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.testbed.onenode import node_files
from hack.testbed.onenode.driver import Driver
from hack.testbed.onenode.namespaces import wait_until
from hack.testbed.onenode.release import NAME, NAMESPACE
from tests.e2e.story import Story

pytestmark = pytest.mark.real
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"
NODE, VICTIM = node_files.NODE, "other-node"
TAINT = "startup.example.com/gpu"
COUNT = "gpu.dra-driver.dev/count"
VALUES = {
    "nodeLabels": "patch",
    "nodeLabelAliases": {"accelerator": "vendor", "gpu-memory": "memory-mib"},
    "nodeCondition": "write",
    "startupTaint": TAINT,
}
Object = dict[str, Any]


@pytest.fixture(scope="module")
def writing(installed_driver: Driver) -> Iterator[Driver]:
    """The driver with these options; afterwards without them, and the Node without what it wrote."""
    driver = installed_driver
    driver.ensure_running()
    driver.release.upgrade({**driver.values(), **VALUES})
    driver.wait_leading()
    wait_until(lambda: labels(driver).get(COUNT), "the labels of the Node")
    yield driver
    driver.ensure_running()
    driver.release.upgrade(driver.values())
    driver.wait_leading()
    ours = [name for name in labels(driver) if name in VALUES["nodeLabelAliases"] or "gpu" in name]
    driver.cluster.kubectl("label", "node", NODE, *(f"{name}-" for name in ours))


def a_node(driver: Driver, name: str = NODE) -> Object:
    found: Object = driver.cluster.get("node", name)
    return found


def labels(driver: Driver) -> dict[str, str]:
    found: dict[str, str] = a_node(driver)["metadata"]["labels"]
    return found


def condition(driver: Driver) -> Object:
    listed = a_node(driver)["status"]["conditions"]
    return next((one for one in listed if one["type"] == "DevicesReady"), {})


def restart(driver: Driver) -> None:
    """A new process of the driver, after the old one has ended."""
    driver.stop()
    driver.ensure_running()


def test_the_labels_are_those_of_the_devices(writing: Driver) -> None:
    found = labels(writing)
    assert (found["accelerator"], found[COUNT]) == ("nvidia", "8")
    assert found["nvidia.com/gpu.product"] == found["gpu.dra-driver.dev/product"]
    assert found["kubernetes.io/hostname"]


def test_a_pod_is_placed_by_a_number(writing: Driver, story: Story) -> None:
    """The scheduler compares `Gt` as numbers."""
    memory = int(labels(writing)["gpu-memory"])
    for name, than in (("fits", memory - 1), ("does-not", memory)):
        expression = {"key": "gpu-memory", "operator": "Gt", "values": [str(than)]}
        term = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": story.namespace},
            "spec": {
                "affinity": affinity,
                "containers": [{"name": "main", "image": node_files.IMAGE}],
                "terminationGracePeriodSeconds": 0,
            },
        }
        writing.cluster.apply(body)

    def scheduled(name: str) -> str:
        pod: Object = writing.cluster.get("--namespace", story.namespace, "pod", name)
        listed = pod.get("status", {}).get("conditions", [])
        return next((one["status"] for one in listed if one["type"] == "PodScheduled"), "")

    wait_until(lambda: scheduled("fits") == "True", "the pod whose node has enough memory")
    wait_until(lambda: scheduled("does-not") == "False", "the other pod to be refused")


def test_the_condition_stays_beside_those_of_the_kubelet(writing: Driver) -> None:
    wait_until(lambda: condition(writing).get("status") == "True", "the devices to be ready")
    since = condition(writing)["lastTransitionTime"]
    types = {one["type"] for one in a_node(writing)["status"]["conditions"]}
    assert {"Ready", "MemoryPressure", "DevicesReady"} <= types
    restart(writing)
    assert condition(writing)["lastTransitionTime"] == since


def test_the_startup_taint_goes_and_others_stay(writing: Driver) -> None:
    kubectl = writing.cluster.kubectl
    other = "e2e.example.com/other"
    kubectl("taint", "node", NODE, f"{other}=x:PreferNoSchedule", f"{TAINT}=:PreferNoSchedule")
    try:
        restart(writing)

        def keys() -> list[str]:
            return [taint["key"] for taint in a_node(writing)["spec"].get("taints", [])]

        wait_until(lambda: TAINT not in keys(), "the startup taint to go")
        assert other in keys()
    finally:
        kubectl("taint", "node", NODE, f"{other}-")


# What a pod of the driver may not change


@pytest.fixture(scope="module")
def token(writing: Driver, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kubeconfig with a token like that of the driver's pod."""
    (pod, *_) = writing.release.pods()
    bound = ("--bound-object-kind", "Pod", "--bound-object-name", pod["metadata"]["name"])
    account = (NAME, "--namespace", NAMESPACE)
    path = tmp_path_factory.mktemp("token") / "kubeconfig"
    text = writing.cluster.kubectl("create", "token", *account, *bound).strip()
    path.write_text(node_files.kubeconfig(writing.cluster.root, text))
    return path


@pytest.fixture(scope="module")
def victim(writing: Driver) -> Iterator[str]:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": VICTIM}}
    writing.cluster.apply(body)
    yield VICTIM
    writing.cluster.kubectl("delete", "node", VICTIM)


SEND = """
import json, sys
from pathlib import Path
import urllib3
from dra_driver.kube.auth import connect

kubeconfig, path, body = sys.argv[1:]
connection = connect(Path(kubeconfig))
pool = urllib3.PoolManager(ssl_context=connection.tls.current())
merge = "application/merge-patch+json"
headers = {**connection.credentials.headers(), "Content-Type": merge}
answer = pool.request("PATCH", connection.server + path, body=body.encode(), headers=headers)
print(json.dumps([answer.status, answer.json().get("message", "")]))
"""


def patch(driver: Driver, token: Path, path: str, body: Object) -> str:
    """Send a merge patch with the token; answers how it was refused, or nothing."""
    command = [sys.executable, "-c", SEND, str(token), f"/api/v1/nodes/{path}", json.dumps(body)]
    ended: subprocess.CompletedProcess[str] = driver.cluster.namespaces.run(
        command, env=driver.cluster.environment
    )
    assert ended.returncode == 0, ended.stderr
    status, message = json.loads(ended.stdout)
    return "" if status == 200 else str(message)


def test_own_labels_can_be_written_with_the_token(writing: Driver, token: Path) -> None:
    """So that what is refused below is refused for its content."""
    body = {"metadata": {"labels": {"gpu.dra-driver.dev/e2e": "x"}}}
    assert patch(writing, token, NODE, body) == ""
    assert (
        patch(writing, token, NODE, {"metadata": {"labels": {"gpu.dra-driver.dev/e2e": None}}})
        == ""
    )


@pytest.mark.parametrize("path", ["", "/status"])
def test_another_node_is_not_changed(writing: Driver, token: Path, victim: str, path: str) -> None:
    said = patch(writing, token, victim + path, {"metadata": {"labels": {COUNT: "8"}}})
    assert f"{ACCOUNT} runs on node {NODE} and may change that Node only, not {VICTIM}." in said


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("", {"metadata": {"labels": {"pool": "x"}}}, "may change labels of the driver only, not pool."),
        ("/status", {"metadata": {"labels": {"pool": "x"}}}, "may change labels of the driver only, not pool."),
        ("", {"metadata": {"annotations": {"x": "y"}}}, "may change no metadata of a Node but labels."),
        ("", {"spec": {"unschedulable": True}}, "may change nothing in the spec of a Node"),
        ("", {"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}}, "may remove the startup taint of a Node"),
        ("/status", {"status": {"capacity": {"example.com/x": "1"}}}, "may change nothing in the status of a Node"),
        ("/status", {"status": {"conditions": []}}, "may change nothing in the status of a Node"),
    ],
)  # fmt: skip
def test_of_the_own_node_nothing_else_is_changed(
    writing: Driver, token: Path, path: str, body: Object, said: str
) -> None:
    before = a_node(writing)
    assert said in patch(writing, token, NODE + path, body)
    after = a_node(writing)
    assert (after["spec"], after["metadata"]["labels"]) == (
        before["spec"],
        before["metadata"]["labels"],
    )


def test_the_policys_expressions_fit_the_types_that_they_look_at(writing: Driver) -> None:
    policy = wait_until(
        lambda: [
            found
            for found in [writing.cluster.get("validatingadmissionpolicy", f"{NAME}-node")]
            if found.get("status")
        ],
        "the type check of the policy",
    )
    assert policy[0]["status"]["typeChecking"] == {}
