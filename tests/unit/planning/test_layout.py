# SPDX-License-Identifier: Apache-2.0
"""How counter sets and devices are cut into slices, for each release of the API server."""

from dra_driver.model.api.resource_slice import CounterSet, Device
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.slices import Problem, SliceContent
from dra_driver.planning.slices import PoolPlan, plan_pool
from dra_driver.planning.unrestricted import ServerRules
from tests.support.counters import counter_set, gpu, part, uses

OLD = ServerRules(minor=34)
WITHHELD = "it is not published; Kubernetes 1.35 and later have room for it, or let the backend offer fewer partitions of one device"


def machine(gpus: int, parts: int) -> Inventory:
    found = [gpu(index, parts) for index in range(gpus)]
    return Inventory(
        tuple(device for _, devices in found for device in devices),
        counter_sets=tuple(counters for counters, _ in found),
    )


def sizes(plan: PoolPlan) -> list[tuple[int | None, int | None]]:
    """By slice, the numbers of devices and of counter sets."""

    def count(entries: list[Device] | list[CounterSet] | None) -> int | None:
        return None if entries is None else len(entries)

    return [(count(one.devices), count(one.shared_counters)) for one in plan.slices]


def names(content: SliceContent) -> list[str]:
    return [device.name for device in content.devices or ()]


# validateResourceSliceSpec from 1.35: only one of `sharedCounters` or `devices` is allowed.


def test_counter_sets_are_in_slices_of_their_own():
    assert sizes(plan_pool(machine(2, 3), kept=())) == [(8, None), (None, 2)]


def test_500_partitions_are_all_published_at_64_devices_a_slice():
    plan = plan_pool(machine(8, 62), kept=())
    assert sizes(plan) == [(64, None)] * 7 + [(56, None), (None, 8)]
    assert (len(plan.devices), plan.problems) == (504, ())


def test_eight_counter_sets_are_in_one_slice():
    assert sizes(plan_pool(machine(9, 1), kept=())) == [(18, None), (None, 8), (None, 1)]


def test_a_set_of_which_only_a_vanished_device_is_left_stays():
    counters, (_, kept) = gpu(0, 1)
    plan = plan_pool(Inventory(counter_sets=(counters,)), kept=(kept.api,))
    assert sizes(plan) == [(1, None), (None, 1)]


# validateResourceSliceSpec of 1.33 and 1.34: a device must reference a counterSet of its slice.


def test_before_135_devices_are_in_the_slice_of_their_sets():
    plan = plan_pool(machine(2, 3), kept=(), rules=OLD)
    assert sizes(plan) == [(8, 2)]
    assert [one.name for one in plan.slices[0].shared_counters or ()] == ["gpu-0", "gpu-1"]


def test_before_135_a_new_slice_begins_when_the_devices_of_a_set_have_no_room():
    plan = plan_pool(machine(3, 31), kept=(), rules=OLD)
    assert sizes(plan) == [(64, 2), (32, 1)]
    assert names(plan.slices[1])[0] == "gpu-2"


def test_before_135_a_slice_has_32_counters_in_all():
    sets = tuple(counter_set(f"s{at}", **{f"c{n}": "1" for n in range(16)}) for at in range(3))
    devices = tuple(part(f"d{at}", uses(f"s{at}", c0="1")) for at in range(3))
    assert sizes(plan_pool(Inventory(devices, counter_sets=sets), kept=(), rules=OLD)) == [
        (2, 2),
        (1, 1),
    ]


def test_before_135_a_set_with_65_to_128_devices_has_a_slice_of_its_own():
    plan = plan_pool(machine(2, 127), kept=(), rules=OLD)
    assert (sizes(plan), plan.problems) == ([(128, 1), (128, 1)], ())


def test_before_135_what_has_no_room_beside_its_set_is_left_out_and_named():
    plan = plan_pool(machine(1, 129), kept=(), rules=OLD)
    assert sizes(plan) == [(128, 1)]
    found = "more than 128 devices consume counters that must be in one slice"
    assert plan.problems == tuple(
        Problem(DeviceName(f"gpu-0-part-{at}"), "consumesCounters", found, WITHHELD)
        for at in (127, 128)
    )


def test_before_135_the_devices_of_a_slice_consume_1024_counters():
    many = {f"c{n}": "1" for n in range(32)}
    devices = tuple(part(f"d{at}", uses("s", **many)) for at in range(33))
    inventory = Inventory(devices, counter_sets=(counter_set("s", **many),))
    plan = plan_pool(inventory, kept=(), rules=OLD)
    assert sizes(plan) == [(32, 1)]
    (problem,) = plan.problems
    assert problem == Problem(
        DeviceName("d32"),
        "consumesCounters",
        "the devices of one slice consume more than 1024 counters",
        WITHHELD,
    )


def test_before_135_a_new_slice_begins_when_two_groups_consume_more_than_1024_counters():
    """42 devices with 24 counters each and 2 with 8 consume 1024."""
    many, few = {f"c{n}": "1" for n in range(24)}, {f"c{n}": "1" for n in range(8)}
    devices = [part(f"a{at}", uses("a", **many)) for at in range(42)]
    devices += [part(f"b{at}", uses("b", **few)) for at in range(3)]
    sets = (counter_set("a", **many), counter_set("b", **few))
    plan = plan_pool(Inventory(tuple(devices), counter_sets=sets), kept=(), rules=OLD)
    assert sizes(plan) == [(42, 1), (3, 1)]
    fewer = plan_pool(Inventory(tuple(devices[:-1]), counter_sets=sets), kept=(), rules=OLD)
    assert sizes(fewer) == [(44, 2)]


def test_before_135_devices_with_two_sets_connect_them():
    sets = tuple(counter_set(name, c="9") for name in ("a", "b", "c"))
    devices = (
        part("a1", uses("a", c="1")),
        part("c1", uses("c", c="1")),
        part("b1", uses("b", c="1")),
        part("plain"),
        part("ab", uses("a", c="1"), uses("b", c="1")),
        part("ab2", uses("b", c="1"), uses("a", c="1")),
    )
    plan = plan_pool(Inventory(devices, counter_sets=sets), kept=(), rules=OLD)
    assert [names(one) for one in plan.slices] == [["a1", "b1", "ab", "ab2", "c1", "plain"]]
    assert [one.name for one in plan.slices[0].shared_counters or ()] == ["a", "b", "c"]


def test_before_135_connected_sets_with_more_than_32_counters_are_left_out():
    sets = tuple(counter_set(name, **{f"c{n}": "9" for n in range(17)}) for name in ("a", "b"))
    devices = (part("ab", uses("a", c0="1"), uses("b", c0="1")), part("plain"))
    plan = plan_pool(Inventory(devices, counter_sets=sets), kept=(), rules=OLD)
    assert sizes(plan) == [(1, None)]
    found = "34 counters that devices connect, and Kubernetes 1.34 allows 32 in one slice"
    assert plan.problems == (Problem(DeviceName("ab"), "consumesCounters", found, WITHHELD),)


def test_before_135_a_device_without_counters_is_published_as_before():
    def plain(count: int) -> tuple[AllocatableDevice, ...]:
        return tuple(part(f"d{at}") for at in range(count))

    for count, cut in ((0, [0]), (64, [64]), (65, [64, 1])):
        plan = plan_pool(Inventory(plain(count)), kept=(), rules=OLD)
        assert sizes(plan) == [(size, None) for size in cut]
