# SPDX-License-Identifier: Apache-2.0
"""Which devices and shares are allocated to which claims?

The scheduler collects this from the claims before it allocates. The allocator only needs to know that a device is
allocated (`AllocatedState`). `explain` also names the claim and its pods.
Source: k8s.io/kubernetes pkg/scheduler/framework/plugins/dynamicresources/allocateddevices.go.
"""

from collections.abc import Collection, Iterable

from msgspec import Struct, field

from dra_driver.allocator.amounts import amount
from dra_driver.allocator.state import AllocatedState, DeviceID, SharedDeviceID
from dra_driver.model.api.meta import QuantityText
from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult, ResourceClaim
from dra_driver.model.quantity import Quantity


class AllocatedClaim(Struct, frozen=True):
    """A claim ("namespace/name") that has a device, and the pods that the claim is reserved for."""

    claim: str
    pods: tuple[str, ...] = ()


class AllocatedDevices(Struct):
    """The allocated devices and shares, without results with admin access: those keep no other claim from the device."""

    devices: dict[DeviceID, AllocatedClaim] = field(default_factory=dict)
    shares: dict[DeviceID, list[AllocatedClaim]] = field(default_factory=dict)
    several: bool = False
    """Whether a device may belong to several claims: to their shares, or, in a cluster that is wrong, the whole of it to two claims."""
    _share_ids: set[SharedDeviceID] = field(default_factory=set)
    _consumed: dict[DeviceID, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, claims: Iterable[ResourceClaim], *, consumable_capacity: bool
    ) -> "AllocatedDevices":
        """Collect the devices and shares that are allocated to `claims`."""
        found = cls()
        for claim in claims:
            found.take(claim, consumable_capacity=consumable_capacity)
        return found

    def take(self, claim: ResourceClaim, *, consumable_capacity: bool) -> None:
        """Add the devices and shares of one more claim."""
        allocation = claim.status.allocation
        results = (allocation.devices.results or ()) if allocation else ()
        holder = allocated_claim(claim)
        for result in results:
            if not result.admin_access:
                shared = consumable_capacity and result.share_id is not None
                self._add(result, holder, shared=shared)

    def without(self, claims: Collection[str]) -> "AllocatedDevices":
        """Return what is allocated when these claims ("namespace/name") have ended. Not if `several`."""
        left = {one: claim for one, claim in self.devices.items() if claim.claim not in claims}
        return AllocatedDevices(left)

    def _add(
        self, result: DeviceRequestAllocationResult, claim: AllocatedClaim, *, shared: bool
    ) -> None:
        device = DeviceID(result.driver, result.pool, result.device)
        self.several = self.several or shared or device in self.devices
        if not shared:
            self.devices[device] = claim
            return
        self.shares.setdefault(device, []).append(claim)
        self._share_ids.add(SharedDeviceID(*device, result.share_id or ""))
        consumed = self._consumed.setdefault(device, {})
        for name, quantity in (result.consumed_capacity or {}).items():
            consumed[name] = consumed.get(name, 0) + amount(quantity).nanos

    def consumed(self, device: DeviceID) -> dict[str, int]:
        """Return the amount of each capacity that the shares of the device consume, in billionths."""
        return self._consumed.get(device, {})

    def state(self) -> AllocatedState:
        """Return the same data in the form that an Allocator takes."""
        capacity: dict[DeviceID, dict[str, QuantityText]] = {
            device: {name: str(Quantity(nanos)) for name, nanos in consumed.items()}
            for device, consumed in self._consumed.items()
        }
        return AllocatedState(set(self.devices), set(self._share_ids), capacity)


def allocated_claim(claim: ResourceClaim) -> AllocatedClaim:
    """Return the claim's namespace and name, with the pods of status.reservedFor."""
    metadata = claim.metadata
    users = claim.status.reserved_for or ()
    pods = tuple([f"{metadata.namespace}/{reference.name}" for reference in users])
    return AllocatedClaim(f"{metadata.namespace}/{metadata.name}", pods)
