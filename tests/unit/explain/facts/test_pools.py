# SPDX-License-Identifier: Apache-2.0
"""Pools as the scheduler reads them, one node at a time."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from dra_driver.allocator.features import (
    BINDING_CONDITIONS,
    COMPATIBILITY_GROUPS,
    CONSUMABLE_CAPACITY,
    PARTITIONABLE,
)
from dra_driver.allocator.pools import Pool, SliceIndex, ignored_because
from dra_driver.allocator.state import PoolID
from dra_driver.cel.cancellation import never
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.report import ClaimSubject, Report, explain
from dra_driver.explain.trial import try_on
from dra_driver.explain.verdict import FeatureOff, PoolIncomplete
from dra_driver.model.api.core import Node
from dra_driver.model.cluster import ClusterState
from tests.e2e.fleet import FLEET, GPU, MINE, device, devices, node, request, resource_slice
from tests.unit.explain.clusters import holder, state
from tests.unit.explain.test_report import owned

FIRST, HOME, LAST = FLEET
POOL = PoolID(GPU, HOME)
OTHERS = (node(FIRST), node(LAST))
SETS = [{"name": "card", "counters": {"slices": {"value": "4"}}}]
ALONE = "each of the devices can be had alone"
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
        and ignored_because(one.slice, fleet.rules) is None
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
    outdated = PoolIncomplete(str(POOL), 1, 2, 2, outdated=1)
    assert fleet.unusable == {
        POOL: PoolIncomplete(str(POOL), 1, 2, 2),
        POOL._replace(part=FIRST): outdated,
    }
    assert [usable(fleet, one) for one in fleet.state.nodes] == [[], [], []]


def test_the_nodes_with_the_same_outdated_generation_are_one_part() -> None:
    old = [part(f"old-{name}", 1, slices=3, nodeName=name) for name in (FIRST, LAST)]
    new = part("new", 3, generation=2, slices=3, nodeName=HOME)
    fleet = Fleet(state(*old, new, *OTHERS))
    assert fleet.pools.keys() == {POOL, POOL._replace(part=FIRST)}
    outdated = fleet.pools[POOL._replace(part=FIRST)]
    assert [one.spec.node_name for one in outdated.slices] == [FIRST, LAST]


@pytest.mark.parametrize(("slices", "found"), [(2, "1 of 2"), (1, "1 of 1")])
def test_a_node_whose_slice_is_outdated_is_told_so(slices: int, found: str) -> None:
    old = part("old", 1, slices=2, nodeName=FIRST)
    new = part("new", 1, generation=2, slices=slices, nodeName=HOME)
    cluster = state(old, new, *OTHERS, owned(request()))
    told = {
        name: ", ".join(map(str, (*one.devices, *one.requests)))
        for one in _report(cluster).nodes
        for name in one.nodes
    }
    assert told[FIRST].endswith(
        f"at generation 2 ({found} slices), and the slices for the device's node are still of generation 1"
    )
    assert "no driver publishes" in told[LAST]
    # Before 1.35 the scheduler looked at the slices of the node alone.
    older = _report(state(old, new, *OTHERS, owned(request()), kubernetesVersion="v1.34.1"))
    assert sorted(name for one in older.nodes if one.placement for name in one.nodes) == [
        FIRST,
        HOME,
    ]


def _report(cluster: ClusterState) -> Report:
    return explain(cluster, ClaimSubject("ns", MINE))


def test_a_pool_with_a_slice_that_is_ignored_names_the_gate() -> None:
    partition = device("mig-0", consumesCounters=_consumes(groups=True))
    parts = [part("a", 1, slices=3), resource_slice([], name="cs", slices=3, sharedCounters=SETS)]
    parts.append(resource_slice([partition], name="b", slices=3))
    cluster = state(*parts, owned(request()))
    gate = f"pool {POOL}, which has a slice with compatibilityGroups,"
    assert Fleet(cluster).unusable == {POOL: FeatureOff(COMPATIBILITY_GROUPS, gate)}
    assert ALONE not in str(_report(cluster))
    one_missing = state(*parts[:1], parts[2], owned(request()))
    assert Fleet(one_missing).unusable == {POOL: PoolIncomplete(str(POOL), 2, 3, 1)}


def test_a_device_in_a_slice_that_is_ignored_names_the_gate() -> None:
    chosen = [{**one, "allNodes": True} for one in devices(1)]
    cluster = state(
        part("a", 1, slices=2),
        resource_slice(chosen, name="b", slices=2, perDeviceNodeSelection=True),
        owned(request(count=2)),
        featureGates={PARTITIONABLE: False},
    )
    why = FeatureOff(PARTITIONABLE, "a device in a slice with perDeviceNodeSelection")
    assert repr(why) in str(_report(cluster))


def test_a_slice_that_is_ignored_stays_in_a_pool_that_is_divided() -> None:
    partition = device("mig-0", consumesCounters=_consumes(groups=True))
    newer = resource_slice([partition], name="b")
    newer["spec"]["pool"]["generation"] = 2
    cluster = state(part("a", 1), newer, *OTHERS, owned(request(count=2)))
    fleet = Fleet(cluster)
    assert [one.id.device for one in fleet.all_devices] == ["mig-0", "gpu-0"]
    gate = f"pool {POOL}, which has a slice with compatibilityGroups,"
    assert fleet.unusable == {POOL: FeatureOff(COMPATIBILITY_GROUPS, gate)}
    assert usable(fleet, cluster.nodes[-1]) == searched(fleet, cluster.nodes[-1])
    assert ALONE not in str(_report(cluster))


def test_nodes_are_not_alike_if_the_slice_of_one_is_ignored() -> None:
    plain = resource_slice(devices(1), pool=FIRST)
    ignored = resource_slice(devices(1), name="b", pool=LAST, nodeName=LAST, sharedCounters=SETS)
    report = _report(state(plain, ignored, *OTHERS, owned(request()), kubernetesVersion="v1.33.1"))
    fit = [name for one in report.nodes if one.placement for name in one.nodes]
    why = FeatureOff(PARTITIONABLE, "a device in a slice with sharedCounters")
    assert (fit, [one.devices for one in report.nodes if one.nodes == (LAST,)]) == (
        [FIRST],
        [(why,)],
    )


def test_a_device_that_is_held_in_an_ignored_slice_takes_no_counters() -> None:
    grouped = device("mig-0", consumesCounters=_consumes(groups=True))
    parts = [
        resource_slice([], name="cs", slices=2, sharedCounters=SETS, nodeName=HOME),
        resource_slice(
            [device("mig-1", consumesCounters=_consumes(groups=False))], name="a", slices=2
        ),
        resource_slice([grouped], name="b", slices=2),
    ]
    fleet = Fleet(state(*parts, holder("mig-0")))
    assert fleet.held.devices
    assert fleet.ledger(POOL).left(("card", "slices")) == 4 * 10**9


def _consumes(*, groups: bool) -> list[dict[str, Any]]:
    consumed = {"counterSet": "card", "counters": {"slices": {"value": "1"}}}
    return [{**consumed, "compatibilityGroups": ["group"]} if groups else consumed]


def test_the_same_device_name_on_two_nodes_of_a_pool() -> None:
    parts = [part(name, 1, slices=2, nodeName=name) for name in (FIRST, HOME)]
    fleet = Fleet(state(*parts, *OTHERS))
    assert list(fleet.pools) == [POOL._replace(part=HOME)]
    assert [len(fleet.all_devices), len(fleet.devices)] == [2, 1]
    names = [usable(fleet, one) for one in fleet.state.nodes]
    assert names == [[(HOME, "gpu-0")], [(FIRST, "gpu-0")], []]


@pytest.mark.parametrize(
    ("version", "gates"),
    [
        ("v1.35.6", {PARTITIONABLE: True}),
        ("v1.37.1", {CONSUMABLE_CAPACITY: False, BINDING_CONDITIONS: False}),
    ],
)
def test_a_pool_of_which_a_node_reads_only_old_counters_for_another_node(
    version: str, gates: dict[str, bool]
) -> None:
    counted = device("mig-0", consumesCounters=_consumes(groups=False))
    newer = resource_slice([counted], name="devices", slices=2)
    newer["spec"]["pool"]["generation"] = 2
    older = resource_slice([], name="cs", slices=2, sharedCounters=SETS, nodeName=HOME)
    other = part("a", 1, pool=FIRST, nodeName=FIRST)
    fleet = Fleet(
        state(newer, older, other, *OTHERS, kubernetesVersion=version, featureGates=gates)
    )
    assert POOL in fleet.unusable
    assert {one.metadata.name: usable(fleet, one) for one in fleet.state.nodes} == {
        HOME: [],
        FIRST: [("a", "gpu-0")],
        LAST: [],
    }


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
    gates = pick.choice(((PARTITIONABLE,), (PARTITIONABLE, COMPATIBILITY_GROUPS), ()))
    known = {name: name in gates for name in (PARTITIONABLE, COMPATIBILITY_GROUPS)}
    version = f"v1.{release}.0"
    return state(*slices, *nodes, *more, kubernetesVersion=version, featureGates=known)


def _slices(pick: random.Random, release: int) -> Iterator[dict[str, Any]]:
    for number in range(pick.randint(1, 6)):
        made = resource_slice(
            [_device(pick, number, release) for _ in range(pick.randint(0, 2))],
            name=f"s-{number}",
            pool=pick.choice("pq"),
            slices=pick.choice((1, 1, 2, 3)),
            **_where(pick),
        )
        made["spec"]["pool"]["generation"] = pick.choice((1, 1, 2))
        if made["spec"].get("perDeviceNodeSelection"):
            for one in made["spec"].get("devices", ()):
                one.update(pick.choice(({"nodeName": "n-a"}, {"allNodes": True})))
        if pick.random() < 0.2:
            if release >= 35:
                made["spec"].pop("devices", None)
            made["spec"]["sharedCounters"] = SETS
        yield made


def _device(pick: random.Random, number: int, release: int) -> dict[str, Any]:
    made = device(pick.choice("xyz") + str(number % 3))
    if pick.random() < 0.2:
        made["consumesCounters"] = _consumes(groups=release >= 37 and pick.random() < 0.5)
    return made


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
        if number % 3 == 0:  # one device
            assert ALONE not in str(report), number
