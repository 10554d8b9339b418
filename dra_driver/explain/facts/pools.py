# SPDX-License-Identifier: Apache-2.0
"""Which slices does the scheduler read as one pool?

It looks at the slices of one node at a time. If these are as many as the pool should have, they are the pool, whatever else is
published under its name; only if some are missing does it look at the slices for other nodes. So a pool that is wrong as a whole can
be right for a node: while a driver writes a new generation for one node after the other, or if somebody publishes slices in the pool
of another node. Such a pool is divided here: each part has the slices that the scheduler takes together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dra_driver.allocator.devices import PoolSlice
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import Rules
from dra_driver.allocator.pools import (
    Pool,
    SliceIndex,
    counter_sets_of,
    device_named_twice,
    ignored_because,
    is_counted,
    unknown_counter,
)
from dra_driver.allocator.state import PoolID
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_slice import CounterSet, ResourceSlice


def pools_of(
    slices: Iterable[ResourceSlice], nodes: Sequence[Node], rules: Rules
) -> Mapping[PoolID, Pool]:
    """Return all pools, or their parts, with the slices for all nodes, in the order of their IDs."""
    by_pool: dict[PoolID, list[PoolSlice]] = {}
    for part in map(PoolSlice, slices):
        by_pool.setdefault(part.pool_id, []).append(part)
    found: dict[PoolID, Pool] = {}
    doubtful: dict[PoolID, list[PoolSlice]] = {}
    for pool_id, parts in by_pool.items():
        newest = _newest(parts)
        found[pool_id] = _whole(pool_id, newest, rules)
        said = {part.spec.pool.resource_slice_count for part in newest}
        if len(newest) < len(parts) or len(said) > 1 or not found[pool_id].usable:
            doubtful[pool_id] = parts
    if doubtful:
        _divide(found, doubtful, nodes, rules)
    return {pool_id: found[pool_id] for pool_id in sorted(found)}


def _newest(parts: Sequence[PoolSlice]) -> list[PoolSlice]:
    newest = max(part.spec.pool.generation for part in parts)
    return [part for part in parts if part.spec.pool.generation == newest]


def _whole(pool_id: PoolID, slices: Sequence[PoolSlice], rules: Rules) -> Pool:
    """Return the pool with all its slices. Those that the scheduler ignores make it neither complete nor invalid."""
    in_order = sorted(slices, key=lambda part: part.name)
    read = [part for part in in_order if ignored_because(part, rules) is None]
    counter_sets: dict[str, CounterSet] = {}
    problem = device_named_twice(read)
    if rules.partitionable:
        counter_sets, twice = counter_sets_of(read)
        problem = problem or twice or unknown_counter(counter_sets, read)
    counted = sum(is_counted(part, rules) for part in in_order)
    return Pool(
        pool_id,
        in_order,
        counter_sets=counter_sets,
        incomplete=counted != in_order[0].spec.pool.resource_slice_count,
        invalid_because=problem,
    )


class _View(NamedTuple):
    """A pool as the scheduler sees it for some nodes, and the slices for these nodes by their names."""

    pool: Pool
    slices: dict[str, PoolSlice]
    nodes: list[str]


def _divide(
    found: dict[PoolID, Pool],
    doubtful: Mapping[PoolID, Sequence[PoolSlice]],
    nodes: Sequence[Node],
    rules: Rules,
) -> None:
    """Put the parts of doubtful pools into `found`, each under an ID of its own, and leave under the pool's ID what is in no part."""
    index = SliceIndex([part.published for parts in doubtful.values() for part in parts], rules)
    everyone = frozenset(node.metadata.name for node in nodes)
    views: dict[PoolID, dict[object, _View]] = {}
    for node in nodes:
        for pool, slices in _seen_from(node, index, found):
            if not _agrees(pool, slices, found[pool.id], rules):
                same = views.setdefault(pool.id, {})
                view = same.setdefault(_kind(pool, slices, found[pool.id]), _View(pool, {}, []))
                view.slices.update((part.name, part) for part in slices)
                view.nodes.append(node.metadata.name)
    for pool_id, some in views.items():
        for view in some.values():
            part = _part(view)
            if part.slices:  # what the scheduler reads on every node may all be for another node
                found[part.id] = part
        apart = frozenset(one for view in some.values() for one in view.nodes)
        rest = _rest(found.pop(pool_id), apart, everyone - apart, rules)
        if rest is not None:
            found[pool_id] = rest


def _seen_from(
    node: Node, index: SliceIndex, wholes: Mapping[PoolID, Pool]
) -> Iterator[tuple[Pool, list[PoolSlice]]]:
    """Yield the pools that the scheduler finds for the node, each with its slices for this node.

    A pool whose slices here are outdated it leaves out: it is incomplete here, and has the newest slices, which are for others.
    """
    try:
        newest = index.newest_for(node)
    except AllocationError:
        return  # the search fails on this node, whatever its pools are
    for slices in newest.values():
        pool_id = slices[0].pool_id
        yield (
            index.pool_of(slices)
            or Pool(pool_id, slices, for_others=wholes[pool_id].slices, incomplete=True),
            slices,
        )


def _kind(pool: Pool, slices: Sequence[PoolSlice], whole: Pool) -> object:
    """Return the same for nodes that see the same of a pool. Those with the same outdated generation do: each of them lacks the newest."""
    if pool.for_others is whole.slices:
        return slices[0].spec.pool.generation
    seen = frozenset(part.name for part in (*(pool.slices or slices), *pool.for_others))
    return seen, pool.invalid_because


def _agrees(pool: Pool, slices: Sequence[PoolSlice], whole: Pool, rules: Rules) -> bool:
    """Return whether the whole pool says the same of these slices."""
    if slices[0].spec.pool.generation != whole.slices[0].spec.pool.generation:
        return False
    if whole.incomplete and not (pool.incomplete or pool.incomplete_for_all):
        return False
    older = rules.takes_from_incomplete_pools
    return _gives(pool, older=older) == _gives(whole, older=older)


def _gives(pool: Pool, *, older: bool) -> bool:
    return not pool.invalid_because and (older or not pool.incomplete)


def _part(view: _View) -> Pool:
    """Return the view as a pool of its own, named after its first node."""
    pool, only = view.pool, frozenset(view.nodes)
    part_id = pool.id._replace(part=view.nodes[0])
    here = {
        name: PoolSlice(one.published, part_id, only)
        for name, one in sorted(view.slices.items())
        if not one.spec.node_name or one.spec.node_name in only
    }
    everywhere = {one.name: one for one in (*pool.for_others, *view.slices.values())}
    others = [one for name, one in everywhere.items() if name not in here]
    return Pool(
        part_id,
        [*here.values()],
        for_others=others,
        counter_sets=pool.counter_sets,
        incomplete=pool.incomplete or pool.incomplete_for_all,
        invalid_because=pool.invalid_because,
    )


def _rest(whole: Pool, apart: frozenset[str], left: frozenset[str], rules: Rules) -> Pool | None:
    """Return what is left of a pool for the nodes that are in no part, with the slices that are ignored; None if nothing is."""
    ignored = {one.name for one in whole.slices if ignored_because(one, rules)}
    slices = [
        one
        if one.spec.node_name or one.name in ignored
        else PoolSlice(one.published, whole.id, left)
        for one in whole.slices
        if one.spec.node_name not in apart or one.name in ignored
    ]
    kept = {one.name for one in slices}
    if not kept:
        return None
    return Pool(
        whole.id,
        slices,
        for_others=[one for one in whole.slices if one.name not in kept],
        counter_sets=whole.counter_sets,
        incomplete=whole.incomplete,
        invalid_because=whole.invalid_because,
    )
