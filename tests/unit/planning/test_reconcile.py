# SPDX-License-Identifier: Apache-2.0
"""From present slices to wanted ones: which writes, in which order, at which generation."""

from typing import Any

import msgspec
from msgspec.structs import replace

from dra_driver.model.api.resource_slice import (
    Device,
    DeviceCapacity,
    ResourcePool,
    ResourceSliceSpec,
)
from dra_driver.model.device import Version
from dra_driver.model.ids import DeviceName, DriverName, NodeName, PoolName
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import CreateSlice, DeleteSlice, SliceChange, StoredSlice, UpdateSlice
from dra_driver.planning.reconcile import (
    NAME_VARIANTS,
    dropped_fields,
    plan_changes,
    same_devices,
    slice_name,
)
from tests.support.api_values import content, device_taint, published, slice_spec

POOL = PoolName("node-1")
DRIVER = DriverName("gpu.example.com")
NAMES = tuple(slice_name(index, DRIVER, NodeName("node-1")) for index in range(4))
HEAD = ResourceSliceSpec(driver=DRIVER, node_name="node-1", pool=ResourcePool(name=POOL))
Devices = tuple[Device, ...]


def devices(*names: str, **attributes: Any) -> Devices:
    return tuple(published(DeviceName(name), attributes) for name in names)


def spec(generation: int, count: int, content: Devices) -> ResourceSliceSpec:
    return slice_spec(POOL, generation, count, content)


def stored(name: str, content: ResourceSliceSpec) -> StoredSlice:
    return StoredSlice(name, f"uid-of-{name}", "7", content)


def changes(wanted: list[Devices], *present: StoredSlice) -> tuple[SliceChange, ...]:
    return plan_changes([content(*one) for one in wanted], present, head=HEAD, names=NAMES)


A, B, C = devices("gpu-0"), devices("gpu-1"), devices("gpu-2")


def test_a_name_is_made_of_index_driver_and_node():
    assert slice_name(31, DRIVER, NodeName("node-1")) == "0001f-gpu.example.com-node-1"


def test_a_name_that_is_too_long_is_cut_to_253_characters_and_stays_unique():
    long = ["n" * 252 + end for end in "ab"]
    names = [slice_name(0, DRIVER, NodeName(node)) for node in long]
    assert [len(name) for name in names] == [253, 253]
    assert len(set(names)) == 2
    assert slice_name(0, DRIVER, NodeName("n" * 231)) == f"00000-gpu.example.com-{'n' * 231}"
    dotted = slice_name(0, DRIVER, NodeName(("n" * 213 + ".-") + "x" * 60))
    assert dotted.rpartition("-")[0] == f"00000-gpu.example.com-{'n' * 213}"


def test_the_names_of_one_slice_stay_in_its_place_and_are_no_other_nodes():
    names = [
        slice_name(index, DRIVER, NodeName("node-1"), variant=variant)
        for index in range(3)
        for variant in range(NAME_VARIANTS)
    ]
    assert names[:2] == ["00000-gpu.example.com-node-1", "00000.1-gpu.example.com-node-1"]
    assert names == sorted(set(names))
    assert all(name.endswith("-gpu.example.com-node-1") for name in names)


def test_the_first_publication_creates_every_slice_at_generation_1():
    assert changes([A, B]) == (
        CreateSlice(NAMES[0], spec(1, 2, A)),
        CreateSlice(NAMES[1], spec(1, 2, B)),
    )


def test_nothing_is_written_when_everything_is_as_wanted():
    assert changes([A, B], stored(NAMES[1], spec(3, 2, B)), stored(NAMES[0], spec(3, 2, A))) == ()


def test_one_changed_slice_keeps_the_generation():
    before = stored(NAMES[1], spec(3, 2, B))
    assert changes([A, C], stored(NAMES[0], spec(3, 2, A)), before) == (
        UpdateSlice(before, spec(3, 2, C)),
    )


def test_two_changed_slices_raise_the_generation_of_all():
    first, second, third = (
        stored(name, spec(3, 3, content)) for name, content in zip(NAMES, (A, B, C), strict=False)
    )
    assert changes([A, C, B], first, second, third) == (
        UpdateSlice(first, spec(4, 3, A)),
        UpdateSlice(second, spec(4, 3, C)),
        UpdateSlice(third, spec(4, 3, B)),
    )


def test_a_missing_slice_raises_the_generation_of_all():
    first = stored(NAMES[0], spec(3, 2, A))
    assert changes([A, B], first) == (
        UpdateSlice(first, spec(4, 2, A)),
        CreateSlice(NAMES[1], spec(4, 2, B)),
    )


def test_after_the_last_generation_that_somebody_can_write_comes_the_first():
    first, second = stored(NAMES[0], spec(2**63 - 1, 2, A)), stored(NAMES[1], spec(3, 2, B))
    assert changes([A, B], first, second) == (
        DeleteSlice(second),
        UpdateSlice(first, spec(1, 2, A)),
        CreateSlice(NAMES[1], spec(1, 2, B)),
    )


def test_a_slice_too_many_is_deleted_before_the_count_is_corrected():
    first, second = stored(NAMES[0], spec(3, 2, A)), stored(NAMES[1], spec(3, 2, B))
    assert changes([A], first, second) == (DeleteSlice(second), UpdateSlice(first, spec(3, 1, A)))


def test_slices_of_other_names_pools_and_old_generations_are_deleted_first():
    foreign = stored("gpu.example.com-node-1-x7k2p", spec(5, 1, A))
    other_pool = StoredSlice(NAMES[1], "uid-9", "7", slice_spec(PoolName("pool-2"), 5, 2, B))
    old = stored(NAMES[0], spec(4, 2, A))
    assert changes([A, B], foreign, other_pool, old) == (
        DeleteSlice(foreign),
        DeleteSlice(other_pool),
        DeleteSlice(old),
        CreateSlice(NAMES[0], spec(6, 2, A)),
        CreateSlice(NAMES[1], spec(6, 2, B)),
    )


def test_what_is_not_of_our_making_is_written_over_in_whatever_field():
    before = replace(stored(NAMES[0], spec(3, 1, A)), unlike={"metadata.finalizers": '["x"]'})
    assert changes([A], before) == (UpdateSlice(before, spec(3, 1, A)),)


def test_what_the_server_makes_of_every_write_is_left_alone_as_long_as_it_is_that():
    before = replace(stored(NAMES[0], spec(3, 1, A)), unlike={"spec.odd": "1"})

    def accepting(value: str) -> tuple[SliceChange, ...]:
        accepted = {NAMES[0]: {"spec.odd": value}}
        return plan_changes([content(*A)], [before], head=HEAD, names=NAMES, accepted=accepted)

    assert accepting("1") == ()
    assert accepting("2") == (UpdateSlice(before, spec(3, 1, A)),)


def test_labels_and_annotations_are_everybodys():
    before = replace(stored(NAMES[0], spec(3, 1, A)), labels={"a": "b"}, annotations={"c": "d"})
    assert changes([A], before) == ()


def test_a_taint_is_a_change():
    taint = device_taint("gpu.example.com/vanished", "why", "NoSchedule", "2026-01-02T03:04:05Z")
    held = tuple(msgspec.structs.replace(device, taints=[taint]) for device in A)
    before = stored(NAMES[0], spec(3, 1, A))
    assert changes([held], before) == (UpdateSlice(before, spec(3, 1, held)),)
    assert changes([A], stored(NAMES[0], spec(3, 1, held))) != ()
    assert changes([held], stored(NAMES[0], spec(3, 1, held))) == ()
    assert dropped_fields(content(*held), content(*A)) == ("devices.gpu-0.taints",)


def test_equal_quantities_are_no_change_however_they_are_written():
    ours, theirs = (
        (Device(name="gpu-0", capacity={"memory": DeviceCapacity(value=text)}),)
        for text in ("1Gi", "1073741824")
    )
    assert changes([ours], stored(NAMES[0], spec(1, 1, theirs))) == ()


def test_true_is_not_the_number_1_and_a_version_is_no_string():
    assert not same_devices(devices("gpu-0", it=True), devices("gpu-0", it=1))
    assert not same_devices(devices("gpu-0", it=Version("1.0.0")), devices("gpu-0", it="1.0.0"))
    assert same_devices(devices("gpu-0", it=True), devices("gpu-0", it=True))
    before = stored(NAMES[0], spec(1, 1, devices("gpu-0", it=1)))
    wanted = devices("gpu-0", it=True)
    assert changes([wanted], before) == (UpdateSlice(before, spec(1, 1, wanted)),)


def test_dropped_fields_are_named_by_their_path():
    gib = Quantity.parse("1Gi")
    written = (
        published("gpu-0", {"a": 1, "b": True}, {"memory": gib, "cores": gib}),
        published("gpu-1", {"a": 1}),
        published("gpu-2", {"a": 1}),
    )
    found = (
        published("gpu-0", {"a": 1, "b": 1}, {"memory": gib}),
        published("gpu-1", {"a": 1}),
    )
    assert dropped_fields(content(*written), content(*found)) == (
        "devices.gpu-0.attributes.b",
        "devices.gpu-0.capacity.cores",
        "devices.gpu-2",
    )
    assert dropped_fields(content(*written), content(*written)) == ()


def test_every_field_of_the_api_counts():
    plain = Device(name="gpu-0")
    more = Device(name="gpu-0", binding_conditions=["ready"], all_nodes=False)
    before = stored(NAMES[0], spec(1, 1, (plain,)))
    assert changes([(more,)], before) == (UpdateSlice(before, spec(1, 1, (more,))),)
    assert dropped_fields(content(more), content(plain)) == (
        "devices.gpu-0.allNodes",
        "devices.gpu-0.bindingConditions",
    )
