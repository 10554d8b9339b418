# SPDX-License-Identifier: Apache-2.0
"""Whatever is present and whatever is wanted: the writes reach it, in one go, and then there is nothing left to do."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dra_driver.model.api.resource_slice import ResourcePool, ResourceSliceSpec
from dra_driver.model.ids import DeviceName, DriverName, NodeName, PoolName
from dra_driver.model.slices import (
    CreateSlice,
    DeleteSlice,
    SliceChange,
    SliceContent,
    StoredSlice,
    UpdateSlice,
    content_of,
)
from dra_driver.planning.reconcile import plan_changes, slice_name
from tests.support.api_values import content, published, slice_spec
from tests.support.counters import counter_set

POOL = PoolName("node-1")
NAMES = tuple(
    slice_name(index, DriverName("gpu.example.com"), NodeName("node-1")) for index in range(5)
)
HEAD = ResourceSliceSpec(driver="gpu.example.com", node_name="node-1", pool=ResourcePool(name=POOL))
Slices = dict[str, StoredSlice]

contents = st.lists(
    st.builds(
        published,
        st.sampled_from([DeviceName(f"gpu-{index}") for index in range(3)]),
        st.dictionaries(st.sampled_from("ab"), st.sampled_from([0, 1, True, "x"]), max_size=2),
    ),
    max_size=2,
).map(tuple)
specs_of_devices = st.builds(
    slice_spec,
    st.sampled_from([POOL, PoolName("other")]),
    st.integers(0, 3),
    st.integers(1, 4),
    contents,
)
specs = st.builds(
    lambda spec, operations: replace(spec, skip_node_operations=operations),
    specs_of_devices,
    st.sampled_from([None, ["*"]]),
)
foreign = st.dictionaries(st.sampled_from(["metadata.finalizers", "spec.odd"]), st.just("1"))
present_slices = st.dictionaries(
    st.sampled_from([*NAMES, "foreign-1", "foreign-2"]), st.tuples(specs, foreign), max_size=6
).map(
    lambda found: {
        name: StoredSlice(name, f"uid-{name}", "1", spec, unlike=unlike)
        for name, (spec, unlike) in found.items()
    }
)
counters = st.lists(
    st.builds(counter_set, st.sampled_from(["gpu-0", "gpu-1"]), memory=st.sampled_from("12")),
    min_size=1,
    max_size=2,
)
wishes = st.lists(
    st.one_of(
        st.builds(lambda devices: content(*devices), contents),
        st.builds(SliceContent, shared_counters=counters),
    ),
    min_size=1,
    max_size=4,
)


def apply(change: SliceChange, slices: Slices) -> None:
    match change:
        case CreateSlice(name, spec):
            assert name not in slices
            slices[name] = StoredSlice(name, f"new-uid-{name}", "2", spec)
        case UpdateSlice(present, spec):
            assert slices[present.name] is present
            slices[present.name] = StoredSlice(present.name, present.uid, "2", spec)
        case DeleteSlice(present):
            assert slices.pop(present.name) is present


def changes(wanted: Sequence[SliceContent], slices: Slices) -> tuple[SliceChange, ...]:
    return plan_changes(wanted, tuple(slices.values()), head=HEAD, names=NAMES)


def visible(slices: Slices) -> list[SliceContent] | None:
    """What a consumer sees of the pool: None while it is incomplete."""
    ours = [stored for _, stored in sorted(slices.items()) if stored.spec.pool.name == POOL]
    newest = [
        stored.spec
        for stored in ours
        if stored.spec.pool.generation == max(other.spec.pool.generation for other in ours)
    ]
    if not newest or any(spec.pool.resource_slice_count != len(newest) for spec in newest):
        return None
    return [content_of(spec) for spec in newest]


@given(wishes, present_slices)
def test_the_changes_reach_exactly_the_wanted_pool_and_a_second_look_finds_nothing(
    wanted: list[SliceContent], present: Slices
):
    slices = dict(present)
    for change in changes(wanted, slices):
        apply(change, slices)
    assert sorted(slices) == list(NAMES[: len(wanted)])
    assert visible(slices) == wanted
    assert all(stored.unlike == {} for stored in slices.values())
    assert changes(wanted, slices) == ()


@given(wishes, present_slices)
def test_deletions_come_first_then_updates_then_creations(
    wanted: list[SliceContent], present: Slices
):
    kinds = [type(change) for change in changes(wanted, present)]
    assert kinds == sorted(kinds, key=[DeleteSlice, UpdateSlice, CreateSlice].index)


@given(wishes, wishes)
def test_from_one_complete_pool_to_another_nobody_ever_sees_a_mixture(
    before: list[SliceContent], after: list[SliceContent]
):
    slices: Slices = {}
    for change in changes(before, slices):
        apply(change, slices)
    seen = []
    for change in changes(after, slices):
        apply(change, slices)
        seen.append(visible(slices))
    assert all(found in (None, before, after) for found in seen)


@given(wishes, present_slices)
def test_a_generation_is_kept_only_for_at_most_one_written_slice(
    wanted: list[SliceContent], present: Slices
):
    newest = max((stored.spec.pool.generation for stored in present.values()), default=0)
    writes = [
        change.spec.pool.generation
        for change in changes(wanted, present)
        if not isinstance(change, DeleteSlice)
    ]
    assert writes == [newest + 1] * len(wanted) or (writes in ([], [newest]))
