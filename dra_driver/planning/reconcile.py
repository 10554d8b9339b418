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

from dra_driver.model.ids import DriverName, NodeName, PoolName
from dra_driver.model.slices import (
    CreateSlice,
    DeleteSlice,
    PublishedDevice,
    SliceChange,
    SliceSpec,
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
    wanted: Sequence[tuple[PublishedDevice, ...]],
    present: Sequence[StoredSlice],
    *,
    pool: PoolName,
    names: Sequence[str],
    accepted: Mapping[str, Mapping[str, str]] = _NOTHING_ACCEPTED,
) -> tuple[SliceChange, ...]:
    """The writes, in order; none when everything is as wanted. `names[i]` is the name of slice i.

    Whatever stands in a slice that is not of our making (`StoredSlice.unlike`) is a change too, unless the API server makes
    it so whatever we write: `accepted`, by the slice's name.
    """
    count = len(wanted)
    newest = max((stored.spec.generation for stored in present), default=0)
    by_name = {stored.name: stored for stored in present}
    good = {
        index: stored
        for index, name in enumerate(names[:count])
        if (stored := by_name.get(name))
        and stored.spec.pool == pool
        and stored.spec.generation == newest
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
        return (
            *deletions,
            *(
                UpdateSlice(good[index], SliceSpec(pool, newest, count, wanted[index]))
                for index in changed
            ),
        )
    # Whoever wrote the last generation there is into a slice must not end publication: it begins anew.
    generation = newest + 1 if newest < _LAST_GENERATION else 1
    return (*deletions, *_all(wanted, good, pool=pool, generation=generation, names=names))


def _all(
    wanted: Sequence[tuple[PublishedDevice, ...]],
    good: Mapping[int, StoredSlice],
    *,
    pool: PoolName,
    generation: int,
    names: Sequence[str],
) -> Iterator[SliceChange]:
    specs = [SliceSpec(pool, generation, len(wanted), devices) for devices in wanted]
    yield from (UpdateSlice(stored, specs[index]) for index, stored in good.items())
    yield from (
        CreateSlice(names[index], spec) for index, spec in enumerate(specs) if index not in good
    )


def _same(stored: StoredSlice, devices: tuple[PublishedDevice, ...], count: int) -> bool:
    return stored.spec.slice_count == count and same_devices(stored.spec.devices, devices)


def same_devices(some: tuple[PublishedDevice, ...], others: tuple[PublishedDevice, ...]) -> bool:
    """Whether both are the same devices in the same order. Quantities compare by value; `True` is not the number 1."""
    return some == others and [_kinds(device) for device in some] == [
        _kinds(device) for device in others
    ]


def _kinds(device: PublishedDevice) -> dict[str, type]:
    return {name: type(value) for name, value in device.attributes.items()}


def dropped_fields(written: SliceSpec, stored: SliceSpec) -> tuple[str, ...]:
    """What the API server did not store as it was written, as paths; it drops fields whose feature gate is off."""
    present = {device.name: device for device in stored.devices}
    dropped: list[str] = []
    for device in written.devices:
        there = present.get(device.name)
        if there is None:
            dropped.append(f"devices.{device.name}")
            continue
        dropped += [
            f"devices.{device.name}.attributes.{name}"
            for name, value in device.attributes.items()
            if (type(value), value)
            != (type(there.attributes.get(name)), there.attributes.get(name))
        ]
        dropped += [
            f"devices.{device.name}.capacity.{name}"
            for name, size in device.capacity.items()
            if size != there.capacity.get(name)
        ]
        if device.taints != there.taints:
            dropped.append(f"devices.{device.name}.taints")
    return tuple(dropped)
