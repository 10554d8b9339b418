# SPDX-License-Identifier: Apache-2.0
"""Which slices have a quantity that cannot be parsed, and which devices are in doubt for it?

Such a slice stays in its pool, so that the pool is as complete as the scheduler sees it, but without devices and counters. So does
each slice of the same pool for the same nodes: its devices may consume what the bad slice declares. A pool with counters is left out
for all nodes, because its devices for other nodes may consume them. And so is a pool that is invalid, because without these devices
it would look valid. Apart from their amounts all is known of these devices: for whom they are, and whether selectors match them. So they
put in doubt only what may get one of them.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.allocator.devices import PoolSlice, SliceDevice
from dra_driver.allocator.features import Rules
from dra_driver.allocator.own_counters import with_own_counters
from dra_driver.explain.facts.pools import pools_of
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_slice import ResourceSlice

_Pool = tuple[str, str]
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
    pools = {_part(one)[:2] for one in published if one.metadata.name in bad}
    invalid = _invalid([one for one in published if _part(one)[:2] in pools], nodes, rules)
    names = _bad_parts(published, bad, invalid)
    devices: dict[_Part, list[SliceDevice]] = {part: [] for part in names}
    kept: list[ResourceSlice] = []
    for one in published:
        part = _part(one)
        if part in names:
            devices[part] += PoolSlice(one).devices
            one = replace(one, spec=replace(one.spec, devices=None, shared_counters=None))  # noqa: PLW2901
        kept.append(one)
    found = (
        LeftOut(tuple(names[part]), part[2], tuple(devices[part]), part[:2] in invalid)
        for part in names
    )
    return tuple(kept), tuple(found)


def _invalid(
    published: Sequence[ResourceSlice], nodes: Sequence[Node], rules: Rules
) -> Collection[_Pool]:
    """Return the pools that some node finds invalid: that depends on names, and on no amount."""
    if rules.counters_beside_devices:
        published = with_own_counters(published)
    found = pools_of(published, nodes, rules)
    return {(one.driver, one.pool) for one, pool in found.items() if pool.invalid_because}


def _bad_parts(
    published: Sequence[ResourceSlice], bad: Collection[str], invalid: Collection[_Pool]
) -> dict[_Part, list[str]]:
    """Return what is left out, each part with the bad slices that are the reason."""
    names: dict[_Part, list[str]] = {}
    of_pools: dict[_Pool, list[str]] = {}
    for one in published:
        if one.metadata.name in bad:
            part = _part(one)
            names.setdefault(part, []).append(one.metadata.name)
            of_pools.setdefault(part[:2], []).append(one.metadata.name)
    whole = {_part(one)[:2] for one in published if one.spec.shared_counters}.union(invalid)
    for part in map(_part, published):
        if part[:2] in whole and part[:2] in of_pools:
            names.setdefault(part, of_pools[part[:2]])
    return names


def _part(published: ResourceSlice) -> _Part:
    spec = published.spec
    return spec.driver, spec.pool.name, spec.node_name or ""
