# SPDX-License-Identifier: Apache-2.0
"""Claims that the scheduler deallocates by itself, so that their pod gets other devices."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from dra_driver.explain.outcome import Report
from dra_driver.explain.remedy import fix
from dra_driver.explain.report import ClaimSubject, ManifestSubject, PodSubject, explain
from dra_driver.explain.several import explain_several
from dra_driver.explain.subject.subject import PendingSubject
from dra_driver.explain.verdict import (
    BindingFailed,
    BindingTimedOut,
    ClaimAllocatedElsewhere,
)
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.meta import Condition
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import FLEET, HOME, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state

OTHER = next(name for name in FLEET if name != HOME)
MINE = PodSubject("ns", words.MINE)
BY_ITSELF = (
    f"; the scheduler deallocates claim ns/mine by itself, because it is allocated for nodes with name={HOME} "
    "and used by nobody else, and tries again"
)
CORDONED = {"unschedulable": True}
Object = dict[str, Any]


def user(name: str, uid: str) -> Object:
    return {"resource": "pods", "name": name, "uid": uid}


ITSELF, SOMEBODY = user(words.MINE, "u"), user("other", "v")


def allocated(name: str = words.MINE, gpu: str = "gpu-0", *users: Object, **result: Any) -> Object:
    """A claim that has a device of the node HOME, which only that node can use."""
    made = holder(gpu, name, **result)
    made["metadata"]["uid"] = f"uid-{name}"
    field = {"key": "metadata.name", "operator": "In", "values": [HOME]}
    made["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    made["status"]["reservedFor"] = list(users)
    return made


def waiting(*claims: str, name: str = words.MINE, uid: str = "u", **parts: Any) -> Pod:
    """A pod without a node that uses these claims."""
    made = words.pod(name)
    made["metadata"] |= {"namespace": "ns", "uid": uid}
    refers = [{"name": one, "resourceClaimName": one} for one in claims or (words.MINE,)]
    made["spec"] |= {"resourceClaims": refers, **parts}
    return msgspec.convert(made, Pod)


def cluster(
    *objects: Object,
    pods: Sequence[Pod] = (),
    home: Object = CORDONED,
    other: Object | None = None,
    gpus: int = 1,
) -> ClusterState:
    """The nodes HOME, which is cordoned, and OTHER, with devices each; `home` and `other` are their spec."""
    elsewhere = resource_slice(devices(gpus), pool=OTHER)
    known = state(resource_slice(devices(2)), elsewhere, *objects)
    specs = {HOME: home, OTHER: other or {}}
    ready = {"status": {"allocatable": {"cpu": "8", "pods": "9"}}}
    nodes = tuple(
        msgspec.convert({**words.node(name, **spec), **ready}, Node) for name, spec in specs.items()
    )
    return msgspec.structs.replace(known, nodes=nodes, pods=tuple(pods or (waiting(),)))


def fitting(report: Report) -> list[str]:
    return [name for group in report.nodes if not group.devices + group.pod for name in group.nodes]


@pytest.mark.parametrize("users", [(), (ITSELF,)], ids=["reserved for nobody", "for the pod"])
def test_a_claim_that_nobody_else_uses_is_deallocated_where_the_pod_cannot_run(
    users: tuple[Object, ...],
) -> None:
    report = explain(cluster(allocated(words.MINE, "gpu-0", *users)), MINE)
    assert (report.exit_code, fitting(report)) == (0, [OTHER])
    assert report.summary.endswith(BY_ITSELF)
    assert "deallocates" not in str([report.verdicts, report.changes])


@pytest.mark.parametrize("users", [(SOMEBODY,), (ITSELF, SOMEBODY)], ids=["another", "two"])
def test_a_claim_that_somebody_else_uses_stays_allocated(users: tuple[Object, ...]) -> None:
    report = explain(cluster(allocated(words.MINE, "gpu-0", *users)), MINE)
    where = f"claim ns/mine is allocated for nodes with name={HOME}, where the pod cannot run"
    assert (report.exit_code, report.summary, fitting(report)) == (1, where, [])


def test_a_claim_whose_node_is_gone_is_deallocated() -> None:
    known = cluster(allocated())
    known = msgspec.structs.replace(known, nodes=known.nodes[1:])
    report = explain(known, MINE)
    assert (report.exit_code, fitting(report)) == (0, [OTHER])


def test_no_claim_is_deallocated_while_the_pod_can_run_with_it() -> None:
    report = explain(cluster(allocated(), home={}), MINE)
    assert (report.exit_code, fitting(report)) == (0, [HOME])
    assert "deallocates" not in report.summary
    other = explain(cluster(allocated(), home={}), MINE, node=OTHER)
    assert (other.exit_code, "deallocates" in other.summary) == (1, False)


def test_a_single_node_is_judged_as_the_scheduler_leaves_the_claim() -> None:
    report = explain(cluster(allocated()), MINE, node=OTHER)
    assert (report.exit_code, fitting(report)) == (0, [OTHER])
    assert report.summary.endswith(BY_ITSELF)


def test_no_claim_is_deallocated_where_no_node_takes_the_pod() -> None:
    report = explain(cluster(allocated(), other=CORDONED), MINE)
    assert (report.exit_code, "deallocates" in report.summary) == (3, False)


def test_no_claim_is_deallocated_where_the_other_claims_do_not_fit_either() -> None:
    second = words.claim(request(count=3), name="second")
    second["metadata"]["namespace"] = "ns"
    pods = [waiting(words.MINE, "second")]
    report = explain(cluster(allocated(), second, pods=pods), MINE)
    there = next(one for one in report.nodes if OTHER in one.nodes)
    assert (report.exit_code, "deallocates" in report.summary) == (1, False)
    assert isinstance(there.devices[0], ClaimAllocatedElsewhere)


def test_of_several_claims_one_after_the_other_is_deallocated() -> None:
    claims = [allocated(), allocated("second", "gpu-1", ITSELF)]
    pods = [waiting(words.MINE, "second")]
    both = explain(cluster(*claims, pods=pods, gpus=2), MINE)
    assert (both.exit_code, fitting(both)) == (0, [OTHER])
    assert both.summary.count("by itself") == 2
    few = explain(cluster(*claims, pods=pods, gpus=1), MINE)
    assert (few.exit_code, few.summary.count("by itself")) == (3, 2)


def test_no_claim_is_deallocated_if_the_pod_cannot_use_another_one() -> None:
    report = explain(cluster(allocated(), pods=[waiting(words.MINE, "missing")]), MINE)
    assert (report.exit_code, "deallocates" in report.summary) == (1, False)


def test_a_claim_that_waits_for_binding_conditions_is_deallocated_all_the_same() -> None:
    waits = allocated(words.MINE, "gpu-0", bindingConditions=["ready"])
    assert explain(cluster(waits), MINE).summary.endswith(BY_ITSELF)


def test_no_claim_is_deallocated_if_the_scheduler_gives_the_pod_up_with_an_error() -> None:
    broken = words.claim(request(cel="device.attributes['no.such'].name == 1"), name="second")
    broken["metadata"]["namespace"] = "ns"
    pods = [waiting(words.MINE, "second")]
    report = explain(cluster(allocated(), broken, pods=pods), MINE)
    assert (report.exit_code, "deallocates" in report.summary) == (1, False)


def test_no_claim_is_deallocated_if_there_was_no_time_to_look() -> None:
    second = words.claim(name="second")
    second["metadata"]["namespace"] = "ns"
    known = cluster(allocated(), second, pods=[waiting(words.MINE, "second")])
    report = explain(known, MINE, cancelled=lambda: True)
    assert "deallocates" not in report.summary


def test_no_claim_is_deallocated_if_an_extended_resource_is_missing_everywhere() -> None:
    made = waiting()
    wants = {"requests": {"example.com/none": "1"}, "claims": [{"name": words.MINE}]}
    spec = msgspec.to_builtins(made.spec) | {"containers": [{"name": "main", "resources": wants}]}
    pods = [msgspec.convert({"metadata": msgspec.to_builtins(made.metadata), "spec": spec}, Pod)]
    report = explain(cluster(allocated(), pods=pods), MINE)
    assert (report.exit_code, "deallocates" in report.summary) == (1, False)


def test_a_pod_on_its_node_and_a_claim_without_a_pod_keep_the_devices() -> None:
    placed = explain(cluster(allocated(), pods=[waiting(nodeName=HOME)]), MINE)
    assert (placed.exit_code, placed.summary) == (0, f"scheduled on node {HOME}")
    alone = explain(cluster(allocated()), ClaimSubject("ns", words.MINE))
    assert "deallocates" not in alone.summary


def test_of_pods_that_share_a_claim_only_the_one_it_is_reserved_for_gets_another_device() -> None:
    pods = [waiting(), waiting(words.MINE, name="late", uid="w")]
    known = cluster(allocated(words.MINE, "gpu-0", ITSELF), pods=pods)
    found = explain_several(known, [PendingSubject("ns")]).items
    assert {one.subject: one.exit_code for one in found} == {"pod ns/mine": 0, "pod ns/late": 1}


def test_the_pods_of_a_manifest_share_the_claim_where_it_is_allocated_then() -> None:
    document = words.pod("new", of={"resourceClaimName": words.MINE})
    several = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "new"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "new"}},
            "template": {"metadata": {"labels": {"app": "new"}}, "spec": document["spec"]},
        },
    }
    known = msgspec.structs.replace(cluster(allocated()), pods=())
    report = explain(known, ManifestSubject((several,), "ns", "f.yaml"))
    assert (report.exit_code, report.pods and report.pods.fit) == (0, 3)


# Devices that a controller could not prepare

BEGIN, END, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z", "2026-01-01T00:10:01+00:00"
FAILED = BindingFailed("ns/mine", "broken", "no cable")
LATE = BindingTimedOut("ns/mine", ("ready",), END)
AGAIN = "and nobody else uses it, and tries again, perhaps with the same devices"


def unprepared(*users: Object, broken: bool = False, name: str = words.MINE) -> Object:
    """A claim that has a device of the node HOME since BEGIN; a controller says that it is broken, or nothing."""
    conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    made = allocated(name, "gpu-0", *users, **conditions)
    made["status"]["allocation"]["allocationTimestamp"] = BEGIN
    chosen = {"driver": words.GPU, "pool": HOME, "device": "gpu-0"}
    said = {"type": "broken", "status": "True", "message": "no cable"}
    made["status"]["devices"] = [{**chosen, "conditions": [said] if broken else []}]
    return made


def at(time: str, known: ClusterState) -> ClusterState:
    return msgspec.structs.replace(known, recorded_at=time)


def told(pod: Pod, message: str) -> Pod:
    """The pod with what the scheduler said of it."""
    said = Condition(type="PodScheduled", status="False", reason="SchedulerError", message=message)
    return msgspec.structs.replace(
        pod, status=msgspec.structs.replace(pod.status, conditions=[said])
    )


@pytest.mark.parametrize("home", [{}, CORDONED], ids=["its node", "another node"])
@pytest.mark.parametrize("users", [(), (ITSELF,)], ids=["reserved for nobody", "for the pod"])
def test_a_claim_whose_binding_failed_is_deallocated(
    users: tuple[Object, ...], home: Object
) -> None:
    report = explain(cluster(unprepared(*users, broken=True), home=home), MINE)
    assert (report.exit_code, report.outcome) == (0, "devices fit")
    assert fitting(report) == [*([] if home else [HOME]), OTHER]
    assert report.summary.endswith(
        f"; the scheduler deallocates claim ns/mine by itself, because its binding failed {AGAIN}"
    )
    assert report.verdicts[1:] == (FAILED,)
    assert report.claims[0].verdicts == ()


@pytest.mark.parametrize("users", [(), (ITSELF,)], ids=["reserved for nobody", "for the pod"])
def test_a_claim_whose_binding_took_too_long_is_deallocated(users: tuple[Object, ...]) -> None:
    report = explain(at(LATER, cluster(unprepared(*users), home={})), MINE)
    assert (report.exit_code, fitting(report)) == (0, [HOME, OTHER])
    assert report.summary.endswith(
        f"; the scheduler deallocates claim ns/mine by itself, because its binding timed out {AGAIN}"
    )
    expected = msgspec.structs.replace(LATE, reserved=bool(users))
    assert report.verdicts[1:] == (expected,)


@pytest.mark.parametrize("time", [END, ""], ids=["in time", "at an unknown time"])
def test_a_claim_keeps_its_devices_while_the_scheduler_waits(time: str) -> None:
    report = explain(at(time, cluster(unprepared(ITSELF), home={})), MINE)
    assert (report.exit_code, fitting(report)) == (3, [HOME])
    assert report.summary == (
        "the devices fit on 1 of 2 nodes, but claim ns/mine waits for binding conditions ready "
        f"(until {END}, if the scheduler has the default bindingTimeout (10 minutes))"
    )


@pytest.mark.parametrize(
    ("time", "broken", "reason"),
    [(BEGIN, True, FAILED), (LATER, False, LATE)],
    ids=["failed", "late"],
)
def test_a_claim_that_somebody_else_uses_keeps_devices_that_are_not_prepared(
    time: str, broken: bool, reason: BindingFailed | BindingTimedOut
) -> None:
    known = cluster(unprepared(SOMEBODY, broken=broken), home={})
    report = explain(at(time, known), MINE)
    assert (report.exit_code, report.outcome) == (1, "devices do not fit")
    assert report.claims[0].verdicts == (reason,)
    assert report.summary == f"claim ns/mine cannot be used: {reason.predicate}"
    assert "end the other pods that use the claim" in fix(reason)


def test_no_claim_is_deallocated_where_a_failed_binding_is_not_all_that_is_in_the_way() -> None:
    known = cluster(unprepared(broken=True), other=CORDONED)
    report = explain(known, MINE)
    assert (report.exit_code, "deallocates" in report.summary) == (1, False)
    second = words.claim(request(count=3), name="second")
    second["metadata"]["namespace"] = "ns"
    pods = [waiting(words.MINE, "second")]
    report = explain(cluster(unprepared(broken=True), second, pods=pods, home={}), MINE)
    assert (report.exit_code, "deallocates" in report.summary) == (1, False)


def test_a_claim_is_deallocated_in_vain_where_another_one_stays_broken() -> None:
    shared = unprepared(SOMEBODY, broken=True, name="shared")
    claims = [shared, allocated(words.MINE, "gpu-1")]
    known = cluster(*claims, pods=[waiting(words.MINE, "shared")], home={}, gpus=2)
    report = explain(known, MINE)
    assert (report.exit_code, report.summary.count("by itself")) == (1, 1)
    assert report.summary.endswith(BY_ITSELF)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ('running PreBind plugin "DynamicResources": device binding failed: claim=mine', 0),
        ("0/2 nodes are available: 2 Insufficient luck.", 3),
    ],
)
def test_what_the_scheduler_said_of_the_failed_binding_is_over_when_it_tries_again(
    message: str, code: int
) -> None:
    pods = [told(waiting(), message)]
    report = explain(cluster(unprepared(broken=True), pods=pods, home={}), MINE)
    assert (report.exit_code, FAILED in report.verdicts) == (code, True)
    placed = explain(cluster(allocated(), pods=pods, home={}), MINE)
    assert placed.exit_code == 3


@pytest.mark.parametrize(("users", "exit_code"), [((), 0), ((SOMEBODY,), 1)])
def test_a_claim_whose_devices_need_a_feature_of_the_node_is_deallocated_if_nobody_uses_it(
    users: tuple[Object, ...], exit_code: int
) -> None:
    claim = allocated(words.MINE, "gpu-0", *users, skipNodeOperations=["*"])
    del claim["status"]["allocation"]["nodeSelector"]
    report = explain(cluster(claim, home={}), MINE)
    assert report.exit_code == exit_code
    told = f"{report.summary}; {[str(one) for group in report.nodes for one in group.devices]}"
    assert "allocated for nodes that declare the feature DRAOptionalNodeOperations" in told
