# SPDX-License-Identifier: Apache-2.0
"""What may a driver pod write whose node was taken over?

The chart's rights and its ValidatingAdmissionPolicy, under names of their own, on the real API server; the tokens are what a
kubelet would give to a pod of the driver, and what it would not.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from onenode import helm, node_files
from onenode.cluster import Cluster
from onenode.namespaces import wait_until

pytestmark = pytest.mark.real

NAME = "admission"  # of the release, its namespace and its account
ACCOUNT = f"system:serviceaccount:{NAME}:{NAME}-dra-driver"
DRIVER = "admission.example.com"
NODE = node_files.NODE
GROUP = "resource.k8s.io"
RIGHTS = (
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
Object = dict[str, Any]


def rights(cluster: Cluster, home: Path) -> list[Object]:
    """What the chart grants, without the DaemonSet that would use it."""
    values = ("--namespace", NAME, "--set", f"driverName={DRIVER}")
    version = ("--kube-version", cluster.options.version)
    ended = helm.helm("template", NAME, str(helm.CHART), *values, *version, home=home)
    assert ended.returncode == 0, ended.stderr
    documents = [document for document in yaml.safe_load_all(ended.stdout) if document]
    return [document for document in documents if document["kind"] in RIGHTS]


@dataclass(frozen=True, slots=True)
class Writer:
    """Somebody with a token of the driver's service account."""

    cluster: Cluster
    kubeconfig: Path
    version: str

    def send(self, verb: str, name: str, body: Object | None = None) -> str:
        """One request; answers how it was refused, or nothing."""
        path = f"/apis/{GROUP}/{self.version}/resourceslices" + (f"/{name}" if name else "")
        data = ("-f", "-") if body else ()
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), verb, "--raw", path, *data]
        text = json.dumps(body) if body else None
        return self._ask(command, text).stderr.strip()

    def _ask(self, command: list[str], text: str | None) -> subprocess.CompletedProcess[str]:
        return self.cluster.namespaces.run(command, env=self.cluster.environment, stdin=text)

    def create(self, body: Object) -> str:
        return self.send("create", "", body)

    def update(self, body: Object) -> str:
        return self.send("replace", body["metadata"]["name"], body)

    def delete(self, name: str) -> str:
        return self.send("delete", name)


def a_slice(version: str, **spec: Any) -> Object:
    """A slice of the own node and pool, but for what is given."""
    pool = {"name": spec.pop("pool", NODE), "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": []} | spec
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{NAME}-slice"},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("helm")


@pytest.fixture(scope="module")
def granted(cluster: Cluster, home: Path) -> Iterator[Cluster]:
    """The cluster with the rights in force, and a pod of the service account on the node."""
    objects = rights(cluster, home)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "driver", "namespace": NAME},
        "spec": {
            "serviceAccountName": f"{NAME}-dra-driver",
            "nodeName": NODE,
            "containers": [{"name": "main", "image": node_files.IMAGE}],
            "terminationGracePeriodSeconds": 0,
        },
    }
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME}})
    cluster.apply(*objects)
    wait_until(
        lambda: cluster.kubectl(
            "--namespace", NAME, "get", "serviceaccount", "default", "-o", "name", check=False
        ),
        "the service account of the namespace",
    )
    cluster.apply(pod)
    stranger = Writer(cluster, kubeconfig(cluster, home, "probe", *BOUND), cluster.resource_api)
    foreign = a_slice(cluster.resource_api, driver="probe.example.com")

    def policy_holds() -> bool:
        """An API server takes some seconds to heed a new policy."""
        if "denied request" in stranger.create(foreign):
            return True
        cluster.kubectl("delete", "resourceslice", f"{NAME}-slice", "--ignore-not-found")
        return False

    wait_until(policy_holds, "the policy to be in force")
    yield cluster
    for document in objects:
        kind, metadata = document["kind"], document["metadata"]
        where = ("--namespace", metadata["namespace"]) if "namespace" in metadata else ()
        cluster.kubectl(*where, "delete", kind, metadata["name"])
    cluster.kubectl("delete", "namespace", NAME, "--wait=false")


BOUND = ("--bound-object-kind", "Pod", "--bound-object-name", "driver")


def kubeconfig(cluster: Cluster, home: Path, name: str, *bound: str) -> Path:
    """A kubeconfig with a fresh token of the account."""
    account = (f"{NAME}-dra-driver", "--namespace", NAME)
    token = cluster.kubectl("create", "token", *account, *bound).strip()
    path = home / name
    path.write_text(node_files.kubeconfig(cluster.root, token))
    return path


def served(cluster: Cluster) -> list[str]:
    lines = cluster.kubectl("api-versions").split()
    ours = [line.removeprefix(f"{GROUP}/") for line in lines if line.startswith(f"{GROUP}/")]
    return [version for version in ours if version in ("v1", "v1beta2", "v1beta1")]


@pytest.fixture
def pod(granted: Cluster, home: Path) -> Writer:
    """The driver's pod: its token names the pod, and by it the node."""
    return Writer(granted, kubeconfig(granted, home, "bound", *BOUND), granted.resource_api)


@pytest.fixture
def other_nodes_slice(granted: Cluster) -> Iterator[Object]:
    """Somebody else's slice, that of another node of the same driver."""
    body = a_slice(granted.resource_api, nodeName="other-node", pool="other-node")
    body["metadata"]["name"] = "other-nodes-slice"
    granted.kubectl("create", "-f", "-", stdin=json.dumps(body))
    yield granted.get("resourceslice", "other-nodes-slice")
    granted.kubectl("delete", "resourceslice", "other-nodes-slice")


def test_a_pod_creates_changes_and_deletes_the_slices_of_its_node(pod: Writer) -> None:
    assert pod.create(a_slice(pod.version)) == ""
    stored = json.loads(pod.cluster.kubectl("get", "resourceslice", f"{NAME}-slice", "-o", "json"))
    assert pod.update(stored) == ""
    assert pod.delete(f"{NAME}-slice") == ""
    assert (
        pod.cluster.kubectl("get", "resourceslices", "--field-selector", f"spec.driver={DRIVER}")
        == ""
    )


@pytest.mark.parametrize(
    ("difference", "said"),
    [
        (
            {"nodeName": "other-node"},
            f"{ACCOUNT} runs on node {NODE} and may write ResourceSlices of that node only, not of other-node.",
        ),
        (
            {"nodeName": None, "allNodes": True},
            f"{ACCOUNT} runs on node {NODE} and may write ResourceSlices of that node only, not of several nodes.",
        ),
        (
            {"driver": "gpu.example.com"},
            f"{ACCOUNT} may write ResourceSlices of driver {DRIVER} only.",
        ),
        (
            {"pool": "other-node"},
            f"{ACCOUNT} runs on node {NODE} and may write ResourceSlices of the pool of that name only, not of other-node.",
        ),
    ],
    ids=["another node", "all nodes", "another driver", "another node's pool"],
)
def test_a_pod_is_refused_what_is_not_its_own(
    pod: Writer, difference: dict[str, Any], said: str
) -> None:
    for version in served(pod.cluster):
        writer = Writer(pod.cluster, pod.kubeconfig, version)
        assert said in writer.create(a_slice(version, **difference))


def test_a_pod_can_neither_change_nor_delete_another_nodes_slice(
    pod: Writer, other_nodes_slice: Object
) -> None:
    said = "may write ResourceSlices of that node only, not of other-node."
    assert said in pod.update({**other_nodes_slice, "apiVersion": f"{GROUP}/{pod.version}"})
    assert said in pod.delete("other-nodes-slice")
    assert pod.cluster.get("resourceslice", "other-nodes-slice") == other_nodes_slice


def test_a_token_without_a_pod_writes_nothing(granted: Cluster, home: Path) -> None:
    writer = Writer(granted, kubeconfig(granted, home, "unbound"), granted.resource_api)
    said = f"{ACCOUNT} may write ResourceSlices only from a pod: this token names no node."
    assert said in writer.create(a_slice(writer.version))


def test_the_policys_expressions_fit_the_types_that_they_look_at(granted: Cluster) -> None:
    policy = wait_until(
        lambda: [
            found
            for found in [granted.get("validatingadmissionpolicy", f"{NAME}-dra-driver")]
            if found.get("status")
        ],
        "the type check of the policy",
    )
    assert policy[0]["status"]["typeChecking"] == {}


def test_the_account_may_do_what_the_driver_does_and_no_more(granted: Cluster) -> None:
    answers = {
        question: granted.kubectl(
            "auth", "can-i", *question.split(), f"--as={ACCOUNT}", check=False
        )
        for question in (
            *(f"{verb} resourceslices" for verb in ("list", "watch", "create", "update", "delete")),
            "get resourceclaims --all-namespaces",
            "list resourceclaims --all-namespaces",
            "get nodes",
            "create events --namespace=default",
            # and no more
            f"create events --namespace={NAME}",
            "deletecollection resourceslices",
            "update resourceclaims --subresource=status --all-namespaces",
            "list nodes",
            "get secrets --all-namespaces",
            "create deviceclasses",
        )
    }
    allowed = [question for question, answer in answers.items() if answer.strip() == "yes"]
    assert allowed == list(answers)[:9]
