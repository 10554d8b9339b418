# SPDX-License-Identifier: Apache-2.0
"""What may be written from a node that was taken over, by a driver pod and with the kubelet's own credentials?

The chart's rights and its ValidatingAdmissionPolicy, under names of their own, on the real API server; the tokens are what a
kubelet would give to a pod of the driver, what it would not, and the kubelet's.
"""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.model.ids import DriverName, NodeName
from dra_driver.planning.reconcile import slice_name
from hack.testbed.onenode import helm, node_files
from hack.testbed.onenode.cluster import Cluster
from hack.testbed.onenode.namespaces import wait_until
from tests.support.admission_attempts import A_NODE_OWNER, attempts, with_metadata

pytestmark = pytest.mark.real

NAME = "admission"  # of the release, its namespace and its account
ACCOUNT = f"system:serviceaccount:{NAME}:{NAME}-dra-driver"
DRIVER = "admission.example.com"
NODE = node_files.NODE
GROUP = "resource.k8s.io"
SLICE = f"00000-{DRIVER}-{NODE}"
VICTIM = "other-node"
RIGHTS = (
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
SLICE_VERBS = ("get", "list", "watch", "create", "update", "delete")
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
    """Somebody with a token of the driver's service account, or of the kubelet."""

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

    def update(self, body: Object, name: str = "") -> str:
        return self.send("replace", name or body["metadata"]["name"], body)

    def delete(self, name: str) -> str:
        return self.send("delete", name)


def a_slice(version: str, **spec: Any) -> Object:
    """A slice of the own node and pool, but for what is given."""
    pool = {"name": spec.pop("pool", NODE), "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": []} | spec
    return {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": SLICE},
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
        cluster.kubectl("delete", "resourceslice", SLICE, "--ignore-not-found")
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
    return written(
        cluster, home / name, cluster.kubectl("create", "token", *account, *bound).strip()
    )


def written(cluster: Cluster, path: Path, token: str) -> Path:
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
    body = a_slice(granted.resource_api, nodeName=VICTIM, pool=VICTIM)
    body["metadata"]["name"] = f"00000-{DRIVER}-{VICTIM}"
    granted.kubectl("create", "-f", "-", stdin=json.dumps(body))
    yield granted.get("resourceslice", body["metadata"]["name"])
    granted.kubectl("delete", "resourceslice", body["metadata"]["name"])


def test_a_pod_creates_changes_and_deletes_the_slices_of_its_node(pod: Writer) -> None:
    assert pod.create(a_slice(pod.version)) == ""
    stored = json.loads(pod.cluster.kubectl("get", "resourceslice", SLICE, "-o", "json"))
    assert pod.update(stored) == ""
    assert pod.delete(SLICE) == ""
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
    name = other_nodes_slice["metadata"]["name"]
    assert said in pod.delete(name)
    assert pod.cluster.get("resourceslice", name) == other_nodes_slice


# Names, finalizers and owners: what could be turned against another node, or against who cleans up.

ATTEMPTS = attempts(ACCOUNT, DRIVER, NODE, VICTIM)
ONLY_NAMES, NO_FINALIZERS = ATTEMPTS.only_names, ATTEMPTS.no_finalizers
METADATA = ATTEMPTS.metadata


@pytest.mark.parametrize("how", METADATA)
def test_a_pod_makes_no_slice_of_another_name_or_owner(pod: Writer, how: str) -> None:
    metadata, said = METADATA[how]
    for version in served(pod.cluster):
        writer = Writer(pod.cluster, pod.kubeconfig, version)
        assert said in writer.create(with_metadata(a_slice(version), metadata))
    fields = ("--field-selector", f"spec.driver={DRIVER}", "-o", "name")
    assert pod.cluster.kubectl("get", "resourceslices", *fields) == ""


@pytest.mark.parametrize("how", [how for how in METADATA if "name" not in METADATA[how][0]])
def test_a_pod_cannot_change_its_own_slice_to_that(pod: Writer, how: str) -> None:
    metadata, said = METADATA[how]
    assert pod.create(a_slice(pod.version)) == ""
    try:
        for version in served(pod.cluster):
            path = f"/apis/{GROUP}/{version}/resourceslices/{SLICE}"
            stored = json.loads(pod.cluster.kubectl("get", "--raw", path))
            writer = Writer(pod.cluster, pod.kubeconfig, version)
            assert said in writer.update(with_metadata(stored, metadata))
    finally:
        assert pod.delete(SLICE) == ""


def test_a_pod_creates_nothing_by_an_update_of_what_is_not_there(pod: Writer) -> None:
    name = f"00000-{DRIVER}-{VICTIM}"
    said = pod.update(with_metadata(a_slice(pod.version), {"name": name}), name)
    assert ONLY_NAMES in said or "not found" in said
    assert pod.cluster.kubectl("get", "resourceslice", name, "--ignore-not-found") == ""


def test_a_pod_cannot_go_on_with_a_slice_of_a_victims_name_that_it_made_before_the_policy(
    pod: Writer,
) -> None:
    """It may delete it; an admin may too, since no finalizer holds it."""
    name = f"00000-{DRIVER}-{VICTIM}"
    body = with_metadata(a_slice(pod.version), {"name": name})
    pod.cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))
    stored = json.loads(pod.cluster.kubectl("get", "resourceslice", name, "-o", "json"))
    assert ONLY_NAMES in pod.update(stored)
    assert ONLY_NAMES in pod.update(with_metadata(stored, {"finalizers": ["example.com/hold"]}))
    assert pod.delete(name) == ""


def test_a_pod_takes_the_names_that_the_driver_gives(pod: Writer) -> None:
    """The first and last slice of a node, the first and last name for one that is taken, each with the Node as owner."""
    node = json.loads(pod.cluster.kubectl("get", "node", NODE, "-o", "json"))
    owner = {**A_NODE_OWNER, "name": NODE, "uid": node["metadata"]["uid"], "controller": True}
    for index, variant in ((0, 0), (255, 0), (0, 1), (255, 15)):
        name = slice_name(index, DriverName(DRIVER), NodeName(NODE), variant=variant)
        body = with_metadata(a_slice(pod.version), {"name": name, "ownerReferences": [owner]})
        assert pod.create(body) == ""
        assert pod.delete(name) == ""


def test_a_pod_takes_off_a_finalizer_that_somebody_else_put_on(pod: Writer) -> None:
    body = with_metadata(a_slice(pod.version), {"finalizers": ["example.com/hold"]})
    pod.cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))
    stored = json.loads(pod.cluster.kubectl("get", "resourceslice", SLICE, "-o", "json"))
    assert pod.update(with_metadata(stored, {"finalizers": None})) == ""
    assert pod.delete(SLICE) == ""


def test_a_pod_can_see_whose_a_taken_name_is(pod: Writer, other_nodes_slice: Object) -> None:
    path = f"/apis/{GROUP}/{pod.version}/resourceslices/{other_nodes_slice['metadata']['name']}"
    command = ["kubectl", "--kubeconfig", str(pod.kubeconfig), "get", "--raw", path]
    assert json.loads(pod._ask(command, None).stdout)["spec"]["nodeName"] == VICTIM


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
            *(f"{verb} resourceslices" for verb in SLICE_VERBS),
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
    assert allowed == list(answers)[:10]


# The kubelet's own credentials, which whoever has the node has too.

KUBELET = f"system:node:{NODE}"
AS_KUBELET = attempts(KUBELET, DRIVER, NODE, VICTIM).metadata


@pytest.fixture
def kubelet(granted: Cluster, home: Path) -> Writer:
    (token, user, _) = node_files.USERS["kubelet"]
    assert user == KUBELET
    return Writer(granted, written(granted, home / "kubelet", token), granted.resource_api)


def test_the_kubelets_credentials_write_nothing_of_another_nodes_pool(kubelet: Writer) -> None:
    said = f"{KUBELET} runs on node {NODE} and may write ResourceSlices of the pool of that name only, not of {VICTIM}."
    for version in served(kubelet.cluster):
        writer = Writer(kubelet.cluster, kubelet.kubeconfig, version)
        assert said in writer.create(a_slice(version, pool=VICTIM))


@pytest.mark.parametrize("how", AS_KUBELET)
def test_the_kubelets_credentials_make_no_slice_of_another_name_or_owner(
    kubelet: Writer, how: str
) -> None:
    metadata, said = AS_KUBELET[how]
    assert said in kubelet.create(with_metadata(a_slice(kubelet.version), metadata))


def test_the_kubelets_credentials_cannot_change_a_slice_to_that(kubelet: Writer) -> None:
    """They write what the driver would, as a driver does that runs with them; and they delete it."""
    metadata, said = AS_KUBELET["a finalizer"]
    assert kubelet.create(a_slice(kubelet.version)) == ""
    stored = json.loads(kubelet.cluster.kubectl("get", "resourceslice", SLICE, "-o", "json"))
    # The node authorizer knows a new slice some moments later.
    wait_until(lambda: kubelet.update(stored) == "", "the kubelet's right to its slice")
    assert said in kubelet.update(with_metadata(stored, metadata))
    assert kubelet.delete(SLICE) == ""


def test_the_kubelet_deletes_what_is_on_its_node_whatever_it_is(kubelet: Writer) -> None:
    """As it does when a driver is gone: all slices of the driver at once."""
    body = with_metadata(a_slice(kubelet.version, pool=VICTIM), {"name": "anything"})
    kubelet.cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))
    path = f"/apis/{GROUP}/{kubelet.version}/resourceslices"
    selected = f"{path}?fieldSelector=spec.nodeName%3D{NODE}%2Cspec.driver%3D{DRIVER}"
    command = ["kubectl", "--kubeconfig", str(kubelet.kubeconfig), "delete", "--raw", selected]
    assert kubelet._ask(command, None).stderr == ""
    assert kubelet.cluster.kubectl("get", "resourceslice", "anything", "--ignore-not-found") == ""


def test_the_kubelets_credentials_write_for_other_drivers_but_under_no_name_of_ours(
    kubelet: Writer,
) -> None:
    theirs = a_slice(kubelet.version, driver="gpu.example.com", pool="anything")
    name = f"00000-{DRIVER}-{VICTIM}"
    said = f"{KUBELET} may write ResourceSlices of names like {name} of driver {DRIVER} only."
    assert said in kubelet.create(with_metadata(theirs, {"name": name}))
    assert kubelet.create(with_metadata(theirs, {"name": "", "generateName": f"{NODE}-"})) == ""
    fields = ("--field-selector", "spec.driver=gpu.example.com")
    kubelet.cluster.kubectl("delete", "resourceslices", *fields)
