# SPDX-License-Identifier: Apache-2.0
"""Which pools does a node see, and may anything be taken from them?

A driver publishes a pool as several slices and replaces them one by one, under a new generation. So what is seen may be
an old generation (then it does not count), a part of a generation (incomplete: nothing can be taken from it), or
nonsense (invalid: two devices with one name, counters that nobody declared). Slices for other nodes matter in two ways:
the number of slices says whether all have arrived, and their devices consume the same counters.
Source: k8s.io/dynamic-resource-allocation/structured/internal/*/pools_*.go.
"""

from collections.abc import Iterable, Sequence

from dra_driver.allocator.amounts import amount
from dra_driver.allocator.devices import CounterName, PoolSlice, SliceDevice
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import Rules
from dra_driver.allocator.lazy import lazy
from dra_driver.allocator.state import PoolID
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_slice import CounterSet, ResourceSlice


class Pool:
    """What one node sees of a pool."""

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
        self.invalid_because = invalid_because

    @property
    def usable(self) -> bool:
        """Whether devices can be taken from it."""
        return not self.incomplete and not self.invalid_because

    @lazy
    def devices(self) -> list[SliceDevice]:
        """The devices that the node may have, in the order in which they are tried."""
        return [device for part in self.slices for device in part.devices]

    @lazy
    def all_devices(self) -> list[SliceDevice]:
        """Also those for other nodes, which consume the same counters."""
        return self.devices + [device for part in self.for_others for device in part.devices]

    @lazy
    def counters(self) -> dict[CounterName, int]:
        """The counters before anybody took anything."""
        return {
            (name, counter): amount(value.value).nanos
            for name, counter_set in self.counter_sets.items()
            for counter, value in (counter_set.counters or {}).items()
        }

    @lazy
    def binds(self) -> bool:
        """Whether any device has binding conditions; such pools are tried last."""
        return any(device.device.binding_conditions is not None for device in self.devices)


class Slices:
    """All slices of the cluster, filed so that a node finds its own quickly."""

    def __init__(self, published: Iterable[ResourceSlice], rules: Rules) -> None:
        self._rules = rules
        self._all = [PoolSlice(one) for one in published]
        self._of_node: dict[str, list[PoolSlice]] = {}
        self._shared: list[PoolSlice] = []
        self._of_pool: dict[PoolID, list[PoolSlice]] = {}
        for part in self._all:
            self._of_pool.setdefault(part.pool_id, []).append(part)
            if part.spec.node_name:
                self._of_node.setdefault(part.spec.node_name, []).append(part)
            else:
                self._shared.append(part)
        self._with_counters = [part for part in self._all if part.spec.shared_counters]

    def pools(self, node: Node) -> list[Pool]:
        """The pools with devices for the node, in the order in which they are tried.

        The stable allocator takes slices as they come, and pools in the order of a Go map, that is starting anywhere.
        """
        seen: dict[PoolID, list[PoolSlice]] = {}
        for part in self._candidates(node):
            if self._known(part) and self._is_for(part, node):
                _keep_newest(seen, part)
        found = [pool for pool in map(self._pool, seen.values()) if pool is not None]
        if self._rules.newer_than_stable:
            found.sort(key=lambda pool: (pool.binds, pool.id))
        return found

    def _candidates(self, node: Node) -> list[PoolSlice]:
        own = self._of_node.get(node.metadata.name, [])
        if self._rules.newer_than_stable:
            return own + self._shared
        # The stable allocator sees counters whichever node they are for, and slices as they were published.
        wanted = {id(part) for part in (*own, *self._shared, *self._with_counters)}
        return [part for part in self._all if id(part) in wanted]

    def _known(self, part: PoolSlice) -> bool:
        """Whether the features that are on understand the slice; else it is as if it were not there."""
        spec, rules = part.spec, self._rules
        if not rules.partitionable and (
            spec.per_device_node_selection is not None or spec.shared_counters
        ):
            return False
        return rules.compatibility_groups or not part.uses_compatibility_groups

    def _is_for(self, part: PoolSlice, node: Node) -> bool:
        if part.spec.shared_counters and not self._rules.newer_than_stable:
            return True
        try:
            if part.chooses_nodes:
                return part.is_for(node)
        except AllocationError as error:
            raise AllocationError(
                f"gather pool information: failed to perform node selection for slice {part.name}: {error}"
            ) from error
        return bool(part.spec.per_device_node_selection) and _any_device_is_for(part, node)

    def _pool(self, slices: list[PoolSlice]) -> Pool | None:
        pool = slices[0].spec.pool
        pool_id = slices[0].pool_id
        if len(slices) == pool.resource_slice_count:
            return self._complete_pool(pool_id, slices, [])
        others = self._of_pool[pool_id]
        if any(part.spec.pool.generation > pool.generation for part in others):
            return None  # The driver is replacing what the node sees.
        everything = [
            part
            for part in others
            if part.spec.pool.generation == pool.generation
            and (self._rules.compatibility_groups or not part.uses_compatibility_groups)
        ]
        if len(everything) != pool.resource_slice_count:
            return Pool(pool_id, incomplete=True)
        return self._complete_pool(pool_id, slices, everything)

    def _complete_pool(
        self, pool_id: PoolID, slices: list[PoolSlice], everything: list[PoolSlice]
    ) -> Pool:
        if self._rules.newer_than_stable:
            slices.sort(key=lambda part: part.name)
        names = {part.name for part in slices} if len(slices) < len(everything) else None
        others = [part for part in everything if names is not None and part.name not in names]
        if not self._rules.partitionable:
            problem = device_named_twice(slices)
            return Pool(pool_id, () if problem else slices, invalid_because=problem)
        with_counters = [part for part in (*slices, *others) if part.spec.shared_counters]
        own = [part for part in slices if not part.spec.shared_counters]
        for_others = [part for part in others if not part.spec.shared_counters]
        counter_sets, problem = counter_sets_of(with_counters)
        checked = own if self._rules.newer_than_stable else slices
        problem = (
            device_named_twice(own)
            or problem
            or unknown_counter(counter_sets, [*checked, *for_others])
        )
        if problem:
            return Pool(pool_id, invalid_because=problem)
        return Pool(pool_id, own, for_others=for_others, counter_sets=counter_sets)


def _keep_newest(seen: dict[PoolID, list[PoolSlice]], part: PoolSlice) -> None:
    known = seen.get(part.pool_id)
    generation = part.spec.pool.generation
    if known is None or generation > known[0].spec.pool.generation:
        seen[part.pool_id] = [part]
    elif generation == known[0].spec.pool.generation:
        known.append(part)


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
    """A device name that stands twice, as a sentence; "" where there is none."""
    names: set[str] = set()
    for part in slices:
        for device in part.spec.devices or ():
            if device.name in names:
                return f"duplicate device name {device.name}"
            names.add(device.name)
    return ""


def counter_sets_of(slices: Iterable[PoolSlice]) -> tuple[dict[str, CounterSet], str]:
    """The counter sets by name, and a sentence about one that is declared twice."""
    found: dict[str, CounterSet] = {}
    for part in slices:
        for counter_set in part.spec.shared_counters or ():
            if counter_set.name in found:
                return found, f"duplicate counter set name {counter_set.name}"
            found[counter_set.name] = counter_set
    return found, ""


def unknown_counter(counter_sets: dict[str, CounterSet], slices: Iterable[PoolSlice]) -> str:
    """A counter that a device consumes and nobody declared, as a sentence; "" where there is none."""
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
