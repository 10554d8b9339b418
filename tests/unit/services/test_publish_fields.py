# SPDX-License-Identifier: Apache-2.0
"""Counters, taints of the driver's own, and fields that the API server drops, from the inventory to the slices."""

import dataclasses

from msgspec import structs
from msgspec.structs import replace

from dra_driver.errors import Temporary
from dra_driver.kube.base import Invalid
from dra_driver.model.api.resource_slice import (
    Device,
    DeviceAttribute,
    DeviceTaint,
    ResourceSliceSpec,
)
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.events import FieldsDropped, PublicationProblem
from dra_driver.model.health import Health, HealthStatus
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.planning.reconcile import slice_name
from dra_driver.services.served_fields import AGAIN_SECONDS
from dra_driver.testing.builders import A_DRIVER, A_NODE
from tests.support.counters import gpu
from tests.support.publishing_node import FIRST, SECOND, Node, devices, spec

THIRD = slice_name(2, A_DRIVER, A_NODE)
ILL = Health(HealthStatus.UNHEALTHY, "too hot")
UNHEALTHY, HELD = "gpu.dra-driver.dev/unhealthy", "gpu.dra-driver.dev/held"


def partitioned(gpus: int = 1, parts: int = 2) -> Inventory:
    found = [gpu(index, parts) for index in range(gpus)]
    return Inventory(
        tuple(device for _, parts_of_one in found for device in parts_of_one),
        counter_sets=tuple(counters for counters, _ in found),
    )


def with_health(inventory: Inventory, name: str, health: Health) -> Inventory:
    found = (
        replace(device, health=health) if device.name == name else device
        for device in inventory.devices
    )
    return dataclasses.replace(inventory, devices=tuple(found))


def without_taints(written: ResourceSliceSpec) -> ResourceSliceSpec:
    return structs.replace(
        written, devices=[structs.replace(one, taints=None) for one in written.devices or ()]
    )


def test_counters_are_published_beside_the_devices_and_written_once():
    node = Node()
    node.inventory = partitioned()
    node.follow(node.step, node.looks, node.after(3600))
    first, second = node.stored().values()
    assert (len(first.devices or ()), first.shared_counters) == (3, None)
    assert (second.devices, [one.name for one in second.shared_counters or ()]) == (None, ["gpu-0"])
    assert node.writes() == [f"create {FIRST}", f"create {SECOND}"]
    assert node.told(PublicationProblem, FieldsDropped) == []


def test_a_server_before_135_gets_the_counters_in_the_slice_of_the_devices():
    node = Node()
    node.api.version = "v1.34.10"
    node.inventory = partitioned()
    node.follow(node.step, node.looks)
    (found,) = node.stored().values()
    assert (len(found.devices or ()), len(found.shared_counters or ())) == (3, 1)
    assert node.writes() == [f"create {FIRST}"]


def test_an_update_of_the_api_server_to_135_takes_the_counters_out_of_the_slice_of_the_devices():
    """The scheduler of 1.35 and later takes a slice with counter sets as a slice without devices."""
    node = Node()
    node.api.version = "v1.34.10"
    node.inventory = partitioned()

    def updated() -> None:
        node.api.version = "v1.35.0"

    node.follow(node.step, node.looks, updated, node.after(AGAIN_SECONDS))
    first, second = node.stored().values()
    assert (len(first.devices or ()), first.shared_counters) == (3, None)
    assert (second.devices, len(second.shared_counters or ())) == (None, 1)


def test_counters_that_somebody_changes_are_put_right():
    node = Node()
    node.inventory = partitioned()

    def meddle() -> None:
        content = node.api.slices[SECOND].spec
        node.api.put(SECOND, structs.replace(content, shared_counters=[]))

    node.follow(node.step, meddle, node.step, node.after(0.3))
    assert [one.name for one in node.stored()[SECOND].shared_counters or ()] == ["gpu-0"]


def test_a_taint_that_comes_or_goes_changes_one_slice():
    node = Node()
    healthy = partitioned(2, 49)
    node.inventory = healthy
    node.follow(node.step, node.finds(with_health(healthy, "gpu-0", ILL)), node.finds(healthy))
    assert node.writes() == [
        *(f"create {name}" for name in (FIRST, SECOND, THIRD)),
        *[f"update {FIRST}"] * 2,
    ]


def test_an_ill_device_is_tainted_with_the_time_since_when():
    node = Node(0, 1)
    node.follow(node.step, node.finds(with_health(node.inventory, "gpu-1", ILL)))
    assert node.taints() == {"gpu-0": [], "gpu-1": [UNHEALTHY]}
    _, ill = node.stored()[FIRST].devices or ()
    assert [taint.time_added for taint in ill.taints or ()] == ["2026-05-04T03:02:01Z"]
    node.restarted()
    node.follow(node.step, node.after(100))
    assert node.writes() == [f"create {FIRST}", f"update {FIRST}"]


def test_a_device_that_an_ended_claim_may_still_use_is_tainted_until_it_is_free():
    node = Node(0, 1)
    node.follow(node.step)
    node.held = frozenset({DeviceName("gpu-0")})
    node.publisher.released()
    node.step()
    assert node.taints() == {"gpu-0": [HELD], "gpu-1": []}
    node.held = frozenset()
    node.publisher.released()
    node.step()
    assert node.taints() == {"gpu-0": [], "gpu-1": []}
    decisions = len(node.kept)
    node.publisher.released()
    node.step()
    assert len(node.kept) == decisions


def test_while_the_state_cannot_be_read_held_devices_stay_as_they_were():
    node = Node(0)
    node.held = frozenset({DeviceName("gpu-0")})
    node.follow(node.step)
    node.held_unknown = Temporary("disk full")
    node.publisher.released()
    node.looks()
    assert node.taints() == {"gpu-0": [HELD]}


def test_a_vanished_device_of_a_counter_set_consumes_its_counters_while_a_claim_owns_it():
    node = Node()
    node.inventory = partitioned()
    node.prepared = frozenset({DeviceName("gpu-0-part-1")})
    node.follow(
        node.step,
        node.finds(dataclasses.replace(node.inventory, devices=node.inventory.devices[:2])),
    )
    last = (node.stored()[FIRST].devices or [])[-1]
    assert (last.name, [one.counter_set for one in last.consumes_counters or ()]) == (
        "gpu-0-part-1",
        ["gpu-0"],
    )


# Fields that the API server drops.


def gates(node: Node) -> list[str]:
    """The feature gates that the node's admin was told of."""
    return [event.problem.device for event in node.events if isinstance(event, PublicationProblem)]


def test_a_device_whose_restriction_would_be_dropped_is_never_written():
    node = Node(0)
    written: list[str] = []

    def stores(spec: ResourceSliceSpec) -> ResourceSliceSpec:
        written.extend(device.name for device in spec.devices or ())
        return without_taints(spec)

    node.api.stores = stores
    taint = DeviceTaint(key="a.example.com/x", effect="NoSchedule")
    sick = AllocatableDevice(Device(name="sick", taints=[taint]), "uuid")
    node.inventory = Inventory((*devices(0), sick))
    node.follow(node.step, node.looks)
    assert set(written) == {"probe", "gpu-0"}
    assert node.stored() == {FIRST: spec(0)}
    assert len(node.told(PublicationProblem)) == 1


def test_a_gate_that_is_switched_on_later_brings_the_device():
    node = Node(0)
    node.api.stores = without_taints
    node.inventory = with_health(node.inventory, "gpu-0", ILL)
    node.follow(node.step)
    assert node.stored() == {FIRST: spec()}
    node.api.stores = lambda written: written
    node.follow(node.after(AGAIN_SECONDS - 1))
    assert node.stored() == {FIRST: spec()}
    node.follow(node.after(1))
    assert node.taints() == {"gpu-0": [UNHEALTHY]}


def test_a_device_that_was_ill_on_a_server_without_taints_keeps_nobody_busy():
    node = Node(0)
    node.api.stores = without_taints
    well = node.inventory
    node.inventory = with_health(well, "gpu-0", ILL)
    node.follow(node.step, node.finds(well), node.after(AGAIN_SECONDS))
    assert node.publisher._due == float("inf")


def test_a_gate_that_is_switched_off_later_withdraws_the_device_at_once():
    node = Node(0, 1)
    ill = with_health(node.inventory, "gpu-0", ILL)
    both = with_health(ill, "gpu-1", ILL)
    node.follow(node.step, node.finds(ill))

    def switched_off() -> None:
        node.api.stores = without_taints

    node.follow(switched_off, node.finds(both), node.step)
    assert node.stored() == {FIRST: spec()}
    assert len(node.told(FieldsDropped)) == 1
    assert gates(node) == ["DRADeviceTaints"]


def test_a_list_on_a_server_without_lists_costs_the_attribute_only():
    """Such a server drops the list, and then refuses the whole slice for an attribute without a value."""
    node = Node(0)

    def stores(written: ResourceSliceSpec) -> ResourceSliceSpec:
        found = [device.attributes or {} for device in written.devices or ()]
        if any(one.int_values for attributes in found for one in attributes.values()):
            raise Invalid("exactly one value must be specified")
        return written

    node.api.stores = stores
    lists = {"nodes": DeviceAttribute(int_values=[0, 1]), "index": DeviceAttribute(int_value=0)}
    found = AllocatableDevice(Device(name="gpu-0", attributes=lists), "uuid")
    node.inventory = Inventory((found,))
    node.follow(node.step)
    left = Device(name="gpu-0", attributes={"index": DeviceAttribute(int_value=0)})
    assert node.stored() == {FIRST: spec(left)}
    assert gates(node) == ["DRAListTypeAttributes"]
