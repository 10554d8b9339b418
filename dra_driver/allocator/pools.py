# SPDX-License-Identifier: Apache-2.0
"""Which pools have devices for a node, and can the scheduler allocate from them?

A driver publishes a pool as one or more slices. To change the pool, it writes each slice with a new generation. The
scheduler may see the slices in the middle of this change. It ignores slices of an old generation. A pool is incomplete
if slices of the new generation are still missing, and invalid if its content is wrong: a device name occurs twice, or a
device consumes a counter that no slice declares. The scheduler allocates nothing from an incomplete or invalid pool. Before
1.35, an incomplete pool blocked only requests with allocationMode All, the slices for other nodes made nothing outdated, and counters were in the slice of their devices. Slices for other nodes matter for two reasons:
without them the pool is incomplete, and their devices consume the same counters.
Source: k8s.io/dynamic-resource-allocation/structured/internal/*/pools_*.go (GatherPools, buildPool).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dra_driver.allocator.amounts import amount
from dra_driver.allocator.cached_attribute import cached_attribute
from dra_driver.allocator.devices import CounterName, PoolSlice, SliceDevice
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import COMPATIBILITY_GROUPS, PARTITIONABLE, Rules
from dra_driver.allocator.own_counters import with_own_counters
from dra_driver.allocator.state import PoolID
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_slice import CounterSet, ResourceSlice


class Pool:
    """The part of a pool that matters for one node. `invalid_because` is "" for a valid pool.

    `incomplete` blocks the pool for all requests, `incomplete_for_all` for those with allocationMode All.
    """

    def __init__(
        self,
        pool_id: PoolID,
        slices: Sequence[PoolSlice] = (),
        *,
        for_others: Sequence[PoolSlice] = (),
        counter_sets: dict[str, CounterSet] | None = None,
        incomplete: bool = False,
        invalid_because: str = "",
    ) -> None:
        self.id = pool_id
        self.slices = slices
        self.for_others = for_others
        self.counter_sets = counter_sets or {}
        self.incomplete = incomplete
        self.incomplete_for_all = incomplete
        self.invalid_because = invalid_because

    @property
    def usable(self) -> bool:
        """Whether the scheduler allocates devices from the pool."""
        return not self.incomplete and not self.invalid_because

    @cached_attribute
    def devices(self) -> list[SliceDevice]:
        """The devices for the node, in the order in which the search tries them."""
        return [device for part in self.slices for device in part.devices]

    @cached_attribute
    def all_devices(self) -> list[SliceDevice]:
        """The devices for all nodes. The devices for other nodes consume the same counters."""
        return self.devices + [device for part in self.for_others for device in part.devices]

    @cached_attribute
    def counters(self) -> dict[CounterName, int]:
        """The published value of each counter, in billionths."""
        return {
            (name, counter): amount(value.value).nanos
            for name, counter_set in self.counter_sets.items()
            for counter, value in (counter_set.counters or {}).items()
        }

    @cached_attribute
    def has_binding_conditions(self) -> bool:
        """Whether any device has binding conditions. The search tries such a pool after pools without them."""
        return any(device.device.binding_conditions is not None for device in self.devices)


class SliceIndex:
    """All slices of the cluster, with an index by node and by pool."""

    def __init__(self, published: Iterable[ResourceSlice], rules: Rules) -> None:
        self._rules = rules
        if rules.counters_beside_devices:
            published = with_own_counters(published)
        self._all = [PoolSlice(one) for one in published]
        # The stable allocator also reads slices with counters for other nodes.
        self._counters_for_all = not (rules.newer_than_stable or rules.counters_beside_devices)
        # The places in `_all` of the slices that only one node reads, by its name, and of those that every node has to look at.
        self._of_node: dict[str, list[int]] = {}
        self._of_any: list[int] = []
        self._of_pool: dict[PoolID, list[PoolSlice]] = {}
        for place, part in enumerate(self._all):
            self._of_pool.setdefault(part.pool_id, []).append(part)
            if ignored_because(part, rules) is not None:
                continue
            if part.spec.node_name and not self._is_for_all(part):
                self._of_node.setdefault(part.spec.node_name, []).append(place)
            else:
                self._of_any.append(place)

    def gather_pools(self, node: Node) -> list[Pool]:
        """Return the pools with devices for the node, in the order in which the search tries them (GatherPools).

        Raises AllocationError if a node selector is invalid. The stable allocator does not sort: upstream it keeps the order of
        the slices, and uses the random order of a Go map for pools.
        """
        newest = self.newest_for(node)
        found = [pool for pool in map(self.pool_of, newest.values()) if pool is not None]
        if self._rules.newer_than_stable:
            found.sort(key=lambda pool: (pool.has_binding_conditions, pool.id))
        return found

    def newest_for(self, node: Node) -> dict[PoolID, list[PoolSlice]]:
        """Return the newest slices for the node, by pool. Raises AllocationError if a node selector is invalid."""
        seen: dict[PoolID, list[PoolSlice]] = {}
        for part in self._candidates(node):
            if self._is_for(part, node):
                _keep_newest(seen, part)
        return seen

    def _candidates(self, node: Node) -> list[PoolSlice]:
        places = self._of_node.get(node.metadata.name, []) + self._of_any
        if not self._rules.newer_than_stable:
            places.sort()  # the stable allocator keeps the order of publication
        return [self._all[place] for place in places]

    def _is_for_all(self, part: PoolSlice) -> bool:
        return self._counters_for_all and bool(part.spec.shared_counters)

    def _is_for(self, part: PoolSlice, node: Node) -> bool:
        if self._is_for_all(part):
            return True
        try:
            if part.chooses_nodes:
                return part.is_for(node)
        except AllocationError as error:
            raise AllocationError(
                f"gather pool information: failed to perform node selection for slice {part.name}: {error}"
            ) from error
        return bool(part.spec.per_device_node_selection) and _any_device_is_for(part, node)

    def pool_of(self, slices: list[PoolSlice]) -> Pool | None:
        """Return the pool with these newest slices for a node; None if there are newer ones for other nodes, and these are not all."""
        pool = slices[0].spec.pool
        pool_id = slices[0].pool_id
        # If all slices of the pool are for this node, the other slices of the cluster are not needed.
        if len(slices) == pool.resource_slice_count:
            return self._complete_pool(pool_id, slices, [])
        # Some slices are missing here. They may be for other nodes, so read all slices of the pool in the cluster
        # (checkSlicesInPool).
        others = self._of_pool[pool_id]
        older = self._rules.takes_from_incomplete_pools
        if not older and any(part.spec.pool.generation > pool.generation for part in others):
            return None  # The node's slices are outdated. The new generation has no slice for this node yet.
        everything = [
            part
            for part in others
            if part.spec.pool.generation == pool.generation and is_counted(part, self._rules)
        ]
        if older:
            found = self._complete_pool(pool_id, slices, everything)
            found.incomplete_for_all = True
            return found
        if len(everything) != pool.resource_slice_count:
            return Pool(pool_id, incomplete=True)
        return self._complete_pool(pool_id, slices, everything)

    def _complete_pool(
        self, pool_id: PoolID, slices: list[PoolSlice], everything: list[PoolSlice]
    ) -> Pool:
        # The order of the slices decides which device the search finds first, so the order must be the same as in the scheduler.
        if self._rules.newer_than_stable:
            slices.sort(key=lambda part: part.name)
        names = {part.name for part in slices} if len(slices) < len(everything) else None
        others = [part for part in everything if names is not None and part.name not in names]
        if not self._rules.partitionable:
            problem = device_named_twice(slices)
            return Pool(pool_id, () if problem else slices, invalid_because=problem)
        with_counters = [part for part in (*slices, *others) if part.spec.shared_counters]
        own = [part for part in slices if gives_devices(part, self._rules)]
        for_others = [part for part in others if gives_devices(part, self._rules)]
        counter_sets, problem = counter_sets_of(with_counters)
        # The stable allocator also checks devices in slices with counters. From 1.35 on the API allows no devices there.
        checked = own if self._rules.newer_than_stable else slices
        problem = (
            device_named_twice(own)
            or problem
            or unknown_counter(counter_sets, [*checked, *for_others])
        )
        if problem:
            return Pool(pool_id, invalid_because=problem)
        return Pool(pool_id, own, for_others=for_others, counter_sets=counter_sets)


def gives_devices(part: PoolSlice, rules: Rules) -> bool:
    """Return whether the scheduler takes devices of the slice: from 1.35 on, not of one with counters."""
    return rules.counters_beside_devices or not part.spec.shared_counters


class Ignored(NamedTuple):
    """The feature gate that a slice needs, and the field for which it needs it."""

    gate: str
    field: str


def ignored_because(part: PoolSlice, rules: Rules) -> Ignored | None:
    """Return why the scheduler ignores the slice: a feature that it needs is off. None if it reads the slice."""
    spec = part.spec
    if spec.per_device_node_selection is not None and not rules.partitionable:
        return Ignored(PARTITIONABLE, "perDeviceNodeSelection")
    if spec.shared_counters and rules.ignores_counter_slices:
        return Ignored(PARTITIONABLE, "sharedCounters")
    if not is_counted(part, rules):
        return Ignored(COMPATIBILITY_GROUPS, "compatibilityGroups")
    return None


def is_counted(part: PoolSlice, rules: Rules) -> bool:
    """Return whether the slice counts when the slices of a pool for all nodes are counted. An ignored slice may count all the same."""
    return rules.compatibility_groups or not part.uses_compatibility_groups


def _keep_newest(seen: dict[PoolID, list[PoolSlice]], part: PoolSlice) -> None:
    known = seen.get(part.pool_id)
    generation = part.spec.pool.generation
    if known is None or generation > known[0].spec.pool.generation:
        seen[part.pool_id] = [part]
    elif generation == known[0].spec.pool.generation:
        known.append(part)
    # A slice of an older generation is outdated. The driver has not deleted it yet.


def _any_device_is_for(part: PoolSlice, node: Node) -> bool:
    for device in part.devices:
        try:
            if device.is_for(node):
                return True
        except AllocationError as error:
            raise AllocationError(
                "gather pool information: failed to perform node selection for device "
                f"{device.device.name} in slice {part.name}: {error}"
            ) from error
    return False


def device_named_twice(slices: Iterable[PoolSlice]) -> str:
    """Return the message for a device name that occurs twice in a pool (validateDeviceNames), or ""."""
    names: set[str] = set()
    for part in slices:
        for device in part.spec.devices or ():
            if device.name in names:
                return f"duplicate device name {device.name}"
            names.add(device.name)
    return ""


def counter_sets_of(slices: Iterable[PoolSlice]) -> tuple[dict[str, CounterSet], str]:
    """Return the counter sets by name, and the message if one name occurs twice, or "" (getAndValidateCounterSets)."""
    found: dict[str, CounterSet] = {}
    for part in slices:
        for counter_set in part.spec.shared_counters or ():
            if counter_set.name in found:
                return found, f"duplicate counter set name {counter_set.name}"
            found[counter_set.name] = counter_set
    return found, ""


def unknown_counter(counter_sets: dict[str, CounterSet], slices: Iterable[PoolSlice]) -> str:
    """Return the message for a consumed counter that no slice declares (validateDeviceCounterConsumption), or ""."""
    for part in slices:
        for device in part.spec.devices or ():
            for consumed in device.consumes_counters or ():
                counter_set = counter_sets.get(consumed.counter_set)
                if counter_set is None:
                    return f"counter set {consumed.counter_set} not found"
                for name in consumed.counters or ():
                    if name not in (counter_set.counters or {}):
                        return f"counter {name} not found in counter set {counter_set.name}"
    return ""
