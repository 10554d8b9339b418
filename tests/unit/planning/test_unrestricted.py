# SPDX-License-Identifier: Apache-2.0
"""A device whose restriction a server would drop is withheld; any other field that it would drop is left out."""

from typing import Any

import pytest
from msgspec.structs import replace

from dra_driver.model.api.resource_slice import (
    CapacityRequestPolicy,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
)
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.names import HELD_BY_TAINT
from dra_driver.model.slices import Problem, SliceContent
from dra_driver.planning.slices import PoolPlan, plan_pool
from dra_driver.planning.unrestricted import FEATURES, ServerRules, gates_in
from tests.support.counters import counter_set, uses

WHY = "the server drops it"
NEXT = (
    "switch the gate on in the API server and the scheduler, or leave the field out in the backend"
)
SETS = (counter_set("set", c="9"),)
LIST = DeviceAttribute(string_values=["a", "b"])
TEXT = DeviceAttribute(string_value="a")
KEEPS_AWAY = DeviceTaint(key="example.com/ill", effect="NoSchedule")
ONLY_SAYS = DeviceTaint(key="example.com/note", effect="None")
NODE_CPU = {"cpu": NodeAllocatableResource(overhead=NodeAllocatableOverhead(per_pod="1"))}
SHARED = DeviceCapacity(value="8", request_policy=CapacityRequestPolicy(default="1"))
TWO = {"binding_conditions": ["ready"], "binding_failure_conditions": ["failed"]}


def plan_of(*devices: Device, off: tuple[str, ...] = (), minor: int | None = 37) -> PoolPlan:
    found = tuple(AllocatableDevice(device, f"uuid-of-{device.name}") for device in devices)
    rules = ServerRules(minor, dict.fromkeys(off, WHY))
    return plan_pool(Inventory(found, counter_sets=SETS), kept=(), rules=rules)


RESTRICTING: list[tuple[str, dict[str, Any]]] = [
    ("DRADeviceTaints", {"taints": [KEEPS_AWAY]}),
    ("DRADeviceTaints", {"taints": [ONLY_SAYS, replace(KEEPS_AWAY, effect="NoExecute")]}),
    ("DRADeviceCompatibilityGroups", {"consumes_counters": [uses("set", ["a"], c="1")]}),
    ("DRADeviceBindingConditions", TWO),
    ("DRADeviceBindingConditions", {**TWO, "binds_to_node": True}),
]


@pytest.mark.parametrize(("gate", "fields"), RESTRICTING)
def test_a_device_whose_restriction_is_dropped_is_withheld(gate: str, fields: dict[str, Any]):
    device = Device(name="a", **fields)
    assert (
        plan_of(device, off=tuple(FEATURES.keys() - {gate, "DRAPartitionableDevices"})).problems
        == ()
    )
    plan = plan_of(device, Device(name="b"), off=(gate,))
    assert list(plan.devices) == ["b"]
    found = f"device a has it; {WHY}"
    done = f"without it anybody could get device a, so it is not published; {NEXT}"
    assert plan.problems == (
        Problem(DeviceName(gate), FEATURES[gate].fields, found, done, "feature gate"),
    )
    assert gate in plan.needs


def test_a_taint_of_this_driver_needs_nothing_to_be_done() -> None:
    own = Device(name="a", taints=[DeviceTaint(key=HELD_BY_TAINT, effect="NoSchedule")])
    (problem,) = plan_of(own, off=("DRADeviceTaints",)).problems
    assert problem.action == (
        "without it anybody could get device a, so it is not published until the reason for the taint of this driver is over. Nothing has to be "
        "done; with the gate on in the API server and the scheduler, published devices keep such a taint"
    )
    (problem,) = plan_of(
        own, Device(name="b", taints=[KEEPS_AWAY]), off=("DRADeviceTaints",)
    ).problems
    assert problem.action.endswith(NEXT)


COUNTERS = "DRAPartitionableDevices"
TYPE = "DRAPartitionableDevicesType"


def counting(name: str, amount: str, **fields: Any) -> Device:
    return Device(name=name, consumes_counters=[uses("set", c=amount)], **fields)


def test_devices_that_cannot_all_be_used_at_once_are_withheld_without_counters():
    plan = plan_of(counting("a", "5"), counting("b", "5"), Device(name="c"), off=(COUNTERS,))
    assert list(plan.devices) == ["c"]
    (problem,) = plan.problems
    assert "without it anybody could get devices a, b, so they are not published" in problem.action
    assert plan.needs == {COUNTERS}


@pytest.mark.parametrize("amounts", [("9",), ("4", "5"), ("0", "9")])
def test_counters_that_suffice_for_all_devices_together_are_left_out_in_silence(
    amounts: tuple[str, ...],
):
    devices = [counting(f"d{at}", amount) for at, amount in enumerate(amounts)]
    plan = plan_of(*devices, off=(COUNTERS,))
    assert list(plan.devices.values()) == [Device(name=device.name) for device in devices]
    assert (plan.problems, plan.needs) == ((), {COUNTERS})
    assert [content.shared_counters for content in plan.slices] == [None]
    with_counters = plan_of(*devices)
    assert list(with_counters.devices.values()) == devices
    assert with_counters.needs == {COUNTERS}


def test_one_counter_that_does_not_suffice_keeps_only_its_consumers_back():
    sets = (counter_set("set", c="9", d="9"), counter_set("other", c="9"))
    devices = [
        Device(name="a", consumes_counters=[uses("set", c="5", d="1")]),
        Device(name="b", consumes_counters=[uses("other", c="9"), uses("set", c="5")]),
        Device(name="c", consumes_counters=[uses("set", d="8")]),
    ]
    found = tuple(AllocatableDevice(device, f"uuid-of-{device.name}") for device in devices)
    rules = ServerRules(37, {COUNTERS: WHY})
    plan = plan_pool(Inventory(found, counter_sets=sets), kept=(), rules=rules)
    assert plan.devices == {"c": Device(name="c")}


def test_counters_count_for_vanished_devices_that_stay():
    found = (AllocatableDevice(counting("a", "5"), "uuid-of-a"),)
    rules = ServerRules(37, {COUNTERS: WHY})
    plan = plan_pool(Inventory(found, counter_sets=SETS), kept=[counting("b", "5")], rules=rules)
    assert plan.devices == {}


def test_a_device_with_shares_or_groups_needs_its_counters_however_few_they_are():
    shared = counting("a", "1", allow_multiple_allocations=True)
    assert plan_of(shared, counting("b", "1"), off=(COUNTERS,)).devices == {}
    grouped = Device(name="a", consumes_counters=[uses("set", ["one"], c="1")])
    other = counting("b", "1")
    assert list(plan_of(grouped, other, off=(COUNTERS,)).devices) == ["b"]


def test_a_slice_without_counters_needs_no_attribute_for_the_type_of_partitions():
    device = counting("a", "1", attributes={"type": TEXT})
    plan = plan_pool(
        Inventory(
            (AllocatableDevice(device, "uuid"),),
            counter_sets=SETS,
            partition_type_attribute="type",
        ),
        kept=(),
        rules=ServerRules(34, {COUNTERS: WHY, TYPE: WHY}),
        driver="gpu.example.com",
    )
    assert (plan.problems, plan.needs) == ((), {COUNTERS, TYPE})
    assert plan.slices == (SliceContent(devices=[Device(name="a", attributes={"type": TEXT})]),)


LEFT_OUT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("DRADeviceTaints", {"taints": [ONLY_SAYS]}, {}),
    ("DRADeviceBindingConditions", {"binds_to_node": True}, {}),
    (
        "DRAConsumableCapacity",
        {"allow_multiple_allocations": True, "capacity": {"slots": SHARED}},
        {"capacity": {"slots": DeviceCapacity(value="8")}},
    ),
    ("DRAConsumableCapacity", {"allow_multiple_allocations": False}, {}),
    ("DRAListTypeAttributes", {"attributes": {"l": LIST}}, {}),
    ("DRAListTypeAttributes", {"attributes": {"l": LIST, "t": TEXT}}, {"attributes": {"t": TEXT}}),
    ("DRANodeAllocatableResources", {"node_allocatable_resources": NODE_CPU}, {}),
]


@pytest.mark.parametrize(("gate", "fields", "left"), LEFT_OUT)
def test_without_any_other_field_the_device_is_published(
    gate: str, fields: dict[str, Any], left: dict[str, Any]
):
    plan = plan_of(Device(name="a", **fields), off=(gate,))
    assert plan.devices == {"a": Device(name="a", **left)}
    done = f"everything is published without it; {NEXT}"
    assert plan.problems == (
        Problem(
            DeviceName(gate),
            FEATURES[gate].fields,
            f"device a has it; {WHY}",
            done,
            "feature gate",
        ),
    )
    whole = plan_of(Device(name="a", **fields))
    assert (whole.devices, whole.problems) == ({"a": Device(name="a", **fields)}, ())


def test_a_gate_is_named_once_for_all_devices():
    devices = [Device(name=f"d{at}", taints=[KEEPS_AWAY]) for at in range(5)]
    (problem,) = plan_of(*devices, off=("DRADeviceTaints",)).problems
    assert str(problem) == (
        f"feature gate DRADeviceTaints: taints: devices d0, d1, d2 and 2 more have it; {WHY}; without it anybody could get "
        f"devices d0, d1, d2 and 2 more, so they are not published; {NEXT}"
    )


def test_two_missing_gates_are_both_named():
    fields: dict[str, Any] = {"attributes": {"l": LIST}, "binds_to_node": True}
    plan = plan_of(
        Device(name="a", **fields), off=("DRAListTypeAttributes", "DRADeviceBindingConditions")
    )
    assert [problem.device for problem in plan.problems] == [
        "DRAListTypeAttributes",
        "DRADeviceBindingConditions",
    ]
    assert plan.devices == {"a": Device(name="a")}
    assert plan.needs == {"DRAListTypeAttributes", "DRADeviceBindingConditions"}


def test_a_gate_that_nobody_needs_is_not_named():
    assert plan_of(Device(name="a"), off=tuple(FEATURES)).problems == ()
    assert plan_of(Device(name="a")).needs == frozenset()


@pytest.mark.parametrize(
    ("gate", "fields", "left"),
    [
        ("DRAPartitionableDevicesType", {"partition_type_attribute": "type"}, "skip_node_operations"),
        ("DRAOptionalNodeOperations", {"skip_node_operations": ("*",)}, "partition_type_attribute"),
    ],
)  # fmt: skip
def test_a_field_of_the_slice_that_is_dropped_is_left_out_and_named(
    gate: str, fields: dict[str, Any], left: str
):
    device = Device(name="a", attributes={"type": TEXT}, consumes_counters=[uses("set", c="1")])
    both: dict[str, Any] = {"partition_type_attribute": "type", "skip_node_operations": ("*",)}
    found = (AllocatableDevice(device, "uuid"),)
    plan = plan_pool(
        Inventory(found, counter_sets=SETS, **both),
        kept=(),
        rules=ServerRules(37, {gate: WHY}),
        driver="gpu.example.com",
    )
    assert plan.devices == {"a": device}
    assert getattr(plan.slices[0], next(iter(fields))) is None
    assert getattr(plan.slices[0], left) is not None
    (problem,) = plan.problems
    assert (problem.device, problem.found) == (gate, WHY)
    assert plan.needs == {
        "DRAPartitionableDevices",
        "DRAPartitionableDevicesType",
        "DRAOptionalNodeOperations",
    }


@pytest.mark.parametrize("gate", FEATURES)
def test_each_probe_has_the_fields_of_its_gate(gate: str):
    found = gates_in(FEATURES[gate].probe)
    assert gate in found
    assert found <= {gate, "DRAPartitionableDevices"}


def test_an_empty_slice_has_the_fields_of_no_gate():
    assert gates_in(SliceContent(devices=[])) == frozenset()


# DeviceTaintsMaxLength, and the effect None: both of 1.35.


@pytest.mark.parametrize(
    ("minor", "count", "published"), [(34, 4, 1), (34, 5, 0), (35, 5, 1), (None, 5, 1)]
)
def test_before_135_a_device_has_at_most_four_taints(minor: int | None, count: int, published: int):
    taints = [replace(KEEPS_AWAY, key=f"k{at}") for at in range(count)]
    plan = plan_of(Device(name="a", taints=taints), minor=minor)
    assert len(plan.devices) == published
    told = [] if published else ["more than the 4 taints that Kubernetes 1.34 allows"]
    assert [problem.found for problem in plan.problems] == told


@pytest.mark.parametrize(
    ("minor", "left"),
    [(34, [KEEPS_AWAY]), (35, [ONLY_SAYS, KEEPS_AWAY]), (None, [ONLY_SAYS, KEEPS_AWAY])],
)
def test_before_135_taints_that_keep_nobody_away_are_left_out(
    minor: int | None, left: list[DeviceTaint]
):
    device = Device(name="a", taints=[ONLY_SAYS, KEEPS_AWAY])
    assert plan_of(device, minor=minor).devices == {"a": replace(device, taints=left)}
    only = Device(name="a", taints=[ONLY_SAYS])
    assert plan_of(only, minor=34).devices == {"a": Device(name="a")}
