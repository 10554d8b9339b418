# SPDX-License-Identifier: Apache-2.0
"""Nodes that cannot differ are asked about once."""

from typing import Any

import msgspec
import pytest

from dra_driver.explain.claim_request import requests_in
from dra_driver.explain.equivalence import NodeEquivalence, equivalence_for
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.report import ManifestSubject, explain
from dra_driver.explain.selector_answers import SelectorAnswers
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.cluster import ClusterState
from tests.e2e import fleet as words
from tests.e2e.fleet import GPU, HOME, device, devices, node, request, resource_slice
from tests.unit.explain.clusters import claim, holder, state
from tests.unit.explain.test_reasons import counters

NUMA = {"matchAttribute": f"{GPU}/numa"}


def equivalence(cluster: ClusterState, *requests: dict[str, Any], **more: Any) -> NodeEquivalence:
    fleet, reach = Fleet(cluster), DeviceNodes(cluster.nodes)
    asked = list(requests_in(claim(*requests, **more)))
    return equivalence_for(fleet, reach, [SelectorAnswers(fleet, one) for one in asked], asked)


def names(cluster: ClusterState, *requests: dict[str, Any], **more: Any) -> list[list[str]]:
    found = equivalence(cluster, *requests, **more)
    return [[one.metadata.name for one in group.nodes] for group in found.groups({})]


def on(name: str, *listed: dict[str, Any]) -> list[dict[str, Any]]:
    return [node(name), resource_slice(listed, pool=name)]


def test_nodes_with_equal_devices_are_alike_whatever_the_names() -> None:
    cluster = state(
        resource_slice(devices(2)),
        *on("a", device("x"), device("y")),
        *on("b", device("z")),
        node("c"),
    )
    assert names(cluster, request()) == [[HOME, "a"], ["b"], ["c"]]


def test_what_somebody_holds_makes_a_difference() -> None:
    shared = device("gpu-0", allowMultipleAllocations=True)
    taking = holder("gpu-0", shareID="s", consumedCapacity={"memory": "1Gi"})
    assert names(state(resource_slice(devices(1)), *on("a", device("x")), holder("gpu-0"))) == [
        [HOME],
        ["a"],
    ]
    cluster = state(resource_slice([shared]), *on("a", shared), taking)
    assert names(cluster) == [[HOME], ["a"]]


def test_how_much_is_consumed_of_a_shared_device_makes_a_difference() -> None:
    shared = device("gpu-0", memory="80Gi", allowMultipleAllocations=True)
    consumed = [
        holder("gpu-0", f"on-{name}", pool=name, shareID=name, consumedCapacity={"memory": memory})
        for name, memory in (("a", "70Gi"), ("b", "10Gi"), ("c", "70Gi"))
    ]
    nodes = [part for name in ("a", "b", "c") for part in on(name, shared)]
    cluster = state(*nodes, *consumed)
    wanted = request(capacity={"requests": {"memory": "40Gi"}})
    assert names(cluster, wanted) == [[HOME], ["a", "c"], ["b"]]
    report = explain(cluster, ManifestSubject((words.claim(wanted),), "ns", "claim.yaml"))
    assert [group.nodes for group in report.nodes if not group.devices] == [("b",)]


def test_attributes_count_only_where_they_are_compared() -> None:
    cluster = state(resource_slice([device("x", numa=0)]), *on("a", device("x", numa=1)))
    assert names(cluster, request()) == [[HOME, "a"]]
    assert names(cluster, request(), constraints=[NUMA]) == [[HOME], ["a"]]
    distinct = {"distinctAttribute": f"{GPU}/numa"}
    assert names(cluster, request(), constraints=[distinct, {}]) == [[HOME], ["a"]]
    computed = [{"name": "x/y", "expression": "true"}]
    gated = state(
        resource_slice([device("x", numa=0)]),
        *on("a", device("x", numa=1)),
        gates=("DRADerivedAttributes",),
    )
    assert names(gated, request(derivedAttributes=computed)) == [[HOME], ["a"]]


def test_pools_count_with_their_state() -> None:
    incomplete = resource_slice([device("x")], pool="a", slices=2)
    cluster = state(resource_slice(devices(1)), node("a"), incomplete)
    assert names(cluster) == [[HOME], ["a"]]
    assert names(state(*counters(1), *on("a", device("x")))) == [[HOME], ["a"]]


def test_devices_for_several_nodes_are_shared_between_them() -> None:
    zone = {"key": "zone", "operator": "Exists"}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
    everywhere = resource_slice([device("e")], pool="every", allNodes=True)
    zoned = resource_slice([device("z")], pool="zoned", nodeSelector=terms)
    away = resource_slice([device("w")], pool="away")
    cluster = state(everywhere, zoned, away, node("a", labels={"zone": "1"}))
    found = equivalence(cluster)
    assert [group.nodes[0].metadata.name for group in found.groups({})] == [HOME, "a"]
    listed = [[one.id.device for one in found.devices_on(n)] for n in found.nodes.values()]
    assert listed == [["e"], ["e", "z"]]
    assert [[one.id.device for one in group.devices] for group in found.groups({})] == listed


def test_what_else_tells_nodes_apart_is_heard() -> None:
    found = equivalence(state(node("a")))
    assert len(found.groups({})) == 1
    assert len(found.groups({"a": "different"})) == 2


@pytest.mark.parametrize(
    ("operator", "groups"), [("Exists", [[HOME], ["a"]]), ("Sideways", [[HOME, "a"]])]
)
def test_an_unusable_pool_counts_on_the_nodes_of_its_slices(
    operator: str, groups: list[list[str]]
) -> None:
    # A selector that cannot be read ends the search on every node.
    chosen = {"matchExpressions": [{"key": "zone", "operator": operator}]}
    selector = {"nodeSelectorTerms": [chosen]}
    incomplete = resource_slice([], pool="zoned", nodeSelector=selector, slices=2)
    everywhere = resource_slice(devices(1), pool="every", allNodes=True)
    cluster = state(everywhere, incomplete, node("a", labels={"zone": "1"}))
    assert names(cluster, request()) == groups
    report = explain(cluster, ManifestSubject((words.claim(request()),), "ns", "claim.yaml"))
    assert [len(group.nodes) for group in report.nodes] == [len(group) for group in groups]
    assert ("failed to parse node selector" in report.summary) == (operator == "Sideways")


def test_nodes_that_can_use_the_same_devices_are_at_one_place() -> None:
    everywhere = resource_slice(devices(1), pool="shared", allNodes=True)
    own, bare, other = ("own", "bare", "other")
    cluster = state(everywhere, *on(own, device("gpu-9")), node(bare), node(other))
    found = equivalence(cluster, request())
    by_name = dict(found.nodes)
    assert found.place(by_name[bare]) == found.place(by_name[other]) != found.place(by_name[own])
    assert [one.device.name for one in found.devices_on(by_name[own])] == ["gpu-9", "gpu-0"]
    for group in found.groups({}):
        assert group.example is group.nodes[0]
        assert found.devices_on(group.example) == group.devices


OTHERWISE: dict[str, object] = {
    "capacity": {"memory": {"value": "40Gi"}},
    "consumesCounters": [{"counterSet": "card", "counters": {"slices": {"value": "1"}}}],
    "taints": [{"key": "example.com/flaky", "effect": "NoSchedule"}],
    "bindsToNode": True,
    "bindingConditions": ["example.com/ready"],
    "allowMultipleAllocations": True,
}
"""A device's fields that the search reads, each with another value than the device of the other node."""

WITHOUT_A_PART = {
    "name": "two nodes of one model have devices of other names",
    "attributes": "what the selectors and the constraints read of them counts",
    "node_name": "the devices of a node are those that it can use",
    "node_selector": "as above",
    "all_nodes": "as above",
    "binding_failure_conditions": "read after the allocation only",
    "node_allocatable_resources": "the search does not read it",
}


@pytest.mark.parametrize("field", OTHERWISE)
def test_a_device_that_the_search_treats_otherwise_makes_another_node(field: str) -> None:
    gates = ("DRAPartitionableDevices", "DRAConsumableCapacity", "DRADeviceBindingConditions")
    plain, other = device("x"), device("x") | {field: OTHERWISE[field]}
    assert names(state(resource_slice([plain]), *on("a", plain), gates=gates)) == [[HOME, "a"]]
    assert names(state(resource_slice([plain]), *on("a", other), gates=gates)) == [[HOME], ["a"]]


def test_every_field_of_a_device_has_a_part_or_a_reason_why_not() -> None:
    api_names = dict(zip(Device.__struct_fields__, Device.__struct_encode_fields__, strict=True))
    parts = {name for name, api_name in api_names.items() if api_name in OTHERWISE}
    assert parts | WITHOUT_A_PART.keys() == api_names.keys()
    assert not parts & WITHOUT_A_PART.keys()


def test_a_slice_that_needs_no_node_operations_or_lets_devices_choose_makes_another_node() -> None:
    here = resource_slice(devices(1))
    without = resource_slice(devices(1), pool="a", nodeName="a", skipNodeOperations=["Prepare"])
    assert names(state(here, node("a"), without)) == [[HOME], ["a"]]
    chosen = resource_slice([device("gpu-0", nodeName="a")], pool="a", perDeviceNodeSelection=True)
    assert names(state(here, node("a"), chosen)) == [[HOME], ["a"]]


def test_how_many_devices_and_in_which_pools_counts() -> None:
    two = [
        resource_slice([device("x")], pool="p", nodeName="a"),
        resource_slice([device("x")], pool="q", nodeName="a"),
    ]
    assert names(state(resource_slice(devices(1)), *on("a", *devices(2)))) == [[HOME], ["a"]]
    assert names(state(resource_slice(devices(2)), node("a"), *two)) == [[HOME], ["a"]]


def test_a_node_whose_kubelet_does_without_node_operations_is_another_node() -> None:
    cluster = state(node("a"))
    home, other = cluster.nodes
    able = msgspec.structs.replace(
        other.status, declared_features=["x", "DRAOptionalNodeOperations"]
    )
    nodes = (home, msgspec.structs.replace(other, status=able))
    assert names(msgspec.structs.replace(cluster, nodes=nodes)) == [[HOME], ["a"]]


def test_equal_values_of_other_types_are_not_equal() -> None:
    number, text = device("x"), device("x")
    text["attributes"]["numa"] = {"string": "0"}
    cluster = state(resource_slice([number]), *on("a", text))
    assert names(cluster, request(), constraints=[NUMA]) == [[HOME], ["a"]]


FAILS = f'device.attributes["{GPU}"].fast'
FAST = {"attributes": {"fast": {"bool": True}}}


def test_where_a_selector_fails_the_order_of_the_devices_counts() -> None:
    cluster = state(
        *on("a", device("x", **FAST), device("y")),
        *on("b", device("x"), device("y", **FAST)),
        *on("c", device("v", **FAST), device("w")),
    )
    assert names(cluster, request(cel=FAILS)) == [[HOME], ["a", "c"], ["b"]]
    guarded = f'"fast" in device.attributes["{GPU}"] && {FAILS}'
    assert names(cluster, request(cel=guarded)) == [[HOME], ["a", "b", "c"]]


def test_where_a_selector_fails_the_order_of_the_pools_counts() -> None:
    shared = resource_slice([device("x")], pool="m", allNodes=True)
    cluster = state(shared, *on("a", device("x", **FAST)), *on("z", device("x", **FAST)))
    assert names(cluster, request(cel=FAILS)) == [[HOME], ["a"], ["z"]]


def test_an_incomplete_pool_counts_without_a_device_for_the_node() -> None:
    cluster = state(node("a"), *on("b"), resource_slice(pool="c", slices=2), node("c"))
    assert names(cluster, request()) == [[HOME, "a", "b"], ["c"]]
