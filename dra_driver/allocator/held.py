# SPDX-License-Identifier: Apache-2.0
"""Which devices are allocated to which claims, and which taints do DeviceTaintRules add?

The scheduler collects both before it allocates. The allocator only needs to know that a device is allocated. `explain`
also names the claim and its pods.
Source: k8s.io/kubernetes pkg/scheduler/framework/plugins/dynamicresources/allocateddevices.go,
k8s.io/dynamic-resource-allocation/resourceslice/tracker.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from dra_driver.allocator.amounts import amount
from dra_driver.allocator.state import AllocatedState, DeviceID, SharedDeviceID
from dra_driver.model.api.meta import QuantityText
from dra_driver.model.api.resource_claim import (
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
)
from dra_driver.model.api.resource_slice import Device, ResourceSlice
from dra_driver.model.quantity import Quantity


@dataclass(frozen=True, slots=True)
class Holder:
    """A claim ("namespace/name") that has a device, and the pods that the claim is reserved for."""

    claim: str
    pods: tuple[str, ...] = ()


@dataclass(slots=True)
class Held:
    """The allocated devices and shares. A result with admin access does not count, because it blocks nobody."""

    devices: dict[DeviceID, Holder] = field(default_factory=dict)
    shares: dict[DeviceID, list[Holder]] = field(default_factory=dict)
    _share_ids: set[SharedDeviceID] = field(default_factory=set)
    _consumed: dict[DeviceID, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, claims: Iterable[ResourceClaim], *, consumable_capacity: bool) -> "Held":
        """The devices and shares that are allocated to `claims`."""
        held = cls()
        for claim in claims:
            held.take(claim, consumable_capacity=consumable_capacity)
        return held

    def take(self, claim: ResourceClaim, *, consumable_capacity: bool) -> None:
        """Add the devices and shares of one more claim."""
        allocation = claim.status.allocation
        results = (allocation.devices.results or ()) if allocation else ()
        for result in results:
            if not result.admin_access:
                shared = consumable_capacity and result.share_id is not None
                self._add(result, holder_of(claim), shared=shared)

    def _add(self, result: DeviceRequestAllocationResult, holder: Holder, *, shared: bool) -> None:
        device = DeviceID(result.driver, result.pool, result.device)
        if not shared:
            self.devices[device] = holder
            return
        self.shares.setdefault(device, []).append(holder)
        self._share_ids.add(SharedDeviceID(*device, result.share_id or ""))
        consumed = self._consumed.setdefault(device, {})
        for name, quantity in (result.consumed_capacity or {}).items():
            consumed[name] = consumed.get(name, 0) + amount(quantity).nanos

    def consumed(self, device: DeviceID) -> dict[str, int]:
        """The amount of each capacity that the shares of the device consume, in billionths."""
        return self._consumed.get(device, {})

    def state(self) -> AllocatedState:
        """The same as the input of an Allocator."""
        capacity: dict[DeviceID, dict[str, QuantityText]] = {
            device: {name: str(Quantity(nanos)) for name, nanos in consumed.items()}
            for device, consumed in self._consumed.items()
        }
        return AllocatedState(set(self.devices), set(self._share_ids), capacity)


def holder_of(claim: ResourceClaim) -> Holder:
    """The claim's namespace and name, with the pods of status.reservedFor."""
    metadata = claim.metadata
    pods = tuple(
        f"{metadata.namespace}/{reference.name}" for reference in claim.status.reserved_for or ()
    )
    return Holder(f"{metadata.namespace}/{metadata.name}", pods)


RuleNames = dict[tuple[DeviceID, int], str]
"""The name of the DeviceTaintRule that added a taint, by device and index in its list of taints."""


def with_taint_rules(
    slices: Sequence[ResourceSlice], rules: Sequence[DeviceTaintRule]
) -> tuple[tuple[ResourceSlice, ...], RuleNames]:
    """The slices with the taints of `rules`, which follow the published taints of each device."""
    names: RuleNames = {}
    return tuple(_tainted(published, rules, names) for published in slices), names


def _tainted(
    published: ResourceSlice, rules: Sequence[DeviceTaintRule], names: RuleNames
) -> ResourceSlice:
    concerned = [rule for rule in rules if _selects(rule, published)]
    if not concerned:
        return published
    pool = (published.spec.driver, published.spec.pool.name)
    devices = [
        _with_taints(device, concerned, DeviceID(*pool, device.name), names)
        for device in published.spec.devices or ()
    ]
    return msgspec.structs.replace(
        published, spec=msgspec.structs.replace(published.spec, devices=devices)
    )


def _selects(rule: DeviceTaintRule, published: ResourceSlice) -> bool:
    selector = rule.spec.device_selector
    return (
        selector is not None
        and selector.driver in (None, published.spec.driver)
        and selector.pool in (None, published.spec.pool.name)
    )


def _with_taints(
    device: Device, rules: Sequence[DeviceTaintRule], device_id: DeviceID, names: RuleNames
) -> Device:
    # The scheduler reports the first taint that is not tolerated, so the order matters: published taints come first.
    taints = list(device.taints or ())
    for rule in rules:
        selector = rule.spec.device_selector
        if selector and selector.device in (None, device.name):
            names[device_id, len(taints)] = rule.metadata.name
            taints.append(rule.spec.taint)
    return msgspec.structs.replace(device, taints=taints) if taints else device
