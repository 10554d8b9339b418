# SPDX-License-Identifier: Apache-2.0
"""Which free devices get a taint because a claim has their hardware under another name."""

from collections.abc import Sequence

import pytest
from msgspec import structs

from dra_driver.backends.base import BackendContext
from dra_driver.backends.partitions import MIG_80GB, divide
from dra_driver.backends.simulated import SimulatedBackend, SimulatedOptions
from dra_driver.model.api.resource_slice import CounterSet, Device, DeviceCounterConsumption
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.planning.occupied import Occupied, unseen
from dra_driver.planning.slices import plan_pool
from tests.support.counters import counter_set, uses

WHOLE = Hardware("GPU-7")
LEFT, RIGHT = Hardware("GPU-7", ("0", "1")), Hardware("GPU-7", ("2", "3"))
MIDDLE = Hardware("GPU-7", ("1", "2"))
ELSEWHERE = Hardware("GPU-8")
SET = counter_set("gpu-7", memory="80", slices="7")


def device(name: str, hardware: Hardware, *used: DeviceCounterConsumption) -> AllocatableDevice:
    api = Device(name=name, consumes_counters=list(used) or None)
    return AllocatableDevice(api, f"uuid-of-{name}", hardware=hardware)


def owned(**hardware: Hardware) -> Occupied:
    return {DeviceName(name): one.pieces for name, one in hardware.items()}


def found(
    occupied: Occupied,
    *devices: AllocatableDevice,
    kept: Sequence[Device] = (),
    sets: tuple[CounterSet, ...] = (SET,),
) -> list[str]:
    inventory = Inventory(devices, counter_sets=sets)
    return sorted(unseen(inventory, occupied, plan_pool(inventory, kept=kept)))


@pytest.mark.parametrize(
    ("old", "tainted"),
    [
        (WHOLE, ["left", "right"]),
        (LEFT, ["left"]),
        (MIDDLE, ["left", "right"]),
        (ELSEWHERE, []),
        (Hardware("GPU-7", ("6",)), []),
    ],
)
def test_a_new_device_that_overlaps_with_what_a_claim_has_is_found(
    old: Hardware, tainted: list[str]
):
    assert found(owned(old=old), device("left", LEFT), device("right", RIGHT)) == tainted


def test_a_whole_gpu_of_which_a_claim_has_a_partition_is_found():
    assert found(owned(old=LEFT), device("gpu", WHOLE), device("other", ELSEWHERE)) == ["gpu"]


def test_a_device_that_a_claim_owns_itself_is_not_found():
    assert found(owned(gpu=WHOLE, old=LEFT), device("gpu", WHOLE)) == []


def test_without_owners_nothing_is_found():
    assert found({}, device("gpu", WHOLE), device("left", LEFT)) == []


def test_a_device_that_is_not_published_is_not_found():
    assert found(owned(old=WHOLE), device("Not A Label", WHOLE)) == []


@pytest.mark.parametrize(
    ("old", "tainted"),
    [
        ([uses("gpu-7", memory="41", slices="1")], []),
        ([uses("gpu-7", memory="1", slices="4")], []),
        ([uses("gpu-7", memory="40", slices="3")], ["new"]),
        ([uses("gpu-8", memory="80")], ["new"]),
        ([uses("gpu-7", other="7")], ["new"]),
        ([], ["new"]),
    ],
    ids=["memory", "slices", "both fit", "another set", "another counter", "no counters"],
)
def test_counters_of_two_published_devices_tell_the_scheduler(
    old: list[DeviceCounterConsumption], tainted: list[str]
):
    new = device("new", MIDDLE, uses("gpu-7", memory="40", slices="4"))
    sets = (
        counter_set("gpu-7", memory="80", slices="7", other="9"),
        counter_set("gpu-8", memory="80"),
    )
    kept = Device(name="old", consumes_counters=old or None)
    assert found(owned(old=LEFT), new, kept=(kept,), sets=sets) == tainted


def test_counters_of_a_device_that_left_the_slices_tell_nobody():
    new = device("new", MIDDLE, uses("gpu-7", memory="80"))
    assert found(owned(old=LEFT), new) == ["new"]


def partitioned() -> Inventory:
    gpus = SimulatedBackend(BackendContext("node-1", SimulatedOptions(profile="h100x8"))).scan()
    devices, sets = divide(gpus.devices[:2], MIG_80GB)
    return Inventory(devices, counter_sets=sets)


def test_partitions_that_are_published_with_counters_never_get_the_taint():
    inventory = partitioned()
    plan = plan_pool(inventory, kept=())
    assert plan.counter_sets
    for one in inventory.devices:
        assert not unseen(inventory, {one.name: one.resource.pieces}, plan)


def test_partitions_that_lose_their_counters_would_get_the_taint():
    """What the test above says depends on the counters alone."""
    inventory = partitioned()
    bare = [
        AllocatableDevice(
            structs.replace(one.api, consumes_counters=None), one.uuid, hardware=one.hardware
        )
        for one in inventory.devices
    ]
    whole = bare[0]
    assert len(found({whole.name: whole.resource.pieces}, *bare, sets=())) == 18


def test_the_pool_plan_taints_what_is_found():
    inventory = Inventory((device("left", LEFT), device("right", RIGHT)))
    plan = plan_pool(inventory, kept=(), occupied=frozenset({DeviceName("left")}))
    assert {
        name: [(taint.key, taint.value, taint.effect) for taint in one.taints or ()]
        for name, one in plan.devices.items()
    } == {
        "left": [("gpu.dra-driver.dev/occupied", "in-use-as-other-device", "NoSchedule")],
        "right": [],
    }
