# SPDX-License-Identifier: Apache-2.0
"""What does an Allocate call of the kubelet get, and in which steps?

The units of the call become the results of a claim that no API server has. So the plan is that of a claim: the same checks, the same
leases, the same steps, and the same table of owners refuses a second owner. What differs: nobody says which pod it is for. The kubelet's
checkpoint tells that afterwards (`dra_driver.services.plugin.holders`).
"""

import dataclasses
from collections.abc import Collection, Sequence

from msgspec import Struct, structs
from msgspec.structs import replace

from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceName, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import ConfigureDevice, Decision, MarkStarted, Plan, Refusal, Step
from dra_driver.model.plugin import PLUGIN_NAMESPACE, ContainerAnswer, PluginResource, Sharing
from dra_driver.model.state import CallBegun, NodeState, PreparedDevice, Users
from dra_driver.planning.prepare import NodePlace, plan_prepare

MEMORY_VARIABLE = "DRA_DEVICE_MEMORY"
"""In a container with units of memory: its share of the device, as a quantity."""


def claim_of(
    resource: PluginResource, ids: Sequence[UnitId], uid: ClaimUid, place: NodePlace
) -> Claim | Refusal:
    """Return the claim for these units of a resource, or why a container cannot have them."""
    known = resource.by_id
    if unknown := [unit for unit in ids if unit not in known]:
        return Refusal(
            f"{_asked(resource)}: the driver has no unit {_named(unknown)} (any more): the device vanished, or the resource was configured "
            f"anew; delete the pod if nothing creates it again, the kubelet has the new list already"
        )
    if not ids or len(set(ids)) < len(ids):
        return Refusal(
            f"{_asked(resource)}: the kubelet sent {_named(ids) or 'no unit'}; restart it"
        )
    if len(ids) > 1 and resource.refuses_several:
        return Refusal(
            f"{_asked(resource)}: a container asks for {len(ids)}, and may have 1: more units are not more of a GPU "
            f"(failRequestsGreaterThanOne); write 1 in its limits"
        )
    results = tuple(
        DeviceRequestAllocationResult(
            request=one,
            driver=place.driver,
            pool=place.pool,
            device=known[one].device,
            share_id=known[one].share or None,
            consumed_capacity=dict(known[one].amounts) or None,
        )
        for one in ids
    )
    # `unnamed_users`: the claim is for a pod that nobody names.
    ref = ClaimRef(PLUGIN_NAMESPACE, resource.name, uid)
    return Claim(ref, results, resource.configs, unnamed_users=True)


class AllocateCall(Struct, frozen=True):
    """A call for units of a resource, as the claim that `claim_of` made of it. Without `hooks` its containers cannot have any, because the
    answer is no CDI name but the device files themselves. Its row keeps `begun`, for a process that did not answer the call itself.
    """

    resource: PluginResource
    claim: Claim
    hooks: bool = True
    begun: CallBegun | None = None


def plan_allocate(
    call: AllocateCall, *, place: NodePlace, inventory: Inventory, state: NodeState
) -> Decision:
    """Return a plan for the units of a container, a refusal, or a conflict with the owner of a device. `state` has the owners of its
    devices.
    """
    claim = call.claim
    shared = {
        DeviceName(result.device) for result in claim.results or () if result.share_id is not None
    }
    found = plan_prepare(
        claim.ref, claim, place=place, inventory=_sharable(inventory, shared), state=state
    )
    match found:
        case Refusal(reason):
            claimed = f"ResourceClaim {claim.ref.namespace}/{claim.ref.name}"
            return Refusal(reason.replace(claimed, _asked(call.resource)))
        case Plan(ref, steps, devices):
            answered = tuple(dataclasses.replace(one, by_name=call.hooks) for one in devices)
            return Plan(ref, _steps(steps, answered, call), answered)
        case _:
            return found


def _steps(
    steps: Sequence[Step], devices: tuple[PreparedDevice, ...], call: AllocateCall
) -> tuple[Step, ...]:
    rows = [step.claim for step in steps if isinstance(step, MarkStarted)]
    leases = [step.lease for step in steps if isinstance(step, ConfigureDevice)]
    return (
        *(MarkStarted(replace(row, devices=devices, users=Users(call=call.begun))) for row in rows),
        *(ConfigureDevice(dataclasses.replace(lease, hooks=call.hooks)) for lease in leases),
    )


def told_its_share(
    resource: PluginResource, ids: Collection[UnitId], answer: ContainerAnswer
) -> ContainerAnswer:
    """Tell a container how much memory of its device is its share. Nothing stops it from using more."""
    if resource.sharing is not Sharing.MEMORY:
        return answer
    env = {**answer.env, MEMORY_VARIABLE: f"{len(ids)}Gi"}
    return replace(answer, env=env)


def _sharable(inventory: Inventory, shared: Collection[DeviceName]) -> Inventory:
    """The inventory as the admin wants it: these devices can be given out in shares, although in DRA they cannot."""
    if not shared:
        return inventory
    devices = tuple(
        replace(device, api=structs.replace(device.api, allow_multiple_allocations=True))
        if device.name in shared
        else device
        for device in inventory.devices
    )
    return dataclasses.replace(inventory, devices=devices)


def _asked(resource: PluginResource) -> str:
    return f"resource {resource.name}"


def _named(ids: Sequence[UnitId]) -> str:
    return ", ".join(ids)
