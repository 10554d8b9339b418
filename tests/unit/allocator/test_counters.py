# SPDX-License-Identifier: Apache-2.0
"""Counters and compatibility groups while devices come and go."""

from typing import Any

import msgspec

from dra_driver.allocator import features
from dra_driver.allocator.counters import AvailableCounters
from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.features import Rules
from dra_driver.allocator.pools import Pool, SliceIndex
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_slice import ResourceSlice

NANO = 10**9


def a_pool(total: int, *devices: tuple[str, int, list[str]]) -> Pool:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    spec: dict[str, Any] = {"driver": "d", "pool": pool, "allNodes": True}
    consumers = [
        {
            "name": name,
            "consumesCounters": [
                {
                    "counterSet": "gpu",
                    "counters": {"slots": {"value": str(slots)}},
                    "compatibilityGroups": groups,
                }
            ],
        }
        for name, slots, groups in devices
    ]
    counters = {"slots": {"value": str(total)}, "other": {"value": "1"}}
    slices = [
        {"metadata": {"name": "a"}, "spec": {**spec, "devices": consumers}},
        {
            "metadata": {"name": "b"},
            "spec": {**spec, "sharedCounters": [{"name": "gpu", "counters": counters}]},
        },
    ]
    rules = Rules.of(features.ALL, None)
    (found,) = SliceIndex(msgspec.convert(slices, list[ResourceSlice]), rules).gather_pools(Node())
    return found


def free(_: SliceDevice) -> bool:
    return False


def test_a_device_takes_from_the_counters_until_they_are_used_up() -> None:
    pool = a_pool(3, ("a", 2, []), ("b", 2, []))
    first, second = pool.devices
    counters = AvailableCounters(pool, free).copy()
    assert counters.exhausted(first) is None
    counters.consume(first)
    assert counters.left(("gpu", "slots")) == NANO
    assert counters.exhausted(second) == ("gpu", "slots")
    counters.release(first)
    assert counters.exhausted(second) is None
    assert not counters.never_enough(second)


def test_what_is_allocated_has_taken_its_part() -> None:
    pool = a_pool(3, ("a", 2, []), ("b", 2, []))
    counters = AvailableCounters(pool, lambda device: device.device.name == "a")
    assert counters.exhausted(pool.devices[1]) == ("gpu", "slots")
    assert counters.never_enough(pool.devices[1])


def test_an_overdrawn_counter_stops_who_takes_nothing_of_it() -> None:
    pool = a_pool(-1, ("a", 0, []))
    counters = AvailableCounters(pool, free)
    assert counters.exhausted(pool.devices[0]) == ("gpu", "slots")
    assert counters.never_enough(pool.devices[0])


def test_a_search_has_its_own_ledger_where_there_are_counters() -> None:
    pool = a_pool(3, ("a", 2, []))
    counters = AvailableCounters(pool, free)
    counters.copy().consume(pool.devices[0])
    assert counters.left(("gpu", "slots")) == 3 * NANO
    without = AvailableCounters(Pool(pool.id), free)
    assert without.copy() is without


def test_consumers_must_have_a_group_in_common() -> None:
    pool = a_pool(9, ("xy", 1, ["x", "y"]), ("yz", 1, ["y", "z"]), ("z", 1, ["z"]), ("none", 1, []))
    xy, yz, z, none = pool.devices
    counters = AvailableCounters(pool, free)
    assert [counters.incompatible(one) for one in pool.devices] == [None] * 4
    counters.consume_groups(xy)
    before = counters.consume_groups(yz)
    assert [counters.incompatible(one) for one in (xy, z, none)] == [None, "gpu", "gpu"]
    counters.restore_groups(before)
    assert counters.incompatible(z) == "gpu"
    alone = AvailableCounters(pool, lambda device: device is none)
    assert (alone.incompatible(none), alone.incompatible(xy)) == (None, "gpu")
    alone.consume_groups(none)
    assert alone.incompatible(none) is None


def test_allocated_devices_without_a_common_group_admit_nobody() -> None:
    pool = a_pool(9, ("x", 1, ["x"]), ("y", 1, ["y"]), ("none", 1, []))
    x, _, none = pool.devices
    counters = AvailableCounters(pool, lambda device: device is not none)
    assert (counters.incompatible(x), counters.incompatible(none)) == ("gpu", "gpu")


def test_consumption_below_zero_makes_room() -> None:
    assert AvailableCounters(a_pool(3, ("a", 2, [])), free).monotonic
    assert not AvailableCounters(a_pool(3, ("a", -2, [])), free).monotonic
