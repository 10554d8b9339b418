# SPDX-License-Identifier: Apache-2.0
"""What is said of nodes: of each only what is true there."""

from typing import Any

import msgspec
import pytest

from dra_driver.cli.render_explain import text
from dra_driver.explain.outcome import Report
from dra_driver.explain.remedy import fix
from dra_driver.explain.report import ClaimSubject, ManifestSubject, PodSubject, explain
from dra_driver.explain.verdict import (
    AllUnsatisfied,
    ConstraintConflict,
    CouldNotTell,
    CountersUsedUp,
    FeatureOff,
    HeldByClaim,
    NodeResources,
    NotEnoughDevices,
    OtherCondition,
    Tainted,
    Verdict,
)
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.resource_claim import DeviceTaintRule
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import FLEET, GPU, HOME, device, devices, request, resource_slice
from tests.unit.explain.clusters import holder, state

ONE = resource_slice(devices(1))
NODES = [words.node(name) for name in FLEET if name != HOME]
OF_EACH = [resource_slice(devices(1), pool=name) for name in FLEET]


def asking(cluster: ClusterState, *requests: dict[str, Any], node: str = "", **more: Any) -> Report:
    subject = ManifestSubject((words.claim(*requests, **more),), "ns", "f.yaml")
    return explain(cluster, subject, node=node)


def by_node(report: Report) -> dict[str, tuple[Verdict, ...]]:
    return {name: group.devices for group in report.nodes for name in group.nodes}


def node_lines(report: Report) -> list[str]:
    lines = text(report, width=200, color=False)
    start = lines.index("Nodes") + 1
    return [line for line in lines[start:] if line.startswith("  - ")]


def test_every_node_is_told_who_holds_its_own_devices() -> None:
    holders = [holder("gpu-0", f"h-{name}", pool=name) for name in FLEET]
    cluster = state(*NODES, *OF_EACH, *holders)
    report = asking(cluster)
    assert by_node(report) == {name: (HeldByClaim(f"ns/h-{name}"),) for name in FLEET}
    for name in FLEET:
        alone = asking(cluster, node=name)
        assert by_node(alone) == {name: (HeldByClaim(f"ns/h-{name}"),)}
    told = "fleet-1, fleet-0, fleet-2: held by ns/h-fleet-1, ns/h-fleet-0, ns/h-fleet-2"
    assert node_lines(report)[0] == f"  - {told}"


def test_nodes_whose_devices_one_claim_holds_are_one_group() -> None:
    results = [
        holder("gpu-0", pool=name)["status"]["allocation"]["devices"]["results"][0]
        for name in FLEET
    ]
    both = holder("gpu-0")
    both["status"]["allocation"]["devices"]["results"] = results
    (group,) = asking(state(*NODES, *OF_EACH, both)).nodes
    assert (group.count, group.devices) == (3, (HeldByClaim("ns/holder"),))


def test_a_device_of_the_network_is_looked_at_once_for_all_nodes_that_reach_it() -> None:
    shared = resource_slice(devices(2), allNodes=True)
    cluster = state(*NODES, shared, holder("gpu-0"), holder("gpu-1", "other"))
    (group,) = asking(cluster).nodes
    assert group.devices == (HeldByClaim("ns/holder"), HeldByClaim("ns/other"))


def test_devices_that_match_are_told_before_those_that_do_not() -> None:
    """However many of these there are, and of however many kinds."""
    profiles = ("1g", "1g", "2g", "2g", "7g")
    several = [
        device(f"gpu-{index}", attributes={"profile": {"string": profile}})
        for index, profile in enumerate(profiles)
    ]
    cluster = state(*NODES, resource_slice(several), holder("gpu-4"))
    report = asking(cluster, request(cel=f'device.attributes["{GPU}"].profile == "7g"'))
    assert by_node(report)[HOME][0] == HeldByClaim("ns/holder")


def test_more_holders_than_are_read_are_cut() -> None:
    names = [*FLEET, "fleet-3", "fleet-4"]
    slices = [resource_slice(devices(1), pool=name) for name in names]
    holders = [holder("gpu-0", f"h{number}", pool=name) for number, name in enumerate(names)]
    nodes = [*NODES, words.node("fleet-3"), words.node("fleet-4")]
    (line,) = [one for one in node_lines(asking(state(*nodes, *slices, *holders))) if "held" in one]
    assert line.endswith(": held by ns/h1, ns/h0, ns/h2, ns/h3, … (5 claims)")


def rule(name: str, pool: str) -> DeviceTaintRule:
    spec = {
        "deviceSelector": {"pool": pool},
        "taint": {"key": "k", "value": "v", "effect": "NoSchedule"},
    }
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceTaintRule)


def test_every_node_is_told_the_rule_that_taints_its_own_devices() -> None:
    cluster = state(words.node("fleet-0"), *OF_EACH[:2], gates=("DRADeviceTaintRules",))
    rules = tuple(rule(f"rule-{name}", name) for name in FLEET[:2])
    report = asking(msgspec.structs.replace(cluster, device_taint_rules=rules))
    assert by_node(report) == {
        name: (Tainted("k=v:NoSchedule", f"rule-{name}"),) for name in FLEET[:2]
    }
    assert node_lines(report)[0] == "  - fleet-1, fleet-0: tainted k=v:NoSchedule"


def card(pool: str) -> list[dict[str, Any]]:
    """A card of which one partition can be had."""
    uses = [{"counterSet": "card", "counters": {"slices": {"value": "1"}}}]
    parts = [device(f"part-{number}", consumesCounters=uses) for number in range(2)]
    counters = resource_slice(name=f"counters-{pool}", pool=pool, slices=2)
    counters["spec"]["sharedCounters"] = [{"name": "card", "counters": {"slices": {"value": "1"}}}]
    return [counters, resource_slice(parts, pool=pool, slices=2)]


def test_every_node_is_told_who_uses_the_counters_of_its_own_card() -> None:
    names = FLEET[:2]
    holders = [holder("part-0", f"h-{name}", pool=name) for name in names]
    cards = [part for name in names for part in card(name)]
    report = asking(state(words.node("fleet-0"), *cards, *holders))
    assert {name: told[1] for name, told in by_node(report).items()} == {
        name: CountersUsedUp("card", "slices", "1", "0", (f"ns/h-{name}",)) for name in names
    }
    told = "held by ns/h-fleet-1, ns/h-fleet-0; counter card/slices: 0 left < 1, used by ns/h-fleet-1, ns/h-fleet-0"
    assert node_lines(report)[0] == f"  - fleet-1, fleet-0: {told}"


def test_all_devices_that_cannot_be_had_at_once_are_told_so() -> None:
    report = asking(state(*card(HOME)), request(allocationMode="All"))
    (told,) = report.claims[0].requests[0].verdicts
    assert isinstance(told, AllUnsatisfied)
    assert str(told).endswith("and they cannot be had at once")


def test_all_devices_that_break_a_constraint_are_a_conflict() -> None:
    listed = [device("gpu-0"), device("gpu-1", numa=1)]
    constraint = {"requests": ["gpu"], "matchAttribute": f"{GPU}/numa"}
    report = asking(
        state(resource_slice(listed)), request(allocationMode="All"), constraints=[constraint]
    )
    assert report.exit_code == 1
    assert [type(one) for one in by_node(report)[HOME]] == [ConstraintConflict]


def test_a_pool_that_is_being_written_is_told_for_all_nodes_that_wait_for_it() -> None:
    halves = [
        resource_slice(name=f"half-{name}", pool="half", slices=3, nodeName=name)
        for name in FLEET[:2]
    ]
    cluster = state(words.node("fleet-0"), *OF_EACH[:2], *halves)
    report = asking(cluster, request(allocationMode="All"))
    told = by_node(report)
    assert {name: [type(one) for one in told[name]] for name in told} == {
        name: [AllUnsatisfied] for name in FLEET[:2]
    }


def test_admin_access_that_the_cluster_does_not_know_is_a_feature_that_is_off() -> None:
    cluster = msgspec.structs.replace(state(ONE), kubernetes_version="v1.33.0")
    report = asking(cluster, request(adminAccess=True))
    off = FeatureOff("DRAAdminAccess", "adminAccess of the request")
    assert (report.exit_code, report.claims[0].verdicts) == (1, ())
    assert report.claims[0].requests[0].verdicts == (off,)
    assert by_node(report) == {HOME: (off,)}


def test_capacity_that_the_scheduler_refuses_is_a_feature_that_is_off() -> None:
    cluster = state(ONE, featureGates={"DRAConsumableCapacity": False})
    report = asking(cluster, request(capacity={"requests": {"memory": "1Gi"}}))
    off = FeatureOff("DRAConsumableCapacity", "capacity of the request")
    assert (report.exit_code, by_node(report)) == (1, {HOME: (off,)})
    older = msgspec.structs.replace(state(ONE), kubernetes_version="v1.33.0")
    assert asking(older, request(capacity={"requests": {"memory": "1Gi"}})).exit_code == 0


def test_a_device_that_no_api_server_takes_could_not_be_told() -> None:
    capacity = {"memory": {"value": "80 gigs"}}
    odd = device("gpu-0", capacity=capacity)
    cel = f'device.capacity["{GPU}"].memory.compareTo(quantity("8Gi")) >= 0'
    report = asking(state(resource_slice([odd])), request(cel=cel))
    assert report.exit_code == 2
    assert not any(
        isinstance(one, NotEnoughDevices) for one in report.claims[0].requests[0].verdicts
    )


def recorded(wanted: dict[str, Any]) -> Report:
    """What a record says of a claim, which may have been edited."""
    made = words.claim(wanted)
    made["metadata"]["namespace"] = "ns"
    return explain(state(ONE, made), ClaimSubject("ns", words.MINE))


def test_a_request_that_no_api_server_takes_could_not_be_told() -> None:
    report = recorded(request(allocationMode="Some"))
    (told,) = report.claims[0].requests[0].verdicts
    assert (report.exit_code, report.summary) == (2, str(told))
    assert isinstance(told, CouldNotTell)
    assert told.what == "claim ns/mine, request gpu: unsupported count mode Some"
    assert fix(told) == "correct the object that is named there"
    assert text(report, width=200, color=False)[1:3] == [f"  {report.summary}", ""]


def test_a_request_in_the_shape_of_an_older_version_says_what_it_lacks() -> None:
    report = recorded({"name": "gpu", "deviceClassName": "gpu"})
    lacks = "request gpu of claim ns/mine has neither exactly nor firstAvailable"
    assert report.exit_code == 2
    assert report.claims[0].verdicts == (CouldNotTell("malformed", lacks),)


def test_nodes_with_more_or_less_of_a_resource_are_told_with_both_ends() -> None:
    cpus = {"a": "2", "b": "500m", "c": "1", "d": "2"}
    nodes = tuple(
        msgspec.convert(
            words.node(name) | {"status": {"allocatable": {"cpu": cpu, "pods": "9"}}}, Node
        )
        for name, cpu in cpus.items()
    )
    slices = [resource_slice(devices(1), pool=name) for name in "ab"]
    cluster = msgspec.structs.replace(state(*slices), nodes=nodes)
    subject = ManifestSubject((words.claim(), words.pod(cpu="4")), "ns", "f.yaml")
    report = explain(cluster, subject)
    told = {group.nodes: group.pod for group in report.nodes}
    assert told == {
        ("a", "b"): (NodeResources("cpu", "4", "2", "500m"),),
        ("c", "d"): (NodeResources("cpu", "4", "2", "1"),),
    }


def test_without_nodes_nobody_is_told_to_ask_for_fewer() -> None:
    report = asking(msgspec.structs.replace(state(ONE), nodes=()))
    assert report.claims[0].requests[0].verdicts == ()
    assert [fix(one) for one in report.verdicts] == ["add a node"]
    assert fix(OtherCondition("Unschedulable", "m")).startswith("follow the scheduler's message")


def pending(*, reserved: int = 0, **parts: Any) -> ClusterState:
    """A pod of an allocated claim."""
    claim = holder("gpu-0", words.MINE)
    users = [{"resource": "pods", "name": f"p{n}", "uid": f"u{n}"} for n in range(reserved)]
    claim["status"]["reservedFor"] = users
    claim["status"]["allocation"] |= parts.pop("allocation", {})
    made = words.pod(**parts)
    made["metadata"] |= {"namespace": "ns", "uid": "u"}
    nodes = [
        msgspec.convert({**words.node(name), "status": {"allocatable": {"pods": "9"}}}, Node)
        for name in FLEET
    ]
    cluster = state(ONE, claim)
    return msgspec.structs.replace(cluster, pods=(msgspec.convert(made, Pod),), nodes=tuple(nodes))


def test_a_claim_that_cannot_be_used_is_the_summary() -> None:
    report = explain(pending(reserved=256), PodSubject("ns", words.MINE))
    told = "claim ns/mine cannot be used: is reserved for 256 others, at most 256 can share it"
    assert (report.exit_code, report.summary) == (1, told)


def test_a_claim_that_the_pod_cannot_follow_is_the_summary() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["fleet-1"]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    there = pending(
        reserved=2,
        allocation={"nodeSelector": selector},
        nodeSelector={"kubernetes.io/hostname": "fleet-0"},
    )
    report = explain(there, PodSubject("ns", words.MINE))
    assert report.exit_code == 1
    assert report.summary.startswith("claim ns/mine is allocated for nodes with ")
    assert report.summary.endswith(", where the pod cannot run")


@pytest.mark.parametrize(
    ("cause", "advice"),
    [("forbidden", "give the right"), ("timeout", "give the search more time"), ("failed", "give")],
)
def test_what_could_not_be_told_is_advised_by_its_cause(cause: str, advice: str) -> None:
    assert fix(CouldNotTell(cause, "")).startswith(advice)


def test_a_reason_on_a_node_names_its_request_if_several_are_asked_for() -> None:
    cluster = state(resource_slice(devices(1)), holder("gpu-0"))
    one, two = request("one"), request("two", cel="false")
    assert [group.requests for group in asking(cluster, one).nodes] == [()]
    assert [group.requests for group in asking(cluster, one, two).nodes] == [("one", "two")]
    claims = [words.claim(each, name=each["name"]) for each in (one, two)]
    refers = [{"name": name, "resourceClaimName": name} for name in ("one", "two")]
    pod = words.pod(resourceClaims=refers, containers=[{"name": "main", "image": "i"}])
    report = explain(cluster, ManifestSubject((*claims, pod), "ns", "f.yaml"))
    assert [group.requests for group in report.nodes] == [
        ("request one of claim ns/one", "request two of claim ns/two")
    ]


SKIP = "DRAOptionalNodeOperations"


def declaring(cluster: ClusterState, name: str) -> ClusterState:
    """The cluster, where the kubelet of one node can skip operations."""
    nodes = [
        msgspec.structs.replace(
            one, status=msgspec.structs.replace(one.status, declared_features=[SKIP])
        )
        if one.metadata.name == name
        else one
        for one in cluster.nodes
    ]
    return msgspec.structs.replace(cluster, nodes=tuple(nodes))


def test_a_node_that_cannot_skip_operations_is_told_so_and_blames_no_counters() -> None:
    everywhere = {"pool": "net", "allNodes": True, "skipNodeOperations": ["*"]}
    cluster = state(
        *NODES, resource_slice(devices(1), **everywhere), resource_slice(devices(1)), gates=[SKIP]
    )
    able = declaring(cluster, FLEET[0])
    needs = (FeatureOff(SKIP, "a device with skipNodeOperations"),)
    assert by_node(asking(able, request())) == {FLEET[0]: (), HOME: (), FLEET[2]: needs}
    both = asking(able, request(count=2))
    assert by_node(both) == {
        FLEET[0]: (NotEnoughDevices(2, 1),),
        HOME: needs,
        FLEET[2]: (NotEnoughDevices(2, 1),),
    }


def test_the_feature_is_no_reason_where_other_devices_are_enough_but_do_not_go_together() -> None:
    everywhere = {"pool": "net", "allNodes": True, "skipNodeOperations": ["*"]}
    apart = [device("gpu-0"), device("gpu-1", numa=1)]
    cluster = state(
        words.node(FLEET[0]),
        resource_slice(devices(1, numa=2), **everywhere),
        resource_slice(apart),
        gates=[SKIP],
    )
    report = asking(
        declaring(cluster, FLEET[0]),
        request(count=2),
        constraints=[{"matchAttribute": f"{GPU}/numa"}],
    )
    assert isinstance(by_node(report)[HOME][0], ConstraintConflict)
