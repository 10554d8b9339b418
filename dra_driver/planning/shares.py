# SPDX-License-Identifier: Apache-2.0
"""Is there enough of a device left for the shares of a claim?

The scheduler gives away capacity, and sees only the claims of the API server. If these were restored from an older backup, it can give
away again what a claim on this node has. Whole devices have one owner in the state; of a shared device the driver adds up what the shares
consume.
"""

from collections.abc import Iterator, Sequence

from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult
from dra_driver.model.claim import Claim, key_of
from dra_driver.model.ids import DeviceKey
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import Refusal
from dra_driver.model.quantity import Quantity
from dra_driver.model.state import Consumption, NodeState

_NOTHING = Consumption({})


def too_much(
    claim: Claim,
    results: Sequence[DeviceRequestAllocationResult],
    *,
    inventory: Inventory,
    state: NodeState,
) -> Refusal | None:
    """Return why the claim's shares do not fit beside those of other claims; None if they do. All devices are in the inventory."""
    asked = f"ResourceClaim {claim.ref.namespace}/{claim.ref.name}"
    wanted: dict[tuple[DeviceKey, str], int] = {}
    try:
        for device, name, nanos in _amounts(results):
            wanted[device, name] = wanted.get((device, name), 0) + nanos
    except ValueError as error:
        return Refusal(f"{asked}: consumedCapacity: {error}; delete and create the claim again")
    for (device, name), nanos in wanted.items():
        size = _size(inventory, device, name)
        taken = state.consumed.get(device, _NOTHING)
        used = taken.amounts.get(name, Quantity(0)).nanos
        if size is not None and used + nanos > size.nanos:
            left = Quantity(max(0, size.nanos - used), size.format)
            return Refusal(
                f"{asked} shall get {Quantity(nanos, size.format)} of capacity {name} of device {device.device}, which has {left} of {size} "
                f"left{_users(taken)}; delete the pod and the claim, so that the scheduler chooses another device, or end the other pods: "
                f"the kubelet tries again"
            )
    return None


def _amounts(
    results: Sequence[DeviceRequestAllocationResult],
) -> Iterator[tuple[DeviceKey, str, int]]:
    """Yield what each share consumes, in billionths. Raises ValueError."""
    for result in results:
        key = key_of(result)
        if key.share and not result.admin_access:
            for name, text in (result.consumed_capacity or {}).items():
                yield DeviceKey(key.pool, key.device), name, Quantity.parse(str(text)).nanos


def _size(inventory: Inventory, device: DeviceKey, name: str) -> Quantity | None:
    """Return a capacity of the device; None if the device has none (any more) that the driver can read."""
    found = (inventory.by_name[device.device].api.capacity or {}).get(name)
    try:
        return None if found is None else Quantity.parse(str(found.value))
    except ValueError:
        return None


def _users(taken: Consumption) -> str:
    if not taken.claims:
        return ""
    names = ", ".join(sorted(claim.word for claim in taken.claims))
    more = taken.shares - len(taken.claims)
    return f" beside the shares of {names}" + (f" and {more} more" if more > 0 else "")
