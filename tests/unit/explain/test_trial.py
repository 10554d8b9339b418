# SPDX-License-Identifier: Apache-2.0
"""Nodes that cannot differ are asked about once."""

from typing import Any

from dra_driver.explain.claim_request import requests_in
from dra_driver.explain.equivalence import NodeEquivalence
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.selector_answers import SelectorAnswers
from dra_driver.explain.trial import TrialResult, try_on
from dra_driver.model.cluster import ClusterState
from tests.e2e.fleet import GPU, HOME, device, devices, node, request, resource_slice
from tests.unit.explain.clusters import claim, holder, state
from tests.unit.explain.test_reasons import counters

NUMA = {"matchAttribute": f"{GPU}/numa"}


def never() -> bool:
    return False


def alikeness(cluster: ClusterState, *requests: dict[str, Any], **more: Any) -> NodeEquivalence:
    fleet, reach = Fleet(cluster), DeviceNodes(cluster.nodes)
    wanted = [SelectorAnswers(fleet, one) for one in requests_in(claim(*requests, **more))]
    return NodeEquivalence(fleet, reach, wanted)


def names(cluster: ClusterState, *requests: dict[str, Any], **more: Any) -> list[list[str]]:
    found = alikeness(cluster, *requests, **more)
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
    found = alikeness(cluster)
    assert [group.nodes[0].metadata.name for group in found.groups({})] == [HOME, "a"]
    listed = [[one.id.device for one in found.devices_on(n)] for n in found.nodes.values()]
    assert listed == [["e"], ["e", "z"]]
    assert [[one.id.device for one in group.devices] for group in found.groups({})] == listed


def test_what_else_tells_nodes_apart_is_heard() -> None:
    found = alikeness(state(node("a")))
    assert len(found.groups({})) == 1
    assert len(found.groups({"a": "different"})) == 2


def test_the_allocators_answers_become_values() -> None:
    fleet = Fleet(state(resource_slice(devices(1))))
    here = fleet.state.nodes[0]
    assert try_on(fleet.allocator, here, [claim()], never).fits
    assert try_on(fleet.allocator, here, [claim(request(count=2))], never) == TrialResult()
    missing = try_on(fleet.allocator, here, [claim(request(deviceClassName="x"))], never)
    assert (missing.fits, missing.fatal, "device class x" in missing.error) == (False, True, True)
    stopped = try_on(fleet.allocator, here, [claim(request(count=2))], lambda: True)
    assert stopped == TrialResult(error="the search took too long", cancelled=True)
    twice = Fleet(state(resource_slice([device("x"), device("x")])))
    broken = try_on(twice.allocator, here, [claim()], never)
    assert broken == TrialResult(error="invalid resource pools were encountered")


def test_nodes_that_can_use_the_same_devices_are_at_one_place() -> None:
    everywhere = resource_slice(devices(1), pool="shared", allNodes=True)
    own, bare, other = ("own", "bare", "other")
    cluster = state(everywhere, *on(own, device("gpu-9")), node(bare), node(other))
    found = alikeness(cluster, request())
    by_name = dict(found.nodes)
    assert found.place(by_name[bare]) == found.place(by_name[other]) != found.place(by_name[own])
    assert [one.device.name for one in found.devices_on(by_name[own])] == ["gpu-9", "gpu-0"]
    for group in found.groups({}):
        assert group.example is group.nodes[0]
        assert found.devices_on(group.example) == group.devices
