# SPDX-License-Identifier: Apache-2.0
"""Wanted slices and present slices: the writes that make one the other.

Consumers use a pool only when all its slices of the newest generation are there. So as long as one single slice changes, its
generation stays and readers always see a whole pool; as soon as a slice is added or two change, the generation goes up
and every slice is written: readers see the pool as incomplete for a moment, never half old and half new.

Obsolete slices are deleted first, then present ones updated, then new ones created. So there is one single change
with which readers do not see a whole pool: from two slices to one, the second is gone, and until the first is written it says that it
is one of two. The controller that Kubernetes has for drivers in Go does the same.
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
    StoredSlice,
    UpdateSlice,
)

NAME_LIMIT = 253
_DIGEST_LENGTH = 16
_LAST_GENERATION = 2**63 - 1  # int64
NAME_VARIANTS = 16
"""Names that a slice can have. The admission policy of the chart lets pass these and no others."""


def slice_name(index: int, driver: DriverName, node: NodeName, *, variant: int = 0) -> str:
    """A name that is the same after every restart; the scheduler visits slices in the order of their names.

    Another `variant`, for when the first name is taken, stands between index and driver: at the end it could be the name of
    another node's slice, and the order of the indices would be lost.
    """
    name = f"{index:05x}{f'.{variant:x}' if variant else ''}-{driver}-{node}"
    if len(name) <= NAME_LIMIT:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: NAME_LIMIT - _DIGEST_LENGTH - 1].rstrip('-.')}-{digest}"


_NOTHING: Mapping[str, str] = MappingProxyType({})
_NOTHING_ACCEPTED: Mapping[str, Mapping[str, str]] = MappingProxyType({})


def plan_changes(
    wanted: Sequence[Devices],
    present: Sequence[StoredSlice],
    *,
    head: ResourceSliceSpec,
    names: Sequence[str],
    accepted: Mapping[str, Mapping[str, str]] = _NOTHING_ACCEPTED,
) -> tuple[SliceChange, ...]:
    """The writes, in order; none when everything is as wanted. `names[i]` is the name of slice i.

    `head` is what all slices have in common: the driver, the node and the pool's name. Whatever stands in a slice that is not
    of our making (`StoredSlice.unlike`) is a change too, unless the API server makes it so whatever we write: `accepted`, by
    the slice's name.
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
    # Whoever wrote the last generation there is into a slice must not end publication: it begins anew.
    generation = newest + 1 if newest < _LAST_GENERATION else 1
    pool = ResourcePool(name=head.pool.name, generation=generation, resource_slice_count=count)
    specs = [_spec(head, pool, devices) for devices in wanted]
    return (*deletions, *_all(specs, good, names))


def _spec(head: ResourceSliceSpec, pool: ResourcePool, devices: Devices) -> ResourceSliceSpec:
    return msgspec.structs.replace(head, pool=pool, devices=list(devices))


def _all(
    specs: Sequence[ResourceSliceSpec], good: Mapping[int, StoredSlice], names: Sequence[str]
) -> Iterator[SliceChange]:
    yield from (UpdateSlice(stored, specs[index]) for index, stored in good.items())
    yield from (
        CreateSlice(names[index], spec) for index, spec in enumerate(specs) if index not in good
    )


def _same(stored: StoredSlice, devices: Devices, count: int) -> bool:
    return stored.spec.pool.resource_slice_count == count and same_devices(stored.devices, devices)


def same_devices(some: Devices, others: Devices) -> bool:
    """Whether both are the same devices in the same order, in every field of the API. Quantities compare by value."""
    return len(some) == len(others) and all(map(same, some, others))


def dropped_fields(written: Devices, stored: Devices) -> tuple[str, ...]:
    """What the API server did not store as it was written, as paths; it drops fields whose feature gate is off."""
    present = {device.name: device for device in stored}
    dropped: list[str] = []
    for device in written:
        there = present.get(device.name)
        if there is None:
            dropped.append(f"devices.{device.name}")
            continue
        dropped += [f"devices.{device.name}.{field}" for field in differences(device, there)]
    return tuple(dropped)
