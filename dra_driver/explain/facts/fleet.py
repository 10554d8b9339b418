# SPDX-License-Identifier: Apache-2.0
"""What does a cluster offer to claims? The pools with all their slices, what is free in them, and which claims have the other devices.

The search reads only the slices for one node. The report reads the pools of all nodes, to say why a request fits on no node.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, TypeVar

from dra_driver.allocator.allocate import Allocator
from dra_driver.allocator.allocated_devices import AllocatedClaim, AllocatedDevices
from dra_driver.allocator.counters import AvailableCounters
from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.features import Rules
from dra_driver.allocator.own_counters import with_own_counters
from dra_driver.allocator.pools import Pool, gives_devices, ignored_because
from dra_driver.allocator.state import DeviceID, PoolID
from dra_driver.allocator.taints import RuleNames, with_taint_rules
from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.reasons.paths import DevicePath, value_at, version_in
from dra_driver.cel.reasons.selector import ExplainedSelector
from dra_driver.cel.versions import NEWEST, OLDEST, Environment
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.holders import Holders
from dra_driver.explain.facts.left_out import LeftOut, leave_out
from dra_driver.explain.facts.pools import pools_of
from dra_driver.explain.facts.resized_pods import StatusCounts
from dra_driver.explain.facts.used_resources import UsedResources
from dra_driver.explain.names import full_name
from dra_driver.explain.verdict import FeatureOff, PoolIncomplete, PoolInvalid
from dra_driver.model.api.resource_claim import DeviceClass, ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice
from dra_driver.model.cluster import ClusterState, NotRead
from dra_driver.model.gates import (
    POD_RESIZE,
    TAINT_RULES,
    WHOLE_POD_RESIZE,
    allocator_features,
    is_on,
)
from dra_driver.model.quantity import Quantity

_SUMS_SINCE = 37
_KEPT = ("pools", "unusable", "all_devices", "devices", "drivers", "nodes", "used")
"""What no request and no end of the time has a part in."""
_Made = TypeVar("_Made")

Unusable = PoolIncomplete | PoolInvalid | FeatureOff
"""Why the scheduler takes no device from a pool."""


class Fleet:
    """The cluster as the allocator sees it. All requests, claims and pods that are explained in this cluster can share it."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.features = allocator_features(state.minor, state.feature_gates)
        self.minor = min(max(state.minor or NEWEST, OLDEST), NEWEST)
        self.rules = Rules.of(self.features, None, self.minor)
        self.classes: Mapping[str, DeviceClass] = {
            device_class.metadata.name: device_class for device_class in state.device_classes
        }
        rules = state.device_taint_rules if self.is_on(TAINT_RULES) else ()
        tainted = with_taint_rules(state.resource_slices, rules)
        unread = {gap.name for gap in state.gaps("resourceslices")}
        published, self.left_out = leave_out(tainted[0], unread, state.nodes, self.rules)
        if self.rules.counters_beside_devices:
            published = tuple(with_own_counters(published))
        self.slices: tuple[ResourceSlice, ...] = published
        self.rule_names: RuleNames = tainted[1]
        self.held = self.held_by(state.resource_claims)
        self.holders = Holders(state)
        self.environment = Environment(self.minor, "StoredExpressions")
        self.explained = lru_cache(maxsize=None)(self._explained)
        self._shared: dict[Hashable, Any] = {}
        self._last_value: tuple[SliceDevice, DeviceValue] | None = None

    def is_on(self, gate: str) -> bool:
        """Return whether a feature gate is on in this cluster: as the API server's /metrics say, else by the default."""
        return is_on(gate, self.state.minor, self.state.feature_gates)

    def shared(self, key: Hashable, make: Callable[[], _Made]) -> _Made:
        """Return what is made once for all that have this key: requests that ask for the same have the same answers."""
        found = self._shared.get(key)
        if found is None:
            found = self._shared[key] = make()
        return found

    def find_out_at_once(self) -> None:
        """Find out now what each explanation needs to know of the whole cluster."""
        _ = self.all_devices, self.unusable, self.allocator, self.used

    def without_answers(self) -> "Fleet":
        """Return the same cluster without what requests share, and without what a search may have left in the middle."""
        other = Fleet(self.state)
        other.__dict__ |= {name: self.__dict__[name] for name in _KEPT if name in self.__dict__}
        return other

    def value_of(self, device: SliceDevice) -> DeviceValue:
        """Return the CEL variable `device`. Only the last one is kept: those of 100,000 devices would take 60 MB."""
        last = self._last_value
        if last is None or last[0] is not device:
            last = self._last_value = (device, DeviceValue(device.id.driver, device.device))
        return last[1]

    def held_by(self, claims: Iterable[ResourceClaim]) -> AllocatedDevices:
        """Return the devices that are allocated to these claims."""
        return AllocatedDevices.of(claims, consumable_capacity=self.rules.consumable_capacity)

    def _explained(self, expression: str) -> ExplainedSelector:
        return ExplainedSelector(compile_selector(expression, self.environment))

    @cached_property
    def pools(self) -> Mapping[PoolID, Pool]:
        """The pools with the slices for all nodes; in parts where nodes see different slices of one."""
        return pools_of(self.slices, self.state.nodes, self.rules)

    @cached_property
    def allocator(self) -> Allocator:
        """The scheduler's allocator for the cluster with its present allocations."""
        return self.allocator_with(self.held)

    def allocator_with(
        self, holdings: AllocatedDevices, classes: Mapping[str, DeviceClass] | None = None
    ) -> Allocator:
        """Return the scheduler's allocator for this cluster, as if only the devices in `holdings` were allocated.

        `classes` are classes that are changed, by name.
        """
        return Allocator(
            self.slices,
            {**self.classes, **(classes or {})}.values(),
            holdings.state(),
            features=self.features,
            minor=self.minor,
        )

    @cached_property
    def drivers(self) -> frozenset[str]:
        """The drivers that publish a slice."""
        return frozenset(published.spec.driver for published in self.slices)

    @cached_property
    def devices(self) -> Mapping[DeviceID, SliceDevice]:
        """The devices by ID. Of several with one ID, for different nodes, the first."""
        found: dict[DeviceID, SliceDevice] = {}
        for device in self.all_devices:
            found.setdefault(device.id, device)
        return found

    @cached_property
    def all_devices(self) -> Sequence[SliceDevice]:
        """Every device, in the order of pools and slices; of an invalid pool, each name once."""
        return tuple(
            device
            for pool in self.pools.values()
            for device in (_by_id(pool) if pool.invalid_because else pool.devices)
        )

    def publishes(self, path: DevicePath, version: str = "") -> bool:
        """Return whether a device has a value at the path, or this version, or may have it because not all slices were read."""
        if self.unread_slices:
            return True
        there = self._there(path)
        return version in there if version else bool(there)

    def has_version(self, path: DevicePath) -> bool:
        """Return whether the value of a device at the path is a version."""
        return any(self._there(path))

    def _there(self, path: DevicePath) -> frozenset[str]:
        return self.shared((DevicePath, path), lambda: self._published(path))

    def _published(self, path: DevicePath) -> frozenset[str]:
        """Return the versions that devices have at the path, with "" for any other value."""
        in_doubt = (one for part in self.left_out for one in part.devices)
        every = chain(self.all_devices, in_doubt)
        values = (value_at(path, one.id.driver, one.device) for one in every)
        return frozenset(version_in(value) for value in values if value is not None)

    @cached_property
    def unread_slices(self) -> Sequence[NotRead]:
        """The gaps of slices of which nothing is known; those in `left_out` are not among them."""
        known = {name for part in self.left_out for name in part.slices}
        return [gap for gap in self.state.gaps("resourceslices") if gap.name not in known]

    @cached_property
    def left_out_on(self) -> Mapping[str, Sequence[LeftOut]]:
        """What is left out of the pools of each node; of pools of several nodes, under the name ""."""
        found: dict[str, list[LeftOut]] = {}
        for part in self.left_out:
            found.setdefault(part.node, []).append(part)
        return found

    @cached_property
    def nodes(self) -> DeviceNodes:
        """Which of the cluster's nodes can use a device."""
        return DeviceNodes(self.state.nodes)

    @cached_property
    def counts(self) -> StatusCounts:
        """What the scheduler counts of a pod that runs: in place it may have another size than its spec says."""
        return StatusCounts(
            of_containers=self.is_on(POD_RESIZE),
            of_the_whole=self.is_on(WHOLE_POD_RESIZE),
            of_sums=self.minor >= _SUMS_SINCE,
        )

    @cached_property
    def used(self) -> UsedResources:
        """What the pods of the cluster use of its nodes, besides devices."""
        return UsedResources(self.state.pods, self.counts)

    @cached_property
    def unusable(self) -> Mapping[PoolID, Unusable]:
        """The pools from which the scheduler takes no device, each with the reason. Before 1.35, `DeviceState` makes an exception."""
        return {
            pool_id: _incomplete(pool, self.rules)
            if pool.incomplete
            else PoolInvalid(str(pool_id), why)
            for pool_id, pool in self.pools.items()
            if (why := pool.invalid_because) or pool.incomplete
        }

    def ledger(self, pool_id: PoolID) -> AvailableCounters:
        """Return what is left of the pool's counters. Fails for a pool in `unusable`."""
        known = self._ledgers.get(pool_id)
        if known is None:
            held, rules = self.held, self.rules
            known = AvailableCounters(
                self.pools[pool_id],
                lambda one: (
                    (one.id in held.devices or one.id in held.shares)
                    and gives_devices(one.slice, rules)
                    and ignored_because(one.slice, rules) is None
                ),
            )
            self._ledgers[pool_id] = known
        return known

    @cached_property
    def _ledgers(self) -> dict[PoolID, AvailableCounters]:
        return {}

    def users_of_counters(
        self, pool_id: PoolID, counter_set: str, counter: str = ""
    ) -> tuple[AllocatedClaim, ...]:
        """Return the claims whose devices consume a counter of a counter set, or any counter of it."""
        key = (pool_id, counter_set, counter)
        if key not in self._users:
            users: dict[str, AllocatedClaim] = {}
            for device in self.pools[pool_id].all_devices:
                if counter:
                    takes = device.consumes.get((counter_set, counter), 0) > 0
                else:
                    takes = counter_set in dict(device.groups)
                if takes:
                    users.update((one.claim, one) for one in self.holders_of(device.id))
            self._users[key] = tuple(users.values())
        return self._users[key]

    @cached_property
    def _users(self) -> dict[tuple[PoolID, str, str], tuple[AllocatedClaim, ...]]:
        return {}

    def claims_on(self, device: DeviceID) -> tuple[str, ...]:
        """Return the claims to which the device, or a share of the device, is allocated."""
        return tuple([one.claim for one in self.holders_of(device)])

    def allocator_without(
        self, claims: Collection[str], classes: Mapping[str, DeviceClass]
    ) -> Allocator:
        """Return the scheduler's allocator for this cluster, as if these claims had ended and these classes were changed."""
        if classes:
            return self.allocator_with(self.held_without(claims) if claims else self.held, classes)
        if not claims:
            return self.allocator
        key = (Allocator, frozenset(claims))
        return self.shared(key, lambda: self.allocator.after(self.held_without(claims).state()))

    def held_without(self, claims: Collection[str]) -> AllocatedDevices:
        """Return the devices that are allocated, as if these claims had ended. The caller may change what is returned."""
        if not self.held.several:
            return self.held.without(claims)
        known = self.state.resource_claims
        return self.held_by(one for one in known if full_name(one.metadata) not in claims)

    def left_of(self, device: SliceDevice, name: str) -> Quantity:
        """Return what is left of a capacity of a device that several claims share."""
        whole, taken = device.capacity[name], self.held.consumed(device.id)
        return Quantity(max(whole.nanos - taken.get(name, 0), 0), whole.format)

    def holders_of(self, device: DeviceID) -> Sequence[AllocatedClaim]:
        """Return the claims that have the device or a share of it, with their pods."""
        holder, shares = self.held.devices.get(device), self.held.shares.get(device, [])
        return [holder, *shares] if holder else shares


def _by_id(pool: Pool) -> Iterable[SliceDevice]:
    return {device.id: device for device in pool.devices}.values()


def _incomplete(pool: Pool, rules: Rules) -> PoolIncomplete | FeatureOff:
    parts = [*pool.slices, *pool.for_others]
    here, newest = pool.slices[0].spec.pool, max(one.spec.pool.generation for one in parts)
    found = [one for one in parts if one.spec.pool.generation == newest]
    expected = found[0].spec.pool.resource_slice_count
    ignored = next((why for one in found if (why := ignored_because(one, rules))), None)
    if ignored and len(found) == expected:
        what = f"pool {pool.id}, which has a slice with {ignored.field},"
        return FeatureOff(ignored.gate, what)
    outdated = here.generation if here.generation != newest else None
    return PoolIncomplete(str(pool.id), len(found), expected, newest, outdated)
