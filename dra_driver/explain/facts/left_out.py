# SPDX-License-Identifier: Apache-2.0
"""Which slices have a quantity that cannot be parsed, and which devices are in doubt for it?

Such a slice stays in its pool, so that the pool is as complete as the scheduler sees it, but without devices and counters. So does
each slice of the same pool for the same nodes: its devices may consume what the bad slice declares. Where a node sees such slices with
counters, all that it has of the pool is left out, because its devices may consume them. And so is what it has of an invalid pool, because
without these devices the pool would look valid. What nodes do not see, as a slice of an older generation, changes nothing for them.

Apart from their amounts all is known of these devices: for whom they are, and whether selectors match them. So they put in doubt only
what may get one of them.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.allocator.devices import PoolSlice, SliceDevice
from dra_driver.allocator.features import Rules
from dra_driver.allocator.own_counters import with_own_counters
from dra_driver.allocator.pools import Pool
from dra_driver.explain.facts.pools import pools_of
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_slice import ResourceSlice

_Part = tuple[str, str, str]


class LeftOut(Struct, frozen=True):
    """The devices of one pool for the same nodes, because of the quantities in these slices. `node` is "" if not one node has them.

    `invalid`: some node finds the pool invalid, whatever the amounts are.
    """

    slices: tuple[str, ...]
    node: str
    devices: tuple[SliceDevice, ...]
    invalid: bool = False


def leave_out(
    published: Sequence[ResourceSlice], bad: Collection[str], nodes: Sequence[Node], rules: Rules
) -> tuple[tuple[ResourceSlice, ...], tuple[LeftOut, ...]]:
    """Return the slices without what is in doubt because of the slices named in `bad`, and what that is."""
    if not any(one.metadata.name in bad for one in published):
        return tuple(published), ()
    views = _views(published, bad, nodes, rules)
    names = _bad_parts(published, bad, views)
    invalid = {
        _part(one.published) for pool in views if pool.invalid_because for one in pool.slices
    }
    devices: dict[_Part, list[SliceDevice]] = {part: [] for part in names}
    kept: list[ResourceSlice] = []
    for one in published:
        part = _part(one)
        if part in names:
            devices[part] += PoolSlice(one).devices
            one = replace(one, spec=replace(one.spec, devices=None, shared_counters=None))  # noqa: PLW2901
        kept.append(one)
    found = (
        LeftOut(tuple(names[part]), part[2], tuple(devices[part]), part in invalid)
        for part in names
    )
    return tuple(kept), tuple(found)


def _views(
    published: Sequence[ResourceSlice], bad: Collection[str], nodes: Sequence[Node], rules: Rules
) -> Collection[Pool]:
    """Return the pools with bad slices as the nodes see them. Whether one is valid depends on names, and on no amount."""
    pools = {_part(one)[:2] for one in published if one.metadata.name in bad}
    there = [one for one in published if _part(one)[:2] in pools]
    if rules.counters_beside_devices:
        there = with_own_counters(there)
    return pools_of(there, nodes, rules).values()


def _bad_parts(
    published: Sequence[ResourceSlice], bad: Collection[str], views: Collection[Pool]
) -> dict[_Part, list[str]]:
    """Return what is left out, each part with the bad slices that are the reason.

    Where a node sees what is left out, all that it has of the pool is too if the pool is invalid, which it would not be without that, or
    if there are counters, which would be others.
    """
    names: dict[_Part, list[str]] = {}
    of_pools: dict[tuple[object, ...], list[str]] = {}
    for one in published:
        if one.metadata.name in bad:
            names.setdefault(_part(one), []).append(one.metadata.name)
            of_pools.setdefault(_generation(one), []).append(one.metadata.name)
    known = 0
    while known < len(names):
        known = len(names)
        for pool in views:
            here = [each for each in pool.slices if each.only is None or each.only]
            if not here:
                continue  # each node sees another part of it
            why = of_pools.get(_generation(here[0].published), [])
            read = [(_part(each.published), each) for each in (*pool.slices, *pool.for_others)]
            changed = [part for part, each in read if part in names and _has_counters(each)]
            if changed or (why and pool.invalid_because):
                why = why or names[changed[0]]
                for each in here:
                    names.setdefault(_part(each.published), why)
    return names


def _has_counters(one: PoolSlice) -> bool:
    return bool(one.spec.shared_counters) or any(d.device.consumes_counters for d in one.devices)


def _generation(published: ResourceSlice) -> tuple[object, ...]:
    pool = published.spec.pool
    return published.spec.driver, pool.name, pool.generation


def _part(published: ResourceSlice) -> _Part:
    spec = published.spec
    return spec.driver, spec.pool.name, spec.node_name or ""
