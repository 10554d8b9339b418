# SPDX-License-Identifier: Apache-2.0
"""Whose counters does a device consume before Kubernetes 1.35?

There, counter sets are in the slice of the devices that consume them, and their names are unique in the slice only: two slices of a pool
may have a counter set of the same name, and the scheduler counts each one by itself. From 1.35 on the names are unique in the pool,
and this is what the search knows. So sets of one name get names that tell them apart.
Source: k8s.io/dynamic-resource-allocation v0.34 structured/internal/*/allocator_*.go (checkAvailableCounters).
"""

from collections import Counter
from collections.abc import Iterable

from msgspec.structs import replace

from dra_driver.model.api.resource_slice import Device, ResourceSlice

_Set = tuple[str, str, int, str]
"""Driver, pool, generation, and the name of a counter set."""


def with_own_counters(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Return the slices; counter sets whose name occurs in several slices of a pool are called "NAME of slice SLICE"."""
    published = list(slices)
    known = Counter(_set(one, name) for one in published for name in _names(one))
    return [
        _told_apart(one, {name for name in _names(one) if known[_set(one, name)] > 1})
        for one in published
    ]


def _names(published: ResourceSlice) -> list[str]:
    return [one.name for one in published.spec.shared_counters or ()]


def _set(published: ResourceSlice, name: str) -> _Set:
    spec = published.spec
    return spec.driver, spec.pool.name, spec.pool.generation, name


def _told_apart(published: ResourceSlice, names: set[str]) -> ResourceSlice:
    if not names:
        return published
    new = {name: f"{name} of slice {published.metadata.name}" for name in names}
    spec = published.spec
    counters = [
        replace(one, name=new.get(one.name, one.name)) for one in spec.shared_counters or ()
    ]
    devices = [_consuming(one, new) for one in spec.devices or ()]
    return replace(published, spec=replace(spec, shared_counters=counters, devices=devices))


def _consuming(device: Device, new: dict[str, str]) -> Device:
    consumed = [
        replace(one, counter_set=new.get(one.counter_set, one.counter_set))
        for one in device.consumes_counters or ()
    ]
    return replace(device, consumes_counters=consumed) if consumed else device
