# SPDX-License-Identifier: Apache-2.0
"""Which pools a node sees, and what makes them unusable."""

from typing import Any

import msgspec
import pytest

from dra_driver.allocator import features
from dra_driver.allocator import pools as allocator_pools
from dra_driver.allocator.devices import PoolSlice
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import Implementation, Rules
from dra_driver.allocator.pools import Pool, SliceIndex
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_slice import ResourceSlice

Json = dict[str, Any]
NODE = msgspec.convert({"metadata": {"name": "node-1"}}, Node)
NEAR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Near"}]}]}


def a_slice(
    name: str,
    *devices: str | Json,
    generation: int = 1,
    count: int = 1,
    pool: str = "pool",
    **spec: Any,
) -> Json:
    where = spec or {"nodeName": "node-1"}
    named = [{"name": one} if isinstance(one, str) else one for one in devices]
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": "d",
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            "devices": named,
            **where,
        },
    }


def pools(
    *slices: Json,
    on: frozenset[str] = features.ALL,
    by: Implementation = "experimental",
    minor: int = 37,
) -> list[Pool]:
    rules = Rules.of(on, by, minor)
    return SliceIndex(msgspec.convert(slices, list[ResourceSlice]), rules).gather_pools(NODE)


def devices(pool: Pool) -> list[str]:
    return [device.device.name for device in pool.devices]


def consumer(name: str, counter_set: str = "gpu", counter: str = "slots", **parts: Any) -> Json:
    consumed = {"counterSet": counter_set, "counters": {counter: {"value": "1"}}, **parts}
    return {"name": name, "consumesCounters": [consumed]}


COUNTERS: Json = {"sharedCounters": [{"name": "gpu", "counters": {"slots": {"value": "7"}}}]}


def test_slices_are_gone_through_by_name_and_pools_by_driver_and_name() -> None:
    found = pools(
        a_slice("s2", "c", count=2),
        a_slice("s1", "a", "b", count=2),
        a_slice("s0", "z", pool="a-pool"),
    )
    assert [(str(pool.id), devices(pool)) for pool in found] == [
        ("d/a-pool", ["z"]),
        ("d/pool", ["a", "b", "c"]),
    ]


def test_pools_whose_devices_bind_later_come_last() -> None:
    binding = {"name": "a", "bindingConditions": ["ready"]}
    found = pools(a_slice("s0", binding, pool="a-pool"), a_slice("s1", "b"))
    assert [pool.id.pool for pool in found] == ["pool", "a-pool"]


def test_stable_takes_slices_as_they_come() -> None:
    slices = a_slice("s2", "c", count=2), a_slice("s1", "a", count=2)
    (pool,) = pools(*slices, on=frozenset(), by="stable")
    assert devices(pool) == ["c", "a"]


def test_stable_takes_slices_for_one_node_and_for_all_as_they_come() -> None:
    found = pools(
        a_slice("s2", "c", count=3, allNodes=True),
        a_slice("s1", "a", count=3),
        a_slice("s0", "b", count=3, allNodes=True),
        on=frozenset(),
        by="stable",
    )
    assert [devices(one) for one in found] == [["c", "a", "b"]]


@pytest.mark.parametrize("by", ["stable", "experimental"])
def test_slices_for_another_node_are_not_gone_through(
    monkeypatch: pytest.MonkeyPatch, by: Implementation
) -> None:
    read: list[str] = []

    class Watched(PoolSlice):
        def __getattribute__(self, name: str) -> Any:
            read.append(super().__getattribute__("__dict__").get("name", ""))
            return super().__getattribute__(name)

    monkeypatch.setattr(allocator_pools, "PoolSlice", Watched)
    mine = a_slice("mine", "a")
    others = [a_slice(f"s{n}", "b", pool=f"p{n}", nodeName="node-2") for n in range(9)]
    rules = Rules.of(frozenset(), by)
    index = SliceIndex(msgspec.convert([mine, *others], list[ResourceSlice]), rules)
    read.clear()
    assert [devices(pool) for pool in index.gather_pools(NODE)] == [["a"]]
    assert set(read) == {"mine"}


def test_only_the_newest_generation_counts() -> None:
    slices = [
        a_slice("s1", "old"),
        a_slice("s2", "new", generation=2),
        a_slice("s0", "older", generation=0),
    ]
    (pool,) = pools(*slices)
    assert devices(pool) == ["new"]


def test_a_pool_that_is_being_replaced_elsewhere_is_not_seen() -> None:
    newer = a_slice("s2", "b", generation=2, nodeName="node-2")
    assert pools(a_slice("s1", "a", count=2), newer) == []


def test_slices_for_other_nodes_complete_a_pool() -> None:
    other = a_slice("s2", "b", count=2, nodeName="node-2")
    (pool,) = pools(a_slice("s1", "a", count=2), other)
    assert (pool.usable, devices(pool)) == (True, ["a"])
    assert [device.device.name for device in pool.all_devices] == ["a", "b"]
    (alone,) = pools(a_slice("s1", "a", count=2))
    assert (alone.usable, alone.incomplete, devices(alone)) == (False, True, [])


def test_before_1_35_an_incomplete_pool_is_usable_and_other_nodes_do_not_complete_it() -> None:
    (alone,) = pools(a_slice("s1", "a", count=2), minor=34)
    assert (alone.usable, alone.incomplete_for_all, devices(alone)) == (True, True, ["a"])
    parts = a_slice("s1", "a", count=2), a_slice("s2", "b", count=2, nodeName="node-2")
    (spread,) = pools(*parts, minor=34)
    assert (spread.usable, spread.incomplete_for_all, devices(spread)) == (True, True, ["a"])
    (spread,) = pools(*parts, minor=35)
    assert (spread.usable, spread.incomplete_for_all) == (True, False)
    (whole,) = pools(a_slice("s1", "a"), minor=34)
    assert (whole.usable, whole.incomplete_for_all) == (True, False)
    (twice,) = pools(a_slice("s1", "a", "a", count=2), minor=34)
    assert (twice.usable, devices(twice)) == (False, [])


@pytest.mark.parametrize(
    ("slices", "problem"),
    [
        ([a_slice("s1", "a", "a")], "duplicate device name a"),
        ([a_slice("s1", consumer("a"))], "counter set gpu not found"),
        (
            [
                a_slice("s1", consumer("a", counter="memory"), count=2),
                a_slice("s2", count=2, allNodes=True, **COUNTERS),
            ],
            "counter memory not found in counter set gpu",
        ),
        (
            [
                a_slice("s1", "a", count=3),
                a_slice("s2", count=3, allNodes=True, **COUNTERS),
                a_slice("s3", count=3, allNodes=True, **COUNTERS),
            ],
            "duplicate counter set name gpu",
        ),
        (
            [
                a_slice("s1", "a", count=2),
                a_slice("s2", consumer("b"), count=2, nodeName="node-2"),
            ],
            "counter set gpu not found",
        ),
    ],
)
def test_nonsense_makes_a_pool_invalid(slices: list[Json], problem: str) -> None:
    (pool,) = pools(*slices)
    assert (pool.invalid_because, pool.usable) == (problem, False)


def test_without_partitions_slices_with_counters_are_not_there() -> None:
    slices = [a_slice("s1", "a"), a_slice("s2", pool="counters", allNodes=True, **COUNTERS)]
    found = pools(*slices, on=features.ALL - {features.PARTITIONABLE})
    assert [devices(pool) for pool in found] == [["a"]]


@pytest.mark.parametrize(("minor", "named"), [(33, []), (34, ["a", "b"]), (35, [])])
def test_1_34_reads_a_slice_with_counters_although_partitions_are_off(
    minor: int, named: list[str]
) -> None:
    slots = [{"name": "gpu", "counters": {"slots": {"value": "1"}}}]
    beside = a_slice("s1", "a", consumer("b"), sharedCounters=slots, nodeName="node-1")
    chosen = a_slice("s2", "c", pool="other", perDeviceNodeSelection=True)
    off = features.ALL - {features.PARTITIONABLE}
    assert [
        one for pool in pools(beside, chosen, on=off, minor=minor) for one in devices(pool)
    ] == named


def test_before_1_35_a_newer_generation_for_other_nodes_replaces_nothing() -> None:
    slices = a_slice("s1", "a", count=2), a_slice("s2", "b", generation=2, nodeName="node-2")
    (older,) = pools(*slices, minor=34)
    assert (older.usable, older.incomplete_for_all, devices(older)) == (True, True, ["a"])
    assert pools(*slices, minor=35) == []


def test_without_compatibility_groups_a_slice_that_uses_them_is_missing() -> None:
    slices = [
        a_slice("s1", "a", count=3),
        a_slice("s2", consumer("b", compatibilityGroups=["x"]), count=3),
        a_slice("s3", count=3, allNodes=True, **COUNTERS),
    ]
    (known,) = pools(*slices)
    (unknown,) = pools(*slices, on=features.ENABLED_BY_DEFAULT)
    assert (known.usable, unknown.incomplete) == (True, True)


def test_stable_sees_counters_for_other_nodes() -> None:
    elsewhere = a_slice("s1", nodeName="node-2", count=2, **COUNTERS)
    by_default = frozenset({features.PARTITIONABLE})
    (pool,) = pools(elsewhere, on=by_default, by="stable")
    assert pool.incomplete
    assert pools(elsewhere, on=by_default, by="incubating") == []


def test_devices_may_choose_their_nodes_themselves() -> None:
    here, there = {"name": "a", "nodeName": "node-1"}, {"name": "b", "nodeName": "node-2"}
    (pool,) = pools(a_slice("s1", there, here, perDeviceNodeSelection=True))
    assert devices(pool) == ["b", "a"]  # the search looks at each again
    assert pools(a_slice("s1", there, perDeviceNodeSelection=True)) == []


def test_a_slice_that_says_nothing_about_nodes_is_for_none() -> None:
    assert pools(a_slice("s1", "a", perDeviceNodeSelection=False)) == []


def test_malformed_selectors_stop_the_pod() -> None:
    with pytest.raises(AllocationError) as caught:
        pools(a_slice("s1", "a", nodeSelector=NEAR))
    assert str(caught.value).startswith(
        "gather pool information: failed to perform node selection for slice s1:"
        " failed to parse node selector &NodeSelector{"
    )
    with pytest.raises(AllocationError) as caught:
        pools(a_slice("s1", {"name": "a", "nodeSelector": NEAR}, perDeviceNodeSelection=True))
    assert str(caught.value).startswith(
        "gather pool information: failed to perform node selection for device a in slice s1:"
    )


@pytest.mark.parametrize("by", ["stable", "incubating", "experimental"])
def test_before_1_35_devices_are_in_the_slice_of_their_counters(by: Implementation) -> None:
    partitioned = frozenset({features.PARTITIONABLE})
    beside = a_slice("s1", consumer("a"), "b", nodeName="node-1", **COUNTERS)
    there = a_slice("s2", consumer("c"), nodeName="node-2", pool="other", **COUNTERS)
    (older,) = pools(beside, there, on=partitioned, by=by, minor=34)
    assert (older.usable, devices(older), older.counters) == (
        True,
        ["a", "b"],
        {("gpu", "slots"): 7 * 10**9},
    )
    assert devices(pools(beside, on=partitioned, by=by, minor=35)[0]) == []


@pytest.mark.parametrize("by", ["stable", "incubating", "experimental"])
def test_before_1_35_each_slice_has_counter_sets_of_its_own(by: Implementation) -> None:
    partitioned = frozenset({features.PARTITIONABLE})
    counters = COUNTERS["sharedCounters"] + [
        {"name": "only", "counters": {"slots": {"value": "1"}}}
    ]
    first = a_slice(
        "s1",
        consumer("a"),
        consumer("b", "only"),
        "c",
        count=2,
        nodeName="node-1",
        sharedCounters=counters,
    )
    second = a_slice("s2", consumer("d"), count=2, nodeName="node-1", **COUNTERS)
    (pool,) = pools(first, second, on=partitioned, by=by, minor=34)
    assert pool.usable
    assert {device.device.name: list(device.consumes) for device in pool.devices} == {
        "a": [("gpu of slice s1", "slots")],
        "b": [("only", "slots")],
        "c": [],
        "d": [("gpu of slice s2", "slots")],
    }
    assert set(pool.counter_sets) == {"gpu of slice s1", "only", "gpu of slice s2"}
