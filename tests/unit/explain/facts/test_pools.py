# SPDX-License-Identifier: Apache-2.0
"""Pools as the scheduler reads them, one node at a time."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from dra_driver.allocator.pools import Pool, SliceIndex
from dra_driver.allocator.state import PoolID
from dra_driver.cel.cancellation import never
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.report import ClaimSubject, explain
from dra_driver.explain.trial import try_on
from dra_driver.explain.verdict import PoolIncomplete
from dra_driver.model.api.core import Node
from dra_driver.model.cluster import ClusterState
from tests.e2e.fleet import FLEET, GPU, MINE, device, devices, node, request, resource_slice
from tests.unit.explain.clusters import state
from tests.unit.explain.test_report import owned

FIRST, HOME, LAST = FLEET
POOL = PoolID(GPU, HOME)
OTHERS = (node(FIRST), node(LAST))
SETS = [{"name": "card", "counters": {"slices": {"value": "4"}}}]
CLUSTERS, RELEASES = 150, (34, 35, 36, 37)


def part(name: str, count: int, *, generation: int = 1, **more: Any) -> dict[str, Any]:
    made = resource_slice(devices(count), name=name, **more)
    made["spec"]["pool"]["generation"] = generation
    return made


def usable(fleet: Fleet, where: Node) -> list[tuple[str, str]]:
    """The slice and the name of each device that the report lets the node have."""
    nodes = DeviceNodes(fleet.state.nodes)
    return sorted(
        (one.slice.name, one.id.device)
        for one in fleet.all_devices
        if _gives(fleet, fleet.pools[one.slice.pool_id])
        and ((names := nodes.of(one)) is None or where.metadata.name in names)
    )


def _gives(fleet: Fleet, pool: Pool) -> bool:
    incomplete = pool.incomplete and not fleet.rules.takes_from_incomplete_pools
    return not (incomplete or pool.invalid_because)


def searched(fleet: Fleet, where: Node) -> list[tuple[str, str]]:
    """The same of the search."""
    index = SliceIndex(fleet.slices, fleet.rules)
    return sorted(
        (one.slice.name, one.id.device)
        for pool in index.gather_pools(where)
        if pool.usable
        for one in pool.devices
        if not one.slice.spec.per_device_node_selection or one.is_for(where)
    )


@pytest.mark.parametrize("generation", [1, 2**62])
@pytest.mark.parametrize("count", [0, 1])
def test_a_slice_in_the_pool_of_another_node_takes_nothing_from_it(
    generation: int, count: int
) -> None:
    foreign = part("x", count, generation=generation, nodeName=LAST)
    fleet = Fleet(state(part("a", 2), foreign, *OTHERS))
    assert not fleet.unusable
    for where in fleet.state.nodes:
        assert usable(fleet, where) == searched(fleet, where)
    cluster = state(part("a", 2), foreign, *OTHERS, owned(request(count=2)))
    report = explain(cluster, ClaimSubject("ns", MINE))
    assert (report.outcome, report.nodes[0].nodes) == ("devices fit", (HOME,))


def test_a_new_generation_of_several_nodes_that_is_not_whole_yet() -> None:
    old = [part(f"old-{name}", 1, slices=2, nodeName=name) for name in (FIRST, HOME)]
    new = part("new", 3, generation=2, slices=2, nodeName=HOME)
    fleet = Fleet(state(*old, new, *OTHERS))
    assert fleet.unusable == {POOL: PoolIncomplete(str(POOL), 1, 2, 2)}
    assert [usable(fleet, one) for one in fleet.state.nodes] == [[], [], []]


def test_the_same_device_name_on_two_nodes_of_a_pool() -> None:
    parts = [part(name, 1, slices=2, nodeName=name) for name in (FIRST, HOME)]
    fleet = Fleet(state(*parts, *OTHERS))
    assert list(fleet.pools) == [POOL._replace(part=HOME)]
    assert [len(fleet.all_devices), len(fleet.devices)] == [2, 1]
    names = [usable(fleet, one) for one in fleet.state.nodes]
    assert names == [[(HOME, "gpu-0")], [(FIRST, "gpu-0")], []]


def test_slices_for_several_nodes_are_in_the_parts_of_these_nodes_only() -> None:
    chosen = {"nodeSelector": {"nodeSelectorTerms": [_labelled("a"), _labelled("b")]}}
    shared = part("shared", 2, **chosen)
    foreign = part("foreign", 1, generation=1, nodeName="n-b")
    nodes = [node(f"n-{one}", labels={"rack": one}) for one in "abc"]
    fleet = Fleet(state(shared, foreign, *nodes))
    assert fleet.unusable == {POOL: PoolIncomplete(str(POOL), 2, 1, 1)}
    by_name = {one.metadata.name: usable(fleet, one) for one in fleet.state.nodes}
    # For n-b there are two slices, and the pool should have one.
    assert by_name["n-a"] == [("shared", "gpu-0"), ("shared", "gpu-1")]
    assert by_name["n-b"] == by_name["n-c"] == []


def _labelled(value: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "rack", "operator": "In", "values": [value]}]}


def test_a_node_on_which_the_search_fails_divides_nothing() -> None:
    bad = {"matchExpressions": [{"key": "rack", "operator": "Gt", "values": ["x"]}]}
    shared = part("shared", 2, slices=2, nodeSelector={"nodeSelectorTerms": [bad]})
    assert list(Fleet(state(shared, *OTHERS)).pools) == [POOL]


@pytest.mark.parametrize("release", RELEASES)
def test_the_report_knows_the_devices_that_the_search_finds(release: int) -> None:
    seen = 0
    for number in range(CLUSTERS):
        fleet = Fleet(_random(random.Random(number), release))
        seen += any(one.part for one in fleet.pools)
        for where in fleet.state.nodes:
            assert usable(fleet, where) == searched(fleet, where), number
    assert seen > CLUSTERS / 4


def _random(pick: random.Random, release: int, *more: dict[str, Any]) -> ClusterState:
    slices = [*_slices(pick, release)]
    nodes = [node(f"n-{one}", labels={"rack": one}) for one in "abc"]
    gates = ("DRAPartitionableDevices",)
    return state(*slices, *nodes, *more, kubernetesVersion=f"v1.{release}.0", gates=gates)


def _slices(pick: random.Random, release: int) -> Iterator[dict[str, Any]]:
    for number in range(pick.randint(1, 6)):
        made = resource_slice(
            [device(pick.choice("xyz") + str(number % 3)) for _ in range(pick.randint(0, 2))],
            name=f"s-{number}",
            pool=pick.choice("pq"),
            slices=pick.choice((1, 1, 2, 3)),
            **_where(pick),
        )
        made["spec"]["pool"]["generation"] = pick.choice((1, 1, 2))
        if made["spec"].get("perDeviceNodeSelection"):
            for one in made["spec"].get("devices", ()):
                one.update(pick.choice(({"nodeName": "n-a"}, {"allNodes": True})))
        if pick.random() < 0.1 and release >= 35:
            made["spec"].pop("devices", None)
            made["spec"]["sharedCounters"] = SETS
        yield made


def _where(pick: random.Random) -> dict[str, Any]:
    return pick.choice(
        (
            {"nodeName": f"n-{pick.choice('abc')}"},
            {"nodeName": f"n-{pick.choice('abcd')}"},
            {"allNodes": True},
            {"nodeSelector": {"nodeSelectorTerms": [_labelled(pick.choice("abc"))]}},
            {"perDeviceNodeSelection": True},
        )
    )


@pytest.mark.parametrize("release", RELEASES)
def test_the_devices_fit_on_those_nodes_on_which_the_search_finds_them(release: int) -> None:
    for number in range(CLUSTERS // 3):
        wanted = owned(request(count=number % 3 + 1))
        cluster = _random(random.Random(number), release, wanted)
        report = explain(cluster, ClaimSubject("ns", MINE))
        told = {name for one in report.nodes if one.placement for name in one.nodes}
        search, claims = Fleet(cluster).allocator, cluster.resource_claims
        found = {
            one.metadata.name for one in cluster.nodes if try_on(search, one, claims, never).fits
        }
        assert told == found, number
