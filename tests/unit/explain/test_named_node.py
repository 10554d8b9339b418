# SPDX-License-Identifier: Apache-2.0
"""Pods that name their node themselves: what they never get there, and where their devices would fit without that."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dra_driver.explain.facts.named_node import bound_to
from dra_driver.explain.outcome import PodCount, Report
from dra_driver.explain.remedy import fix
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.explain.subject.lookup import Cluster
from dra_driver.explain.subject.resolve import resolve
from dra_driver.explain.subject.subject import PendingSubject
from dra_driver.explain.verdict import (
    BindingFailed,
    ClaimMissing,
    ClaimReservedForOthers,
    NodeSelectorMismatch,
    OtherCondition,
    Verdict,
)
from dra_driver.explain.verdicts.pod import (
    LISTS_NONE,
    NAMED_NODE,
    NAMED_REFUSED,
    NAMED_UNFIT,
    STARTS_WITHOUT,
)
from dra_driver.explain.waiting_pods import pods_of
from dra_driver.model.api.core import Pod
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import HOME, MINE, devices, resource_slice
from tests.unit.explain.clusters import holder, state
from tests.unit.explain.test_help_where import OTHER, THIRD, of
from tests.unit.explain.test_replicas import FROM_TEMPLATE, TAINT, answer, workload
from tests.unit.explain.test_report import MINE as SUBJECT
from tests.unit.explain.test_report import owned, pod, with_pod

EMPTY, REPELS = OTHER, THIRD
OTHERS = (
    words.node(EMPTY),
    words.node(REPELS, taints=[TAINT]),
    resource_slice(devices(1), pool=REPELS),
)
"""Beside the first node, one without devices and one with a taint."""


def named(name: str, cluster: ClusterState | None = None, **more: Any) -> Report:
    there = cluster or state(resource_slice(devices(1)), owned(), *OTHERS)
    return explain(with_pod(there, pod(spec={"nodeName": name} if name else {})), SUBJECT, **more)


@pytest.mark.parametrize("node", [HOME, EMPTY, REPELS])
def test_where_the_devices_fit_is_counted_without_the_name_of_the_node(node: str) -> None:
    free, report = named(""), named(node)
    assert free.summary == (
        "the devices fit on 1 of 3 nodes (and on 1 more, which would not take the pod)"
    )
    assert report.summary.endswith(f": {node}; without it, {free.summary}")
    assert report.nodes == free.nodes


def test_of_another_node_it_is_told_whether_the_devices_fit_there() -> None:
    report = named(EMPTY, node=HOME)
    assert report.summary == f"{NAMED_UNFIT}: {EMPTY}; without it, the devices fit on 1 of 1 nodes"
    assert named(HOME, node=EMPTY).verdicts[0] == OtherCondition(NAMED_NODE, HOME)


@pytest.mark.parametrize("node", [HOME, EMPTY, REPELS])
def test_the_node_is_required_in_another_way_only_if_the_devices_fit_there(node: str) -> None:
    words_of_fix = fix(named(node).verdicts[0])
    assert ("nodeAffinity" in words_of_fix) is (node != EMPTY)
    assert words_of_fix.startswith("leave nodeName out")


def test_what_is_not_known_of_a_node_does_not_keep_the_devices_from_it() -> None:
    gap = {"resource": "nodes", "reason": "forbidden", "message": "m"}
    cluster = state(resource_slice(devices(1)), owned(), notRead=[gap])
    assert named("unread", cluster).verdicts[0] == OtherCondition(NAMED_NODE, "unread")


def test_a_pod_that_only_names_another_node_is_not_told_to_correct_a_selector() -> None:
    assert fix(NodeSelectorMismatch("nodeName n")).startswith("leave nodeName out")
    assert fix(NodeSelectorMismatch("nodeSelector zone=b")).startswith("correct the pod's")


# Workloads


GATED = {"schedulingGates": [{"name": "queue"}]}


@pytest.mark.parametrize("kind", ["Job", "Deployment"])
@pytest.mark.parametrize("spec", [GATED, {"nodeName": HOME}])
@pytest.mark.parametrize("free", [3, 0])
def test_no_claim_is_ended_for_pods_that_wait_for_something_else(
    kind: str, spec: Any, free: int
) -> None:
    held = [of(f"c{n}", f"gpu-{n}") for n in range(4 - free)]
    count = {"Job": "parallelism", "Deployment": "replicas"}[kind]
    made = workload(kind, pod=words.pod(of=FROM_TEMPLATE, **spec), **{count: 2})
    report = answer(state(resource_slice(devices(4)), *held), made)
    assert report.exit_code == (3 if free else 1)
    assert report.pods == PodCount(wanted=2, fit=0)
    assert report.changes == ()


def test_no_claim_is_ended_for_pods_that_cannot_use_another_one_of_theirs() -> None:
    ending = holder("gpu-1", "ending")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    made = words.pod(of=FROM_TEMPLATE)
    made["spec"]["resourceClaims"].append({"name": "more", "resourceClaimName": "ending"})
    cluster = state(resource_slice(devices(3)), of("a", "gpu-0"), of("b", "gpu-2"), ending)
    assert answer(cluster, workload("Job", pod=made, parallelism=2)).changes == ()


def test_no_claim_is_ended_for_pods_whose_devices_are_free() -> None:
    """Pods that were not read may use up the node."""
    gap = {"resource": "pods", "reason": "forbidden", "message": "m"}
    cluster = state(resource_slice(devices(4)), of("a", "gpu-0"), notRead=[gap])
    report = answer(cluster, workload("Job", parallelism=2))
    assert (report.exit_code, report.changes) == (2, ())


def test_a_daemon_set_that_names_a_node_has_one_pod() -> None:
    made = words.pod(of=FROM_TEMPLATE, nodeName=HOME)
    report = answer(state(resource_slice(devices(1)), *OTHERS), workload("DaemonSet", pod=made))
    assert report.pods == PodCount(wanted=1, fit=0)
    assert f"that on node {HOME}: {NAMED_NODE}" in report.summary
    assert all(not one.ends for one in report.changes)


# Claims that the kubelet refuses


def allocated(**status: Any) -> dict[str, Any]:
    made = holder("gpu-0", MINE)
    made["status"] |= status
    return made


def users(*names: str) -> list[dict[str, str]]:
    return [{"resource": "pods", "name": name, "uid": name} for name in names]


FULL = users(*(f"p{n}" for n in range(256)))
CLAIM = f"ns/{MINE}"


def placed(claim: dict[str, Any], made: Pod | None = None, **fields: Any) -> Report:
    cluster = state(resource_slice(devices(1)), claim, **fields)
    return explain(with_pod(cluster, made or pod(spec={"nodeName": HOME})), SUBJECT)


def gone(**status: Any) -> dict[str, Any]:
    made = allocated(**status)
    made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made


def of_another() -> tuple[dict[str, Any], Pod]:
    """A claim that was made for a pod of the same name, which is gone."""
    claim = allocated()
    owner = {"kind": "Pod", "name": MINE, "uid": "before", "controller": True}
    claim["metadata"]["ownerReferences"] = [owner]
    made = [{"name": "devices", "resourceClaimName": MINE}]
    status = {"resourceClaimStatuses": made}
    return claim, pod(of=FROM_TEMPLATE, status=status, spec={"nodeName": HOME})


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (placed(allocated(reservedFor=FULL)), ClaimReservedForOthers(CLAIM, 256)),
        (placed(gone()), ClaimMissing(CLAIM, "is being deleted")),
        (placed(*of_another()), ClaimMissing(CLAIM, "was not made for this pod: delete it")),
    ],
    ids=["full", "being deleted", "of another pod"],
)
def test_a_pod_whose_claim_the_kubelet_refuses_is_not_told_that_it_fits(
    report: Report, reason: Verdict
) -> None:
    assert (report.exit_code, report.outcome) == (1, "devices do not fit")
    assert report.verdicts == (OtherCondition(NAMED_REFUSED, str(reason)),)
    assert report.claims[0].verdicts == (reason,)
    assert fix(report.verdicts[0]).endswith("when the pod can use its claims")


@pytest.mark.parametrize(
    "report",
    [
        placed(allocated(reservedFor=users("u", *(f"p{n}" for n in range(255))))),
        placed(gone(reservedFor=users("u"))),
        placed(gone(), pod(spec={"nodeName": HOME}, status={"phase": "Running"})),
    ],
    ids=["full", "being deleted", "running"],
)
def test_a_claim_that_is_reserved_for_the_pod_is_not_refused(report: Report) -> None:
    assert (report.exit_code, report.summary) == (0, f"scheduled on node {HOME}")


def test_the_kubelet_waits_for_no_binding_condition() -> None:
    claim = allocated()
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    result |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    of_device = {one: result[one] for one in ("driver", "pool", "device")}
    condition = {"type": "broken", "status": "True"}
    claim["status"]["devices"] = [{**of_device, "conditions": [condition]}]
    gates = ["DRADeviceBindingConditions"]
    waiting = placed(claim, pod(), gates=gates)
    assert any(isinstance(one, BindingFailed) for one in waiting.verdicts)
    assert placed(claim, gates=gates).exit_code == 0


# Extended resources


def extended(*, offered: str = "", gate: bool = True) -> ClusterState:
    """A class provides the resource; with `offered`, a device plugin of the node offers it too."""
    provider = words.device_class(name="provider")
    provider["spec"]["extendedResourceName"] = "example.com/gpu"
    gates = {"DRAExtendedResource": gate}
    cluster = state(resource_slice(devices(1)), provider, featureGates=gates)
    (node,) = cluster.nodes
    if offered:
        more = {**(node.status.allocatable or {}), "example.com/gpu": offered}
        node = replace(node, status=replace(node.status, allocatable=more))
    return replace(cluster, nodes=(node,))


def asking(**status: Any) -> Pod:
    asked = {"name": "main", "resources": {"requests": {"example.com/gpu": "1"}}}
    return pod(spec={"containers": [asked], "nodeName": HOME, "resourceClaims": []}, status=status)


def test_a_pod_that_starts_without_its_extended_resource_is_told_so() -> None:
    report = explain(with_pod(extended(), asking()), SUBJECT)
    assert (report.exit_code, report.outcome) == (3, "devices fit, something else is in the way")
    assert report.summary == (f"{NAMED_NODE}: {HOME}; without it, the devices fit on 1 of 1 nodes")
    assert report.verdicts[1] == OtherCondition(STARTS_WITHOUT, "example.com/gpu")
    assert fix(report.verdicts[1]).startswith("delete the pod")


def test_a_pod_is_refused_if_its_node_lists_none_of_its_extended_resource() -> None:
    cluster = extended(offered="0")
    (here,) = cluster.nodes
    other = replace(here, metadata=replace(here.metadata, name="other"))
    report = explain(with_pod(replace(cluster, nodes=(other, here)), asking()), SUBJECT)
    assert (report.exit_code, report.outcome) == (3, "devices fit, something else is in the way")
    assert report.verdicts[1:2] == (OtherCondition(LISTS_NONE, "example.com/gpu"),)
    assert fix(report.verdicts[1]).startswith("delete the pod")


def test_the_same_is_told_of_a_pod_of_a_file() -> None:
    made = words.pod()
    spec = msgspec.to_builtins(asking().spec)
    made["spec"] |= {"nodeName": HOME, "containers": spec["containers"], "resourceClaims": []}
    report = explain(extended(), ManifestSubject((made,), "ns", "f.yaml"))
    assert report.verdicts[1] == OtherCondition(STARTS_WITHOUT, "example.com/gpu")


@pytest.mark.parametrize(
    ("cluster", "status"),
    [
        (extended(), {"extendedResourceClaimStatus": {"resourceClaimName": "c"}}),
        (extended(), {"phase": "Running"}),
        (extended(offered="1"), {}),
        (extended(gate=False), {}),
    ],
    ids=["has a claim", "runs", "of a plugin", "gate off"],
)
def test_any_other_pod_with_an_extended_resource_is_on_its_node(
    cluster: ClusterState, status: Any
) -> None:
    there = with_pod(cluster, asking(**status))
    assert explain(there, SUBJECT).summary == f"scheduled on node {HOME}"
    (found,) = resolve(there, SUBJECT)
    assert bound_to(found) == HOME


def test_a_pod_that_starts_without_its_extended_resource_waits_for_devices() -> None:
    where = Cluster(with_pod(extended(), asking()), recorded=False)
    assert len(pods_of(where, PendingSubject("ns")).waiting) == 1
    served = Cluster(with_pod(extended(offered="1"), asking()), recorded=False)
    assert pods_of(served, PendingSubject("ns")).waiting == ()
