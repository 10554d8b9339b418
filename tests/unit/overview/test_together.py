# SPDX-License-Identifier: Apache-2.0
"""How many partitions can be had at the same time? The scheduler's own search gives so many claims a device, and not one more."""

import random
from typing import Any

import pytest

from dra_driver.explain.trial import try_on
from dra_driver.overview import together as module
from dra_driver.overview.cluster import Overview
from dra_driver.overview.free import FreeOfClass, free_of
from tests.e2e import fleet as words
from tests.unit.explain.clusters import claim
from tests.unit.overview.scene import ANYWHERE, Object, gpu_slice, held, overview

# The placements of an A100's instances: name, compute slices, first memory slice, memory slices.
PLACES = (
    *(("7g.40gb", 7, 0, 8), ("4g.20gb", 4, 0, 4), ("3g.20gb", 3, 0, 4), ("3g.20gb", 3, 4, 4)),
    *(("2g.10gb", 2, place, 2) for place in (0, 2, 4)),
    *(("1g.5gb", 1, place, 1) for place in range(7)),
)


def sets(*named: str, **counters: int) -> Object:
    """The slice with the counter sets."""
    shared = [{"name": name, "counters": amounts(counters)} for name in named]
    return gpu_slice(name="sets", slices=2, nodeName="fleet-1", sharedCounters=shared)


def amounts(counters: dict[str, int]) -> dict[str, Any]:
    return {name.replace("_", "-"): {"value": str(value)} for name, value in counters.items()}


def part(name: str, *used: str, groups: tuple[str, ...] = (), **counters: int) -> Object:
    """A device that consumes as much of each of these counter sets."""
    consumed: list[dict[str, Any]] = [
        {"counterSet": one, "counters": amounts(counters)} for one in used
    ]
    for one in consumed if groups else ():
        one["compatibilityGroups"] = list(groups)
    return words.device(name, consumesCounters=consumed)


def a100(index: int) -> tuple[dict[str, int], list[Object]]:
    """The counters of a GPU, and all its partitions, each with its profile."""
    memory = {f"memory_{place}": 1 for place in range(8)}
    found = []
    for number, (profile, compute, first, count) in enumerate(PLACES):
        taken = {f"memory_{place}": 1 for place in range(first, first + count)}
        made = part(f"gpu-{index}-{number}", f"gpu-{index}", compute=compute, **taken)
        made["attributes"]["profile"] = {"string": profile}
        made["capacity"] = {"memory": {"value": f"{5 * count}Gi"}}
        found.append(made)
    return {"compute": 7, **memory}, found


def row(*objects: Object, **fields: Any) -> FreeOfClass:
    (found,) = free_of(overview(*objects, **fields), ANYWHERE).classes
    return found


def a100s(count: int, *more: Object) -> FreeOfClass:
    counters = a100(0)[0]
    devices = [one for index in range(count) for one in a100(index)[1]]
    named = [f"gpu-{index}" for index in range(count)]
    return row(sets(*named, **counters), gpu_slice(*devices, slices=2), *more)


def test_all_partitions_of_a_gpu_and_the_most_at_the_same_time() -> None:
    found = a100s(1)
    assert (found.matching, found.free, found.together) == (14, 14, 7)
    assert [(one.product, one.free, one.together) for one in found.products] == [
        ("H100 1g.5gb", 7, 7),
        ("H100 2g.10gb", 3, 3),
        ("H100 3g.20gb", 2, 2),
        ("H100 4g.20gb", 1, 1),
        ("H100 7g.40gb", 1, 1),
    ]
    assert found.largest_memory == "40Gi"


def test_what_a_sibling_has_is_left_out() -> None:
    found = a100s(1, held("x", {"device": "gpu-0-3"}))
    assert (found.free, found.together) == (8, 4)
    assert [(one.product, one.together) for one in found.products] == [
        ("H100 1g.5gb", 4),
        ("H100 2g.10gb", 2),
        ("H100 3g.20gb", 1),
        ("H100 4g.20gb", 1),
    ]


def test_gpus_count_each_for_itself_and_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    most = module._Search.most

    def counted(search: module._Search) -> int:
        searched.append(1)
        return most(search)

    monkeypatch.setattr(module._Search, "most", counted)
    found = a100s(8)
    assert (found.free, found.together) == (112, 56)
    # All partitions, and those of the profiles with more than one placement.
    assert len(searched) == 1 + 3


def test_a_device_of_several_counter_sets_joins_them() -> None:
    both = part("both", "a", "b", slots=1)
    parts = [part(f"{name}-{place}", name, slots=1) for name in ("a", "b") for place in range(2)]
    apart = row(sets("a", "b", slots=2), gpu_slice(*parts, slices=2))
    assert (apart.free, apart.together) == (4, 4)
    for devices in ([both, *parts], [*parts, both]):
        found = row(sets("a", "b", slots=2), gpu_slice(*devices, slices=2))
        assert (found.free, found.together) == (5, 4)


def test_devices_without_counters_and_shares_that_have_paid_count_for_themselves() -> None:
    shared = part("shared", "a", slots=1)
    shared["allowMultipleAllocations"] = True
    share = {"device": "shared", "shareID": "s", "consumedCapacity": {"memory": "20Gi"}}
    others = [part("b", "a", slots=1), part("c", "a", slots=1), words.device("whole")]
    found = row(sets("a", slots=2), gpu_slice(shared, *others, slices=2), held("x", share))
    # The share that somebody has has paid for the device. Only one of b and c fits beside it.
    assert (found.free, found.together) == (4, 3)


def test_partitions_of_other_groups_exclude_each_other() -> None:
    devices = [
        *(part(f"a{place}", "gpu", groups=("a",), slots=1) for place in range(2)),
        *(part(f"b{place}", "gpu", groups=("b",), slots=1) for place in range(3)),
    ]
    objects = sets("gpu", slots=9), gpu_slice(*devices, slices=2)
    gates = {"DRADeviceCompatibilityGroups": True}
    assert row(*objects, featureGates=gates).together == 3
    # With the gate off the scheduler ignores the slice, and the pool is incomplete.
    off = row(*objects, featureGates=dict.fromkeys(gates, False))
    assert (off.matching, off.free, off.together) == (5, 0, 0)


def test_a_search_that_takes_too_long_says_what_it_has_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The small one in the middle excludes both others: the first try finds one device.
    devices = [
        part("middle", "gpu", b=1, c=1),
        part("left", "gpu", a=1, b=1, d=1),
        part("right", "gpu", c=1, e=1, f=1),
    ]
    objects = sets("gpu", a=1, b=1, c=1, d=1, e=1, f=1), gpu_slice(*devices, slices=2)
    assert row(*objects).together == 2
    monkeypatch.setattr(module, "STEPS", 2)
    assert row(*objects).together == 1


@pytest.mark.parametrize("seed", range(12))
def test_the_scheduler_gives_so_many_and_not_one_more(seed: int) -> None:
    drawn = random.Random(seed)
    counters = {"compute": 7, **{f"memory_{place}": 1 for place in range(6)}}
    devices = []
    for number in range(8):
        first = drawn.randrange(6)
        count = drawn.randint(1, 6 - first)
        taken = {f"memory_{place}": 1 for place in range(first, first + count)}
        used = part(f"gpu-{number}", "gpu", compute=drawn.randint(1, 4), **taken)
        devices.append(used)
    taken_by = [held("x", {"device": "gpu-0"})] if seed % 2 else []
    whole = overview(sets("gpu", **counters), gpu_slice(*devices, slices=2), *taken_by)
    (found,) = free_of(whole, ANYWHERE).classes
    assert found.together <= found.free
    assert all(fits(whole, count) for count in range(1, found.together + 1))
    assert not fits(whole, found.together + 1)


def fits(whole: Overview, count: int) -> bool:
    """Whether so many claims of one device fit, by the scheduler's search."""
    (node,) = whole.state.nodes
    wanted = [claim(words.request(), name=f"c{number}") for number in range(count)]
    return try_on(whole.fleet.allocator, node, wanted, lambda: False).fits


def test_partitions_on_a_closed_node_count_as_they_would_on_an_open_one() -> None:
    closed = words.node("fleet-1", unschedulable=True)
    assert a100s(1, closed).on_closed_nodes == a100s(1).together == 7


def test_what_the_holders_have_in_common_is_not_the_same_for_sets_that_look_alike() -> None:
    holders = {"one": ("a", "b"), "two": ("a", "b", "c")}
    devices, claims = [], []
    for name, groups in holders.items():
        devices += [
            part(f"held-{name}", name, groups=groups, slots=1),
            part(f"p-{name}", name, groups=("a", "c"), slots=1),
            part(f"q-{name}", name, groups=("b", "c"), slots=1),
        ]
        claims.append(held(name, {"device": f"held-{name}"}))
    found = row(
        sets(*holders, slots=9),
        gpu_slice(*devices, slices=2),
        *claims,
        featureGates={"DRADeviceCompatibilityGroups": True},
    )
    # Beside a and b only one of p and q has a group in common; beside a, b and c both have c.
    assert (found.free, found.together) == (4, 3)
