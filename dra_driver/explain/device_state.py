# SPDX-License-Identifier: Apache-2.0
"""Why would the scheduler not take a device although the selectors of a request match it?

Its pool is broken, no node can use it, a feature gate is off, another claim has it, it is too small, or it has a taint.
These are the checks of the search (`dra_driver.allocator`). But the search stops at the first that fails; this module makes all.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from dra_driver.allocator.allocated_devices import AllocatedClaim
from dra_driver.allocator.amounts import amount
from dra_driver.allocator.capacity import (
    consumed_capacity,
    exhausted_capacity,
    forbidden_capacity,
    missing_capacity,
    policy_in_words,
)
from dra_driver.allocator.counters import AvailableCounters
from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import (
    ADMIN_ACCESS,
    BINDING_CONDITIONS,
    CONSUMABLE_CAPACITY,
    DERIVED_ATTRIBUTES,
    OPTIONAL_NODE_OPERATIONS,
    PARTITIONABLE,
    PRIORITIZED_LIST,
)
from dra_driver.allocator.pools import gives_devices, ignored_because
from dra_driver.allocator.taints import EFFECTIVE, tolerates
from dra_driver.cel.reasons.similar import likely_attribute, question
from dra_driver.explain.claim_request import ClaimRequest
from dra_driver.explain.facts.claim_state import skips_operations
from dra_driver.explain.facts.device_nodes import DeviceNodes, where_usable
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.verdict import (
    CapacityConsumed,
    CapacityTooSmall,
    CouldNotTell,
    CountersUsedUp,
    Ending,
    FeatureOff,
    NodeNotSelected,
    PoolInvalid,
    Tainted,
    Verdict,
)
from dra_driver.model.api.resource_claim import DeviceToleration, ExactDeviceRequest
from dra_driver.model.api.resource_slice import DeviceTaint
from dra_driver.model.device import taint_text
from dra_driver.model.quantity import Quantity

SKIPPING = "a device with skipNodeOperations"
BESIDE_COUNTERS = "devices are in a slice with sharedCounters, where this release takes none"


def features_off(fleet: Fleet, request: ClaimRequest) -> Iterator[FeatureOff]:
    """Yield the features that the request itself needs and that are off in the cluster."""
    body, rules = request.body, fleet.rules
    if body.derived_attributes and not rules.derived_attributes:
        yield FeatureOff(DERIVED_ATTRIBUTES, "derivedAttributes of the request")
    admin = isinstance(body, ExactDeviceRequest) and body.admin_access is not None
    if admin and not rules.admin_access:
        yield FeatureOff(ADMIN_ACCESS, "adminAccess of the request")
    if body.capacity and rules.newer_than_stable and not rules.consumable_capacity:
        yield FeatureOff(CONSUMABLE_CAPACITY, "capacity of the request")
    if request.is_alternative and not rules.prioritized_list:
        yield FeatureOff(PRIORITIZED_LIST, "firstAvailable")


def state_for(fleet: Fleet, request: ClaimRequest, nodes: DeviceNodes) -> "DeviceState":
    """Return the checks for the request; the same for all requests of the cluster that only differ in what they select."""
    body = request.body
    asked = msgspec.json.encode((body.capacity, body.tolerations))
    key = (DeviceState, nodes, asked, request.all_devices, request.admin_access)
    return fleet.shared(key, lambda: DeviceState(fleet, request, nodes))


class DeviceState:
    """Checks devices for one request; `nodes` are the nodes that the report is about."""

    def __init__(self, fleet: Fleet, request: ClaimRequest, nodes: DeviceNodes) -> None:
        self._fleet = fleet
        self._request = request
        self._nodes = nodes
        requests = request.body.capacity.requests if request.body.capacity else None
        self._capacity = {name: amount(text) for name, text in (requests or {}).items()}
        self._known: dict[SliceDevice, tuple[Verdict, ...]] = {}
        self._same: dict[tuple[Verdict, ...], tuple[Verdict, ...]] = {}

    def all_reasons(self, device: SliceDevice) -> tuple[Verdict, ...]:
        """Return all reasons against the device; the same tuple for devices with the same reasons."""
        known = self._known.get(device)
        if known is None:
            found = tuple(self.reasons(device))
            known = self._known[device] = self._same.setdefault(found, found)
        return known

    def reasons(self, device: SliceDevice) -> Iterator[Verdict]:
        """Yield the reasons against the device. Reasons that stay longest come first: a pool or a node before a claim or a taint."""
        unusable = self._fleet.unusable.get(device.slice.pool_id)
        if unusable is not None and not self._taken_all_the_same(device):
            yield unusable
            return
        if self._fleet.rules.partitionable and not gives_devices(device.slice, self._fleet.rules):
            yield PoolInvalid(str(device.slice.pool_id), BESIDE_COUNTERS)
            return
        if self._nodes.nodes and self._nodes.is_for_none(device):
            yield NodeNotSelected(where_usable(device), self._nodes.near_miss(device))
        yield from self._features(device)
        holder = self._fleet.held.devices.get(device.id)
        if holder is not None and not self._request.admin_access:
            # What is left of it is nothing. But a device that is too small stays so when that claim ends.
            if self._capacity:
                yield from self._too_small_if_free(device)
            yield self._fleet.holders.held_by(holder)
        else:
            yield from self._short(device)
            if device.device.consumes_counters:
                yield from self._used_up(device)
        if device.device.taints:
            yield from self._tainted(device)

    def refuses(self, device: SliceDevice) -> bool:
        """Return whether a reason is against a device that is not passed over, whatever its amounts are."""
        if self._nodes.nodes and self._nodes.is_for_none(device):
            return True
        return any(self._features(device)) or any(self._tainted(device))

    def passes_over(self, device: SliceDevice) -> bool:
        """Return whether the search passes over the device, whatever its amounts are, and asks no selector about it.

        It looks at nodes that the report is not about, too.
        """
        everywhere = self._fleet.nodes
        if everywhere.nodes and everywhere.is_for_none(device):
            return True
        if ignored_because(device.slice, self._fleet.rules):
            return True
        is_held = device.id in self._fleet.held.devices and not self._request.admin_access
        return is_held and not self._request.all_devices

    def _taken_all_the_same(self, device: SliceDevice) -> bool:
        """Whether the pool is incomplete, and this release takes the device from it for this request."""
        older = self._fleet.rules.takes_from_incomplete_pools and not self._request.all_devices
        return older and not self._fleet.pools[device.slice.pool_id].invalid_because

    def _features(self, device: SliceDevice) -> Iterator[Verdict]:
        rules = self._fleet.rules
        if device.device.binding_conditions and not rules.binding_conditions:
            yield FeatureOff(BINDING_CONDITIONS, "a device with bindingConditions")
        ignored = ignored_because(device.slice, rules)
        if ignored:
            yield FeatureOff(ignored.gate, f"a device in a slice with {ignored.field}")
        elif device.device.consumes_counters and not rules.partitionable:
            yield FeatureOff(PARTITIONABLE, "a device that shares counters")
        skips = rules.experimental and device.slice.spec.skip_node_operations
        if skips and not self._some_node_skips():
            yield FeatureOff(OPTIONAL_NODE_OPERATIONS, SKIPPING)

    def _some_node_skips(self) -> bool:
        return self._fleet.rules.optional_node_operations and any(
            skips_operations(node) for node in self._nodes.nodes.values()
        )

    def _too_small_if_free(self, device: SliceDevice) -> Iterator[CapacityTooSmall]:
        """Yield what the device would lack if no claim had it. The search never counts a held device, so what it cannot count is no reason."""
        for reason in self._short(device):
            if isinstance(reason, CapacityTooSmall):
                yield reason

    def _short(self, device: SliceDevice) -> Iterator[Verdict]:
        rules = self._fleet.rules
        offered = device.device.capacity or {}
        # As in the search: if the request asks for no capacity, only a device that is shared already can have too little.
        if not rules.consumable_capacity or not (
            self._capacity or device.id in self._fleet.held.shares
        ):
            return
        missing = missing_capacity(self._capacity, offered)
        if missing is not None:
            near = _similar(missing, list(offered))
            named = f"{missing} ({question(near)})" if near else missing
            yield CapacityTooSmall(named, str(self._capacity[missing]), near=near)
            return
        try:
            consumed = consumed_capacity(
                self._capacity, offered, fractional=rules.fractional_capacity
            )
            name = forbidden_capacity(consumed, offered, fractional=rules.fractional_capacity)
        except AllocationError as error:
            yield CouldNotTell("malformed", f"capacity of {device.id}: {error}")
            return
        if name is not None:
            needed = self._capacity.get(name, consumed[name])
            allowed = policy_in_words(offered[name].request_policy)
            yield CapacityTooSmall(name, str(needed), str(device.capacity[name]), allowed)
            return
        # First compare with the capacity of the empty device, then with what is left. Only the second can change when other claims
        # are deleted.
        taken = self._fleet.held.consumed(device.id)
        name = exhausted_capacity(consumed, device.capacity, {})
        if name is not None:
            yield CapacityTooSmall(name, str(consumed[name]), str(device.capacity[name]))
            return
        name = exhausted_capacity(consumed, device.capacity, taken)
        if name is not None:
            left = self._fleet.left_of(device, name)
            users = self._named(self._fleet.holders_of(device.id))
            yield CapacityConsumed(name, str(consumed[name]), str(left), *users)

    def _used_up(self, device: SliceDevice) -> Iterator[Verdict]:
        rules = self._fleet.rules
        if not rules.partitionable or ignored_because(device.slice, rules):
            return
        if device.id in self._fleet.held.shares:
            return  # the counters were taken when the first share was allocated
        ledger = self._fleet.ledger(device.slice.pool_id)
        counter = ledger.exhausted(device)
        if counter is not None:
            yield self._counter(device, ledger, counter)
        elif rules.compatibility_groups:
            counter_set = ledger.incompatible(device)
            if counter_set is not None:
                users = self._fleet.users_of_counters(device.slice.pool_id, counter_set)
                yield CountersUsedUp(counter_set, "", "", "", *self._named(users))

    def _counter(
        self, device: SliceDevice, ledger: AvailableCounters, counter: tuple[str, str]
    ) -> CountersUsedUp:
        pool_id = device.slice.pool_id
        whole = self._fleet.pools[pool_id].counter_sets[counter[0]].counters or {}
        form = amount(whole[counter[1]].value).format
        needed = Quantity(device.consumes.get(counter, 0), form)
        left = Quantity(ledger.left(counter), form)
        users = self._fleet.users_of_counters(pool_id, *counter)
        return CountersUsedUp(counter[0], counter[1], str(needed), str(left), *self._named(users))

    def _named(
        self, holders: Sequence[AllocatedClaim]
    ) -> tuple[tuple[str, ...], tuple[Ending, ...]]:
        """Return the names of claims, and which of them and of their pods are being deleted."""
        return tuple(one.claim for one in holders), self._fleet.holders.ending(holders)

    def _tainted(self, device: SliceDevice) -> Iterator[Verdict]:
        if not self._fleet.rules.taints:
            return
        tolerations = self._request.body.tolerations or ()
        for place, taint in enumerate(device.device.taints or ()):
            if taint.effect in EFFECTIVE and not any(tolerates(one, taint) for one in tolerations):
                rule = self._fleet.rule_names.get((device.id, place), "")
                yield Tainted(taint_text(taint), rule, _other_effect(tolerations, taint))


def _other_effect(tolerations: Iterable[DeviceToleration], taint: DeviceTaint) -> str:
    """Return a hint if the request tolerates this taint with another effect only; "" else."""
    effects = (
        one.effect
        for one in tolerations
        if tolerates(msgspec.structs.replace(one, effect=taint.effect), taint)
    )
    return next((f"the request tolerates it only with effect {one}" for one in effects), "")


def _similar(name: str, there: Sequence[str]) -> str:
    """Return a published name that the author may have meant: the same with or without a domain, or a similar one; "" if there is none."""
    bare = name.rpartition("/")[2]
    same = next((one for one in there if one.rpartition("/")[2] == bare), "")
    return same or likely_attribute(name, there)
