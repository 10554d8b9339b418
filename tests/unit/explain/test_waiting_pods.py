# SPDX-License-Identifier: Apache-2.0
"""Which pods wait: of a workload, by its owner or by names, or all that ask for devices."""

from typing import Any

import msgspec
import pytest

from dra_driver.errors import Permanent
from dra_driver.explain.several import explain_several
from dra_driver.explain.subject.labels import parse_selector
from dra_driver.explain.subject.lookup import Cluster
from dra_driver.explain.subject.subject import PendingSubject, WorkloadSubject
from dra_driver.explain.waiting_pods import PodsOf, pods_of
from dra_driver.model.cluster import ClusterState

Object = dict[str, Any]
CLAIMS = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}
WEB = WorkloadSubject("Deployment", "ns", "web")


def pod(name: str, owner: tuple[str, str] | None = None, **more: Any) -> Object:
    """A pod; the owner's UID is its name."""
    metadata: Object = {"name": name, "namespace": more.pop("namespace", "ns")}
    metadata |= {key: more.pop(key) for key in ("labels", "deletionTimestamp") if key in more}
    if owner:
        kind, of = owner
        metadata["ownerReferences"] = [
            {"kind": "Pod", "name": "other", "uid": "other"},
            {"kind": kind, "name": of, "uid": of, "controller": True},
        ]
    node, phase = more.pop("node", ""), more.pop("phase", "Pending")
    return {"metadata": metadata, "spec": {"nodeName": node, **more}, "status": {"phase": phase}}


def workload(kind: str, name: str, owner: str = "", **parts: Any) -> Object:
    metadata: Object = {"name": name, "namespace": "ns", "uid": name}
    if owner:
        metadata["ownerReferences"] = [{"uid": owner, "controller": True}]
    return {"kind": kind, "metadata": metadata, **parts}


def cluster(*pods: Object, recorded: bool = False, **fields: Any) -> Cluster:
    return Cluster(msgspec.convert({"pods": pods, **fields}, ClusterState), recorded)


def names(found: PodsOf) -> list[str]:
    return [one.metadata.name for one in found.waiting]


def test_pending_pods_are_those_that_ask_for_devices_and_have_no_node() -> None:
    where = cluster(
        pod("claims", **CLAIMS),
        pod("plain", containers=[{"resources": {"requests": {"cpu": "1"}}}]),
        pod("extended", containers=[{"resources": {"requests": {"example.com/gpu": "1"}}}]),
        pod("limit", containers=[{"resources": {"limits": {"example.com/gpu": "1"}}}]),
        pod("none", containers=[{"resources": {"requests": {"example.com/gpu": "0"}}}]),
        pod("placed", node="n", phase="Running", **CLAIMS),
        pod("over", phase="Failed", **CLAIMS),
        pod("leaving", deletionTimestamp="2026-01-01T00:00:00Z", **CLAIMS),
        pod("elsewhere", namespace="other", **CLAIMS),
    )
    found = pods_of(where, PendingSubject("ns"))
    assert names(found) == ["claims", "extended", "limit"]
    assert found.says == "3 pods that ask for devices wait for a node"
    assert not found.settled
    assert names(pods_of(where, PendingSubject(""))) == ["claims", "extended", "limit", "elsewhere"]


def test_a_pod_that_names_its_node_waits_until_its_claim_has_devices() -> None:
    """The scheduler does not see it, and nobody else gives its claim devices."""
    claim: Object = {"metadata": {"name": "c", "namespace": "ns"}}
    named = pod("named", ("ReplicaSet", "web"), node="n", **CLAIMS)
    plain = pod("plain", node="n")
    there = cluster(named, plain, resourceClaims=(claim,), recorded=True)
    found = pods_of(there, PendingSubject("ns"))
    assert names(found) == ["named"]
    assert found.says == "1 pod that asks for devices waits for a node or for devices"
    of = pods_of(there, WorkloadSubject("ReplicaSet", "ns", "web"))
    assert (names(of), of.says) == (["named"], "1 of 1 pods wait for a node or for devices")
    has = {**claim, "status": {"allocation": {"devices": {}}}}
    assert names(pods_of(cluster(named, resourceClaims=(has,)), PendingSubject("ns"))) == []
    gap = {"resource": "resourceclaims", "reason": "forbidden", "message": "no"}
    assert names(pods_of(cluster(named, notRead=(gap,)), PendingSubject("ns"))) == []


def test_that_pods_of_other_namespaces_wait_is_said_if_none_waits_here() -> None:
    there = [pod("a", namespace="team-a", **CLAIMS), pod("b", namespace="team-b", **CLAIMS)]
    none = "no pod that asks for devices waits for a node"
    more = "-A (--all-namespaces) shows all namespaces"
    one = pods_of(cluster(there[0]), PendingSubject("ns"))
    assert one.says == f"{none}; 1 waits in team-a: {more}"
    assert pods_of(cluster(*there), PendingSubject("ns")).says == (
        f"{none}; 2 wait in team-a, team-b: {more}"
    )
    here = pods_of(cluster(*there, pod("c", **CLAIMS)), PendingSubject("ns"))
    assert here.says == "1 pod that asks for devices waits for a node"


def test_pods_of_which_a_quantity_cannot_be_read_wait_too() -> None:
    bad = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "lots"}}}], **CLAIMS}
    pods = (
        pod("a", **bad),
        pod("b", namespace="other", **bad),
        pod("runs", node="n", **bad),
        pod("over", phase="Failed", **bad),
    )
    whole = cluster(*pods, pod("good", **CLAIMS)).state

    def found(namespace: str) -> tuple[str, list[str], int]:
        report = explain_several(whole, [PendingSubject(namespace)])
        unread = [one.summary for one in report.items if one.subject.startswith("pods that")]
        return report.summary.partition(";")[0], unread, report.exit_code

    one = "1 pod that asks for devices waits for a node"
    assert found("ns") == (one, ["what ns/a asks for could not be read"], 1)
    assert found("") == (one, ["what ns/a, other/b ask for could not be read"], 1)
    none = "no pod that asks for devices waits for a node"
    assert found("other") == (none, ["what other/b asks for could not be read"], 2)
    assert found("third")[1:] == ([], 0)


def test_labels_choose_among_the_pending_pods() -> None:
    where = cluster(pod("a", labels={"app": "a"}, **CLAIMS), pod("b", **CLAIMS))
    subject = PendingSubject("ns", parse_selector("app=a"))
    assert subject.title == "pending pods of namespace ns with app=a"
    assert names(pods_of(where, subject)) == ["a"]
    none = pods_of(where, PendingSubject("ns", parse_selector("app=b")))
    assert (none.says, none.settled) == ("no pod that asks for devices waits for a node", True)
    assert pods_of(where, subject).says == "1 pod that asks for devices waits for a node"


def test_a_namespace_that_is_not_there_is_an_error() -> None:
    known = [{"metadata": {"name": "ns"}}]
    with pytest.raises(Permanent, match="there is no namespace nope in this cluster"):
        pods_of(cluster(namespaces=known), PendingSubject("nope"))
    with pytest.raises(Permanent, match="there is no namespace nope in the record"):
        pods_of(cluster(namespaces=known, recorded=True), PendingSubject("nope"))
    assert PendingSubject("").title == "pending pods of all namespaces"


@pytest.mark.parametrize("subject", [PendingSubject("ns"), WEB])
def test_without_the_right_to_read_pods_nothing_is_found(
    subject: PendingSubject | WorkloadSubject,
) -> None:
    gap = {"resource": "pods", "reason": "forbidden", "message": "may not list"}
    with pytest.raises(Permanent, match=f"cannot find {subject.title}: may not list"):
        pods_of(cluster(notRead=[gap]), subject)
    with pytest.raises(Permanent):
        pods_of(cluster(pod("p", namespace="other"), notRead=[gap]), subject)
    one = {**gap, "name": "ns/other"}
    assert pods_of(cluster(notRead=[one]), PendingSubject("ns")).waiting == ()


def test_pods_of_the_namespace_alone_are_enough() -> None:
    gap = {"resource": "pods", "reason": "forbidden", "message": "may not list"}
    where = cluster(pod("p", **CLAIMS), notRead=[gap])
    assert names(pods_of(where, PendingSubject("ns"))) == ["p"]
    with pytest.raises(Permanent, match="cannot find pending pods of all namespaces"):
        pods_of(where, PendingSubject(""))


def test_a_deployment_has_the_pods_of_its_replica_sets() -> None:
    where = cluster(
        pod("old", ("ReplicaSet", "web-1"), node="n"),
        pod("new", ("ReplicaSet", "web-2")),
        pod("gone", ("ReplicaSet", "web-2"), phase="Succeeded"),
        pod("other", ("ReplicaSet", "db-1")),
        pod("alone"),
        pod("elsewhere", ("ReplicaSet", "web-2"), namespace="other"),
        workloads=[
            workload("Deployment", "web", spec={"replicas": 2}),
            workload("ReplicaSet", "web-1", "web"),
            workload("ReplicaSet", "web-2", "web"),
            workload("ReplicaSet", "db-1", "db"),
        ],
    )
    found = pods_of(where, WEB)
    assert names(found) == ["new"]
    assert (found.says, found.lacking) == ("1 of 2 pods wait for a node", "")


@pytest.mark.parametrize(
    ("count", "says"), [(1, "its pod has a node"), (2, "all 2 pods have a node")]
)
def test_a_workload_whose_pods_all_run_is_settled(count: int, says: str) -> None:
    pods = [pod(str(number), ("StatefulSet", "db"), node="n") for number in range(count)]
    stored = workload("StatefulSet", "db", spec={"replicas": count})
    found = pods_of(cluster(*pods, workloads=[stored]), WorkloadSubject("StatefulSet", "ns", "db"))
    assert found == PodsOf((), says)
    assert found.settled


@pytest.mark.parametrize(
    ("policy", "later"), [({}, True), ({"podManagementPolicy": "Parallel"}, False)]
)
def test_a_stateful_set_makes_one_pod_after_the_other(policy: Object, *, later: bool) -> None:
    stored = workload("StatefulSet", "db", spec={"replicas": 3, **policy})
    where = cluster(pod("db-0", ("StatefulSet", "db"), node="n"), workloads=[stored])
    found = pods_of(where, WorkloadSubject("StatefulSet", "ns", "db"))
    assert (found.later, bool(found.lacking), found.settled) == (later, not later, False)
    more = "; it wants 3, and makes each when the one before is ready" if later else ""
    assert found.says == f"its pod has a node{more}"
    none = pods_of(cluster(workloads=[stored]), WorkloadSubject("StatefulSet", "ns", "db"))
    assert none.lacking.startswith("it wants 3 pods and has 0")


@pytest.mark.parametrize(
    ("kind", "parts", "lacking"),
    [
        ("ReplicaSet", {"spec": {"replicas": 3}}, "it wants 3 pods and has 0"),
        ("ReplicaSet", {}, "it wants 1 pods and has 0"),
        ("ReplicaSet", {"spec": {"replicas": 0}}, ""),
        ("DaemonSet", {"status": {"desiredNumberScheduled": 2}}, "it wants 2 pods and has 0"),
        ("DaemonSet", {}, ""),
        ("Job", {"spec": {"suspend": True}}, "it is suspended"),
        ("Job", {"spec": {"parallelism": 2}}, "it wants 2 pods and has 0"),
        ("Job", {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, ""),
        ("CronJob", {"spec": {"suspend": True}}, ""),
    ],
)
def test_pods_that_are_not_made_are_told(kind: str, parts: Object, lacking: str) -> None:
    where = cluster(workloads=[workload(kind, "w", **parts)])
    found = pods_of(where, WorkloadSubject(kind, "ns", "w"))
    assert found.says == "it has no pods now"
    assert found.lacking.startswith(lacking)
    assert bool(found.lacking) is bool(lacking)
    assert found.settled is not bool(lacking)
    assert (" -n ns -o yaml | dra-driver explain -f -` says" in found.lacking) is bool(lacking)


def test_a_workload_that_is_not_there_is_an_error_that_names_others() -> None:
    where = cluster(workloads=[workload("Deployment", "db"), workload("ReplicaSet", "web")])
    with pytest.raises(Permanent, match=r"no deployment ns/web in this cluster: .* ns has db;"):
        pods_of(where, WEB)
    where = cluster(workloads=[workload("Deployment", "db"), workload("Deployment", "webb")])
    with pytest.raises(Permanent, match=r"in this cluster: did you mean webb\?"):
        pods_of(where, WEB)
    with pytest.raises(Permanent, match="namespace ns has none; give another one with -n"):
        pods_of(cluster(), WEB)
    with pytest.raises(Permanent, match="there is no namespace ns either"):
        pods_of(cluster(namespaces=[{"metadata": {"name": "x"}}]), WEB)


OWNED = (
    pod("d", ("ReplicaSet", "web-5f"), labels={"pod-template-hash": "5f"}),
    pod("r", ("ReplicaSet", "web-6f")),
    pod("c", ("Job", "nightly-29384756")),
    pod("j", ("Job", "nightly")),
    pod("k", ("PyTorchJob", "train")),
    pod("p"),
)


@pytest.mark.parametrize(
    ("kind", "name", "pods"),
    [
        ("Deployment", "web", ["d"]),
        ("ReplicaSet", "web-5f", ["d"]),
        ("ReplicaSet", "web-6f", ["r"]),
        ("CronJob", "nightly", ["c"]),
        ("Job", "nightly", ["j"]),
    ],
)
def test_in_a_record_and_without_the_right_to_read_workloads_names_tell(
    kind: str, name: str, pods: list[str]
) -> None:
    subject = WorkloadSubject(kind, "ns", name)
    assert names(pods_of(cluster(*OWNED, recorded=True), subject)) == pods
    resource = {"Deployment": "replicasets", "CronJob": "jobs"}.get(kind, f"{kind.lower()}s")
    gap = {"resource": resource, "reason": "forbidden", "message": "may not list"}
    assert names(pods_of(cluster(*OWNED, notRead=[gap]), subject)) == pods
    with pytest.raises(Permanent, match=f"cannot find pods of {kind.lower()} ns/x: may not list"):
        pods_of(cluster(*OWNED, notRead=[gap]), WorkloadSubject(kind, "ns", "x"))


def test_a_record_without_the_pods_says_whose_it_has() -> None:
    with pytest.raises(Permanent) as caught:
        pods_of(cluster(*OWNED, recorded=True), WorkloadSubject("StatefulSet", "ns", "db"))
    assert str(caught.value) == (
        "cannot find pods of statefulset ns/db: a record has the pods of workloads, not the workloads; this one has pods of "
        "deployment ns/web, replicaset ns/web-6f, cronjob ns/nightly, job ns/nightly"
    )


def test_a_record_with_pods_of_such_a_workload_elsewhere_says_where() -> None:
    with pytest.raises(Permanent) as caught:
        pods_of(cluster(*OWNED, recorded=True), WorkloadSubject("Deployment", "other", "web"))
    assert str(caught.value) == (
        "cannot find pods of deployment other/web: the record has pods of one in ns: give it with -n"
    )
