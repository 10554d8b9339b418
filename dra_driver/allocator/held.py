# SPDX-License-Identifier: Apache-2.0
"""Who holds what, and which taints do admins add? What the scheduler knows of a cluster before it allocates.

The allocator needs to know only that a device is taken; people want to know by whom.
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
    """A claim ("namespace/name") that holds a device, and the pods that it is reserved for."""

    claim: str
    pods: tuple[str, ...] = ()


@dataclass(slots=True)
class Held:
    """Devices and shares of devices that claims hold; admin access holds nothing."""

    devices: dict[DeviceID, Holder] = field(default_factory=dict)
    shares: dict[DeviceID, list[Holder]] = field(default_factory=dict)
    _share_ids: set[SharedDeviceID] = field(default_factory=set)
    _consumed: dict[DeviceID, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, claims: Iterable[ResourceClaim], *, consumable_capacity: bool) -> "Held":
        """What all claims of a cluster hold."""
        held = cls()
        for claim in claims:
            held.take(claim, consumable_capacity=consumable_capacity)
        return held

    def take(self, claim: ResourceClaim, *, consumable_capacity: bool) -> None:
        """What one more claim holds."""
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
        """What shares have taken of the device's capacity, in billionths."""
        return self._consumed.get(device, {})

    def state(self) -> AllocatedState:
        """The same as the allocator wants it."""
        capacity: dict[DeviceID, dict[str, QuantityText]] = {
            device: {name: str(Quantity(nanos)) for name, nanos in consumed.items()}
            for device, consumed in self._consumed.items()
        }
        return AllocatedState(set(self.devices), set(self._share_ids), capacity)


def holder_of(claim: ResourceClaim) -> Holder:
    """The claim by name, with its pods."""
    metadata = claim.metadata
    pods = tuple(
        f"{metadata.namespace}/{reference.name}" for reference in claim.status.reserved_for or ()
    )
    return Holder(f"{metadata.namespace}/{metadata.name}", pods)


RuleNames = dict[tuple[DeviceID, int], str]
"""The DeviceTaintRule that a taint comes from, by device and place in its list of taints."""


def with_taint_rules(
    slices: Sequence[ResourceSlice], rules: Sequence[DeviceTaintRule]
) -> tuple[tuple[ResourceSlice, ...], RuleNames]:
    """The slices with the taints that rules add to their devices, behind their own."""
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
    taints = list(device.taints or ())
    for rule in rules:
        selector = rule.spec.device_selector
        if selector and selector.device in (None, device.name):
            names[device_id, len(taints)] = rule.metadata.name
            taints.append(rule.spec.taint)
    return msgspec.structs.replace(device, taints=taints) if taints else device
