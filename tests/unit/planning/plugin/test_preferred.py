# SPDX-License-Identifier: Apache-2.0
"""Which units the driver would give a container: near each other, packed or spread, and memory of one device."""

from collections.abc import Collection
from typing import Any

import pytest

from dra_driver.model.api.resource_slice import DeviceAttribute
from dra_driver.model.inventory import Inventory
from dra_driver.model.plugin import PluginResource, Sharing
from dra_driver.model.plugin_policy import PluginPolicy, SharingRule
from dra_driver.model.vocabulary import NUMA_NODE, PCIE_ROOT
from dra_driver.planning.plugin.preferred import prefer, together
from dra_driver.testing.builders import A_DRIVER
from tests.support.plugin_values import a_class, a_gpu, gpus, plan_resources, simulated


def resource_of(inventory: Inventory, *rules: SharingRule, packed: bool = False) -> PluginResource:
    found = plan_resources(
        inventory,
        [a_class("gpu", resource="a.b/gpu")],
        driver=A_DRIVER,
        domain="a.b",
        policy=PluginPolicy(sharing=rules, packed=packed),
        customary=False,
    )
    (resource,) = found.resources
    return resource


def chosen(
    resource: PluginResource,
    inventory: Inventory,
    size: int,
    *,
    available: Collection[str] | None = None,
    must: Collection[str] = (),
    taken: Collection[str] = (),
) -> list[str]:
    free = {unit.id for unit in resource.units} - set(taken)
    return [
        str(one).removeprefix("uuid-")
        for one in prefer(
            resource,
            inventory,
            available=free if available is None else available,
            must_include=must,
            size=size,
            taken=taken,
        )
    ]


def machine(*places: tuple[str | None, int | None, str | None]) -> Inventory:
    """GPUs with an island of links, a NUMA node and a PCIe root complex."""
    names = ("linkIsland", NUMA_NODE, PCIE_ROOT)
    return gpus(
        *(
            a_gpu(
                f"gpu-{index}",
                {name: one for name, one in zip(names, place, strict=True) if one is not None},
            )
            for index, place in enumerate(places)
        )
    )


def whole(*places: tuple[str | None, int | None, str | None], size: int, **more: Any) -> list[str]:
    inventory = machine(*places)
    return chosen(resource_of(inventory), inventory, size, **more)


def test_devices_of_one_numa_node_are_chosen() -> None:
    places = [(None, index % 2, None) for index in range(4)]
    assert whole(*places, size=2) == ["gpu-0", "gpu-2"]
    assert whole(*places, size=2, must=["uuid-gpu-1"]) == ["gpu-1", "gpu-3"]
    assert whole(*places, size=2, taken=["uuid-gpu-0"]) == ["gpu-1", "gpu-3"]


def test_a_link_is_worth_more_than_a_numa_node_and_a_root_complex() -> None:
    places = [("a", 0, "x"), ("b", 0, "x"), ("b", 1, "y"), ("a", 1, "y")]
    assert whole(*places, size=2) == ["gpu-0", "gpu-3"]
    assert whole(*[(None, *place[1:]) for place in places], size=2) == ["gpu-0", "gpu-1"]


def test_a_root_complex_decides_in_a_numa_node() -> None:
    roots = [(None, 0, root) for root in "xyxy"]
    assert whole(*roots, size=2) == ["gpu-0", "gpu-2"]


def test_few_devices_come_from_a_group_that_is_broken_already() -> None:
    places = [("a", None, None)] * 4 + [("b", None, None)] * 4
    assert whole(*places, size=1, taken=["uuid-gpu-5"]) == ["gpu-4"]
    assert whole(*places, size=2, taken=["uuid-gpu-5", "uuid-gpu-6"]) == ["gpu-4", "gpu-7"]
    assert whole(*places, size=4, taken=["uuid-gpu-5"]) == [f"gpu-{at}" for at in range(4)]
    assert whole(*places, size=5) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"]


def test_a_real_machine() -> None:
    inventory = simulated("mi300x8")
    resource = resource_of(inventory)
    found = prefer(
        resource,
        inventory,
        available=[unit.id for unit in resource.units],
        must_include=[resource.units[5].id],
        size=4,
        taken=[],
    )
    names = {unit.id: unit.device for unit in resource.units}
    assert [names[one] for one in found] == ["gpu-5", "gpu-4", "gpu-6", "gpu-7"]


def test_without_any_place_the_order_of_the_devices_counts() -> None:
    nowhere = [(None, None, None)] * 4
    assert whole(*nowhere, size=2, taken=["uuid-gpu-1"]) == ["gpu-0", "gpu-2"]


def test_a_place_that_is_a_list_is_none() -> None:
    odd = {"linkIsland": DeviceAttribute(string_values=["a", "b"])}
    device = a_gpu("gpu-0")
    inventory = gpus(type(device)(type(device.api)(name="gpu-0", attributes=odd), "uuid-gpu-0"))
    assert chosen(resource_of(inventory), inventory, 1) == ["gpu-0"]


def shares(count: int = 2, **policy: Any) -> tuple[PluginResource, Inventory]:
    inventory = gpus(a_gpu("a"), a_gpu("b"), a_gpu("c"))
    return resource_of(inventory, SharingRule("a.b/gpu", replicas=count), **policy), inventory


def test_replicas_are_spread_over_the_devices() -> None:
    assert chosen(*shares(), 2) == ["a::0", "b::0"]
    assert chosen(*shares(), 4) == ["a::0", "a::1", "b::0", "c::0"]
    assert chosen(*shares(), 2, taken=["uuid-a::0"]) == ["b::0", "c::0"]
    assert chosen(*shares(), 2, must=["uuid-a::1"]) == ["a::1", "b::0"]


def test_replicas_fill_one_device_first_if_they_are_packed() -> None:
    assert chosen(*shares(packed=True), 2) == ["a::0", "a::1"]
    assert chosen(*shares(packed=True), 2, taken=["uuid-b::0"]) == ["a::0", "b::1"]
    assert chosen(*shares(3, packed=True), 2, must=["uuid-c::1"]) == ["c::1", "c::0"]


def memory(**policy: Any) -> tuple[PluginResource, Inventory]:
    inventory = gpus(a_gpu("a", memory="4Gi"), a_gpu("b", memory="4Gi"), a_gpu("c", memory="2Gi"))
    return resource_of(inventory, SharingRule("a.b/gpu", Sharing.MEMORY), **policy), inventory


def test_units_of_memory_are_of_one_device() -> None:
    assert chosen(*memory(), 2) == ["a::0", "a::1"]
    assert chosen(*memory(), 2, taken=["uuid-a::0"]) == ["b::0", "b::1"]
    assert chosen(*memory(packed=True), 2, taken=["uuid-b::0"]) == ["b::1", "b::2"]
    busy = [f"uuid-a::{at}" for at in range(3)]
    assert chosen(*memory(packed=True), 2, taken=busy) == ["b::0", "b::1"]
    assert chosen(*memory(), 3, must=["uuid-b::3"]) == ["b::3", "b::0", "b::1"]


def test_units_of_memory_are_of_several_devices_only_if_no_device_has_enough() -> None:
    assert chosen(*memory(), 6) == [f"{device}::{at}" for device in "ab" for at in range(4)][:6]
    assert chosen(*memory(), 3, must=["uuid-c::1"]) == ["c::1", "a::0", "c::0"]


def test_ids_that_nobody_knows_do_no_harm() -> None:
    odd = ["gone", "old::1", "old::0", "::"]
    inventory = machine(("a", 0, "x"), ("a", 0, "x"))
    resource = resource_of(inventory)
    assert chosen(resource, inventory, 3, available=["uuid-gpu-1", *odd], must=["odd"]) == [
        "odd",
        "gpu-1",
        "::",
    ]
    assert chosen(*shares(), 4, available=odd, taken=["odd"]) == ["::", "gone", "old::0", "old::1"]
    assert chosen(*memory(), 2, available=odd) == ["old::0", "old::1"]
    gone = Inventory()
    assert chosen(resource, gone, 2) == ["gpu-0", "gpu-1"]


def test_what_cannot_be_is_answered_as_well_as_possible() -> None:
    inventory = machine((None, None, None), (None, None, None))
    resource = resource_of(inventory)
    assert chosen(resource, inventory, 5) == ["gpu-0", "gpu-1"]
    assert chosen(resource, inventory, 0) == []
    assert chosen(resource, inventory, 1, available=[]) == []
    assert chosen(resource, inventory, 1, must=["uuid-gpu-1", "uuid-gpu-0"]) == ["gpu-0", "gpu-1"]


def test_the_order_of_the_question_does_not_matter() -> None:
    resource, inventory = shares()
    ids = [unit.id for unit in resource.units]
    assert chosen(resource, inventory, 3, available=ids[::-1]) == chosen(resource, inventory, 3)


def test_memory_of_two_devices_is_refused() -> None:
    resource, _ = memory()
    assert together(resource, ["uuid-a::0", "uuid-a::3"]) == ""
    assert together(resource, ["uuid-a::0", "uuid-b::3", "gone::1"]) == (
        "3 units of a.b/gpu-memory are on devices a, b, gone, and a container can use the memory of one device only; ask for less, or delete "
        "the pod, so that its successor gets units of one device"
    )


@pytest.mark.parametrize("refuses", [True, False])
def test_more_than_one_share_is_refused_if_the_admin_wants_so(refuses: bool) -> None:
    inventory = gpus(a_gpu("a"), a_gpu("b"))
    resource = resource_of(inventory, SharingRule("a.b/gpu", replicas=2, refuses_several=refuses))
    assert together(resource, ["uuid-a::0"]) == ""
    assert together(resource, ["uuid-a::0", "uuid-a::0"]) == ""
    said = together(resource, ["uuid-a::0", "uuid-a::1"])
    assert said == (
        "a container asks for 2 units of a.b/gpu, and more units give no more of a device; ask for 1, or set failRequestsGreaterThanOne to "
        "false"
        if refuses
        else ""
    )


def test_whole_devices_may_be_several() -> None:
    inventory = gpus(a_gpu("a"), a_gpu("b"))
    assert together(resource_of(inventory), ["uuid-a", "uuid-b"]) == ""
