# SPDX-License-Identifier: Apache-2.0
"""Counters that do not add up cost their set or their device, and nothing else."""

from typing import Any

import pytest

from dra_driver.model.api.resource_slice import Counter, CounterSet, Device
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.slices import Problem
from dra_driver.planning.slices import PoolPlan, plan_pool
from tests.support.api_values import content, found_device, published
from tests.support.counters import counter_set, part, uses

SET_LEFT_OUT = "the set and the devices that consume it were left out, all others are published; correct it in the backend"
DEVICE_LEFT_OUT = "the device was left out, all others are published; correct it in the backend"
NO_LABEL = "is no DNS label of at most 63 characters"
GOOD = counter_set("gpu-0", memory="80Gi", slices="7")


def plan_of(sets: Any, *devices: AllocatableDevice, kept: tuple[Device, ...] = ()) -> PoolPlan:
    return plan_pool(Inventory(devices, counter_sets=sets), kept=kept)


def of_device(name: str, found: str) -> Problem:
    return Problem(DeviceName(name), "consumesCounters", found, DEVICE_LEFT_OUT)


def test_a_whole_device_and_its_partitions_are_published_with_their_set():
    whole = part("gpu-0", uses("gpu-0", memory="80Gi", slices="7"))
    half = part("gpu-0-half", uses("gpu-0", memory="40Gi", slices="3"))
    plan = plan_of((GOOD,), whole, half)
    assert plan.problems == ()
    assert plan.slices == (
        content(whole.api, half.api),
        content().__class__(shared_counters=[GOOD]),
    )


@pytest.mark.parametrize(
    ("bad", "name", "found"),
    [
        # validateCounterSet
        (counter_set("", a="1"), "", f"the name '' {NO_LABEL}"),
        (counter_set("GPU", a="1"), "GPU", f"the name 'GPU' {NO_LABEL}"),
        (counter_set("s" * 64, a="1"), "s" * 64, f"the name '{'s' * 64}' {NO_LABEL}"),
        (counter_set("s"), "s", "it has no counter"),
        (counter_set("s", **{f"c{at}": "1" for at in range(33)}), "s", "more than 32 counters"),
        (counter_set("s", A="1"), "s", f"the counter name 'A' {NO_LABEL}"),
        (counter_set("s", a="-1"), "s", "counter a: -1 is negative"),
        (counter_set("s", a="x"), "s", "counter a: 'x' is no quantity; write for example 80Gi, 500m or 1e3"),
        # a backend is other people's code
        (CounterSet(name="s", counters={"a": 1}), "s", "Expected `object`, got `int` - at `$.counters[...]`"),  # type: ignore[dict-item]
        (None, "", "it is None"),
        ("s", "", "Expected `object`, got `str`"),
    ],
)  # fmt: skip
def test_a_bad_set_costs_itself_and_its_devices(bad: Any, name: str, found: str):
    other = part("gpu-1", uses("gpu-0", memory="1"))
    plan = plan_of((bad, GOOD), part("gpu-0", uses(name or "s", a="1")), other)
    assert list(plan.devices) == ["gpu-1"]
    first, second = plan.problems
    told = {Problem(DeviceName(name), "counters", found, SET_LEFT_OUT, "counter set")}
    assert told <= {first, second}
    assert {first.device, second.device} == {name, "gpu-0"}


def test_sets_that_are_no_tuple_cost_themselves_and_their_devices():
    plan = plan_of(None, part("a", uses("gpu-0", memory="1")), part("b"))
    assert list(plan.devices) == ["b"]
    first, second = plan.problems
    assert str(first) == (
        f"field counter_sets: type: a NoneType is no tuple of CounterSets; {SET_LEFT_OUT}"
    )
    assert second == of_device("a", "[gpu-0]: there is no good counter set of this name")


def test_32_counters_and_a_name_of_63_characters_are_published():
    large = counter_set("s" * 63, **{f"c{at}": "0" for at in range(32)})
    assert plan_of((large,), part("gpu-0", uses("s" * 63, c0="0"))).problems == ()


def test_of_two_sets_of_one_name_neither_counts():
    plan = plan_of((GOOD, counter_set("gpu-0", memory="1")), part("a", uses("gpu-0", memory="1")))
    two = Problem(
        DeviceName("gpu-0"), "counters", "two sets have this name", SET_LEFT_OUT, "counter set"
    )
    missing = of_device("a", "[gpu-0]: there is no good counter set of this name")
    assert plan == PoolPlan((content(),), (two, two, missing))
    assert str(two) == f"counter set gpu-0: counters: two sets have this name; {SET_LEFT_OUT}"


@pytest.mark.parametrize(
    ("consumed", "found"),
    [
        # validateDeviceCounterConsumption and its declarative rules
        ([uses("gpu-0", memory="1"), uses("b", a="1"), uses("c", a="1")], "more than 2 counter sets"),
        ([uses("gpu-0", memory="1"), uses("gpu-0", memory="1")], "[gpu-0]: it is there twice"),
        ([uses("", a="1")], f"the set name '' {NO_LABEL}"),
        ([uses("gpu-0")], "[gpu-0]: it has no counter"),
        ([uses("gpu-0", **{f"c{at}": "1" for at in range(33)})], "[gpu-0]: more than 32 counters"),
        ([uses("gpu-0", Memory="1")], f"[gpu-0]: the counter name 'Memory' {NO_LABEL}"),
        ([uses("gpu-0", memory="-1")], "[gpu-0]: counter memory: -1 is negative"),
        ([uses("gpu-0", ["a", "b", "c"], memory="1")], "[gpu-0].compatibilityGroups: more than 2 groups"),
        ([uses("gpu-0", ["A"], memory="1")], f"[gpu-0].compatibilityGroups: 'A' {NO_LABEL}"),
        ([uses("gpu-0", ["a", "a"], memory="1")], "[gpu-0].compatibilityGroups: 'a' is there twice"),
        # what the scheduler makes of a pool: the whole pool would be invalid
        ([uses("other", a="1")], "[other]: there is no good counter set of this name"),
        ([uses("gpu-0", other="1")], "[gpu-0]: the set has no counter 'other'"),
        # such a device could never be allocated
        ([uses("gpu-0", memory="81Gi")], "[gpu-0].memory: 81Gi is more than the 80Gi of the set"),
        ([uses("gpu-0", memory="1", slices="7001m")], "[gpu-0].slices: 7001m is more than the 7 of the set"),
    ],
)  # fmt: skip
def test_a_device_that_consumes_wrongly_costs_only_itself(consumed: Any, found: str):
    good = part("gpu-1", uses("gpu-0", memory="1"))
    plan = plan_of((GOOD,), part("gpu-0", *consumed), good)
    assert plan.problems == (of_device("gpu-0", found),)
    assert list(plan.devices) == ["gpu-1"]


def test_two_sets_and_two_groups_and_all_of_a_counter_are_published():
    other = counter_set("nvlink", links="18")
    device = part("a", uses("gpu-0", ["mig", "mps"], memory="81920Mi"), uses("nvlink", links="18"))
    assert plan_of((GOOD, other), device).devices == {"a": device.api}


def test_a_whole_device_that_consumes_is_published_beside_partitions_that_name_it():
    whole = part("gpu-0", uses("gpu-0", memory="80Gi", slices="7"), uuid="GPU-1")
    half = part("gpu-0-half", uses("gpu-0", memory="40Gi"), parentUUID="GPU-1", index=0)
    plan = plan_of((GOOD,), whole, half)
    assert (list(plan.devices), plan.problems) == (["gpu-0", "gpu-0-half"], ())


def test_a_whole_device_that_does_not_consume_beside_its_partitions_is_left_out():
    whole = part("gpu-0", uuid="GPU-1")
    half = part("gpu-0-half", uses("gpu-0", memory="40Gi"), parentUUID="GPU-1", index=0)
    foreign = part("gpu-1", uses("gpu-0", memory="1"), **{"gpu.example.com/parentUUID": "GPU-2"})
    alone = part("gpu-2", uuid="GPU-3", parentUUID="GPU-1")
    plan = plan_of((GOOD,), whole, half, foreign, alone)
    assert list(plan.devices) == ["gpu-0-half", "gpu-1", "gpu-2"]
    found = "its partitions consume counters, so the whole device must consume them too"
    assert plan.problems == (of_device("gpu-0", found),)


def test_a_partition_may_name_its_whole_device_with_the_drivers_domain():
    whole = part("gpu-0", uuid="GPU-1")
    half = part("half", uses("gpu-0", memory="1"), **{"gpu.example.com/parentUUID": "GPU-1"})
    assert list(plan_of((GOOD,), whole, half).devices) == ["half"]


def test_a_set_that_no_device_consumes_is_not_published():
    assert plan_of((GOOD,), found_device("a", "uuid")).slices == (content(published("a")),)


def test_a_kept_device_consumes_as_long_as_its_set_exists():
    """The scheduler counts what allocated devices consume, and refuses the pool if their set is gone."""
    kept = part("gpu-0-half", uses("gpu-0", memory="999Gi")).api
    assert plan_of((GOOD,), kept=(kept,)).devices == {"gpu-0-half": kept}
    gone = plan_of((), kept=(kept,))
    assert gone == PoolPlan((content(published("gpu-0-half")),), ())
    other = plan_of((counter_set("gpu-0", other="1"),), kept=(kept,))
    assert other.devices == {"gpu-0-half": published("gpu-0-half")}


def test_a_consumption_of_a_wrong_type_costs_its_device():
    wrong: Any = [{"counterSet": "gpu-0", "counters": {"memory": 5}}]
    device = AllocatableDevice(Device(name="a", consumes_counters=wrong), "uuid")
    (problem,) = plan_of((GOOD,), device).problems
    assert problem.found == "Expected `object`, got `int` - at `$[0].counters[...]`"


def test_a_counter_may_be_a_number():
    numbers = CounterSet(name="s", counters={"c": Counter(value=7)})
    assert plan_of((numbers,), part("a", uses("s", c="7"))).problems == ()
