# SPDX-License-Identifier: Apache-2.0
"""Which writes turn the slices at the API server into the wanted slices?

The scheduler uses a pool only if all its slices of the newest generation exist. If only one slice changes, the generation stays,
so the pool is always complete. If a slice is added or two slices change, the driver raises the generation and writes every slice:
for a moment the pool is incomplete, but the scheduler never sees a mix of old and new slices.

The driver first deletes obsolete slices, then updates existing slices, then creates new ones. In one case the pool is incomplete
for a moment although the generation stays: when two slices become one, the first slice has `resourceSliceCount` 2 until it is
written. Kubernetes' own controller for drivers in Go does the same.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from dra_driver.model.api.compare import differences, same
from dra_driver.model.api.resource_slice import ResourcePool, ResourceSliceSpec
from dra_driver.model.ids import DriverName, NodeName
from dra_driver.model.slices import (
    CreateSlice,
    DeleteSlice,
    Devices,
    SliceChange,
    SliceContent,
    StoredSlice,
    UpdateSlice,
)

NAME_LIMIT = 253
_DIGEST_LENGTH = 16
_LAST_GENERATION = 2**63 - 1  # int64
NAME_VARIANTS = 16
"""The number of names that a slice can have. The admission policy of the chart allows these names and no others."""


def slice_name(index: int, driver: DriverName, node: NodeName, *, variant: int = 0) -> str:
    """Return a slice's name, the same after every restart. The scheduler visits slices in the order of their names.

    If another object has the name, the driver uses another `variant`, a number between index and driver. At the end of the name
    the number could make the name of another node's slice, and would change the order.
    """
    name = f"{index:05x}{f'.{variant:x}' if variant else ''}-{driver}-{node}"
    if len(name) <= NAME_LIMIT:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: NAME_LIMIT - _DIGEST_LENGTH - 1].rstrip('-.')}-{digest}"


_NOTHING: Mapping[str, str] = MappingProxyType({})
_NOTHING_ACCEPTED: Mapping[str, Mapping[str, str]] = MappingProxyType({})


def plan_changes(
    wanted: Sequence[SliceContent],
    present: Sequence[StoredSlice],
    *,
    head: ResourceSliceSpec,
    names: Sequence[str],
    accepted: Mapping[str, Mapping[str, str]] = _NOTHING_ACCEPTED,
) -> tuple[SliceChange, ...]:
    """Return the writes, in order; none if the slices are as wanted. `names[i]` is the name of slice i.

    `head` has the common fields of all slices: driver, node and name of the pool. A field value that this driver would not write
    (`StoredSlice.unlike`) is a difference too, unless `accepted` has the same values under the slice's name: the API server stores
    these values whatever the driver writes.
    """
    count = len(wanted)
    newest = max((stored.spec.pool.generation for stored in present), default=0)
    by_name = {stored.name: stored for stored in present}
    good = {
        index: stored
        for index, name in enumerate(names[:count])
        if (stored := by_name.get(name))
        and stored.spec.pool.name == head.pool.name
        and stored.spec.pool.generation == newest
    }
    deletions = [DeleteSlice(stored) for stored in present if stored not in good.values()]
    changed = [
        index
        for index, stored in good.items()
        if not _same(stored, wanted[index], count)
        or stored.unlike != accepted.get(stored.name, _NOTHING)
    ]
    added = [index for index in range(count) if index not in good]
    if not added and len(changed) <= 1:
        pool = ResourcePool(name=head.pool.name, generation=newest, resource_slice_count=count)
        return (
            *deletions,
            *(UpdateSlice(good[index], _spec(head, pool, wanted[index])) for index in changed),
        )
    # Somebody may have written the highest possible generation into a slice. Then the driver starts again with 1.
    generation = newest + 1 if newest < _LAST_GENERATION else 1
    pool = ResourcePool(name=head.pool.name, generation=generation, resource_slice_count=count)
    specs = [_spec(head, pool, content) for content in wanted]
    return (*deletions, *_all(specs, good, names))


def _spec(head: ResourceSliceSpec, pool: ResourcePool, content: SliceContent) -> ResourceSliceSpec:
    return msgspec.structs.replace(content, driver=head.driver, node_name=head.node_name, pool=pool)


def _all(
    specs: Sequence[ResourceSliceSpec], good: Mapping[int, StoredSlice], names: Sequence[str]
) -> Iterator[SliceChange]:
    yield from (UpdateSlice(stored, specs[index]) for index, stored in good.items())
    yield from (
        CreateSlice(names[index], spec) for index, spec in enumerate(specs) if index not in good
    )


def _same(stored: StoredSlice, content: SliceContent, count: int) -> bool:
    return stored.spec.pool.resource_slice_count == count and same(stored.content, content)


def same_devices(some: Devices, others: Devices) -> bool:
    """Whether both have the same devices in the same order, equal in every field of the API. Quantities are compared by value."""
    return len(some) == len(others) and all(map(same, some, others))


def dropped_fields(written: SliceContent, stored: SliceContent) -> tuple[str, ...]:
    """Return the paths of the fields that the API server did not store as written. It drops fields whose feature gate is off."""
    present = {device.name: device for device in stored.devices or ()}
    dropped: list[str] = []
    for device in written.devices or ():
        there = present.get(device.name)
        if there is None:
            dropped.append(f"devices.{device.name}")
            continue
        dropped += [f"devices.{device.name}.{field}" for field in differences(device, there)]
    rest = differences(*(msgspec.structs.replace(one, devices=None) for one in (written, stored)))
    return (*dropped, *rest)
