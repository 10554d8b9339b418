# SPDX-License-Identifier: Apache-2.0
"""A claim that a pod holds and the state lost: what its row must have been, by what stands on this node alone.

The kubelet's pod-resources name the claim and its devices, the CDI document holds what its containers got. That is a whole row
but for the names of the requests; an answer without any belongs to all requests. Nothing is configured: the devices are
in use. The API server need not know the claim, and may be wrong about it: it may have been restored to yesterday.
"""

import json
from collections.abc import Collection, Mapping, Sequence

from dra_driver.model.claim import AllocationResult, Claim, ClaimRef
from dra_driver.model.plan import MarkPrepared, MarkStarted, Plan, Refusal
from dra_driver.model.state import HeldDevice, NodeState, Phase, PreparedClaim, PreparedDevice
from dra_driver.planning.allocation import allocation_digest, cdi_name, own_results
from dra_driver.planning.edits import ADMIN_VARIABLE, device_variable
from dra_driver.planning.prepare import NodePlace, users_of


def plan_adoption(
    ref: ClaimRef, held: Collection[HeldDevice], text: str, *, boot_id: str
) -> Plan | Refusal:
    """The row, as a plan of two marks, from all that pods hold of the claim and its CDI document; or why it cannot be told."""
    variables = _variables_by_device(text)
    named = sorted({name for device in held for name in device.cdi_ids})
    if named != sorted(variables):
        return Refusal(
            f"its CDI file describes {', '.join(sorted(variables)) or 'nothing that can be read'}, the kubelet names "
            f"{', '.join(named)}; delete the pod when it can be spared"
        )
    devices = tuple(
        PreparedDevice(
            request_names=(),
            pool=device.pool,
            device=device.device,
            cdi_ids=device.cdi_ids,
            uuid=_value(variables, device.cdi_ids, device_variable(device.device, device.share_id)),
            share_id=device.share_id,
            admin_access=_value(variables, device.cdi_ids, ADMIN_VARIABLE) == "true",
        )
        for device in sorted(set(held), key=lambda device: (device.device, device.share_id))
    )
    claim = PreparedClaim(ref, Phase.STARTED, boot_id, devices, text)
    return Plan(ref, (MarkStarted(claim), MarkPrepared(ref.uid)), devices)


def plan_adoption_of(claim: Claim, text: str, *, place: NodePlace, boot_id: str) -> Plan | Refusal:
    """The row, as a plan of two marks, from an allocated claim and the CDI document that stands on this node.

    The document is the last thing that a preparation makes: all that it describes was set up, and may be in use. So it counts as it
    stands, if it describes just the devices that the claim is allocated.
    """
    variables = _variables_by_device(text)
    results = own_results(claim, place.driver)
    for allocation in (allocation_digest(claim, place.driver), ""):
        names = [
            f"{place.cdi_kind}={cdi_name(claim.ref.uid, allocation, result)}" for result in results
        ]
        if names and sorted(names) == sorted(variables):
            break
    else:
        return Refusal(
            f"its CDI file describes {', '.join(sorted(variables)) or 'nothing that can be read'}, which is not what it is "
            f"allocated now; delete its pods when they can be spared"
        )
    devices = _devices_of(results, names, variables)
    row = PreparedClaim(claim.ref, Phase.STARTED, boot_id, devices, text, users_of(claim))
    return Plan(claim.ref, (MarkStarted(row), MarkPrepared(claim.ref.uid)), devices)


def plan_reservation(
    claim: Claim, names: Collection[str], *, place: NodePlace, state: NodeState
) -> Plan | None:
    """The row of a claim whose document is lost and cannot be made anew, as after its device has vanished too: what is left of it stays its own.

    `names` are what the kubelet told the containers, `state` has the owners of the claim's keys. None where the claim is allocated
    something else by now, or where somebody has a device of it.
    """
    results = own_results(claim, place.driver)
    digest = allocation_digest(claim, place.driver)
    own_names = [
        f"{place.cdi_kind}={cdi_name(claim.ref.uid, digest, result)}" for result in results
    ]
    devices = _devices_of(results, own_names, {})
    row = PreparedClaim(claim.ref, Phase.STARTED, state.boot_id, devices, "", users_of(claim))
    taken = any(state.owners.get(key, claim.ref) != claim.ref for key in row.owned)
    if taken or not set(own_names).issuperset(names):
        return None
    return Plan(claim.ref, (MarkStarted(row),), devices)


def plan_reservation_by_kubelet(
    ref: ClaimRef, held: Collection[HeldDevice], *, state: NodeState
) -> Plan | Refusal:
    """The row of a claim of which only the kubelet knows: the devices that it names stay the claim's own.

    It does not tell of admin access: such a claim counts as an owner until the API server names it. `state` has the owners of the
    devices' keys. Refused where somebody has one of the devices.
    """
    devices = tuple(
        PreparedDevice((), one.pool, one.device, one.cdi_ids, "", one.share_id, admin_access=False)
        for one in sorted(set(held), key=lambda one: (one.device, one.share_id))
    )
    row = PreparedClaim(ref, Phase.STARTED, state.boot_id, devices, "")
    owner = next((state.owners[key] for key in row.owned if key in state.owners), None)
    if owner is not None:
        return Refusal(f"a device of it is prepared for claim {owner}; delete the pod of one")
    return Plan(ref, (MarkStarted(row),), devices)


def _devices_of(
    results: Sequence[AllocationResult],
    names: Sequence[str],
    variables: Mapping[str, Mapping[str, str]],
) -> tuple[PreparedDevice, ...]:
    return tuple(
        PreparedDevice(
            request_names=(result.base_request,),
            pool=result.pool,
            device=result.device,
            cdi_ids=(name,),
            uuid=_value(variables, (name,), device_variable(result.device, result.share_id)),
            share_id=result.share_id,
            admin_access=result.admin_access,
        )
        for result, name in zip(results, names, strict=True)
    )


def _value(variables: Mapping[str, Mapping[str, str]], cdi_ids: Collection[str], name: str) -> str:
    found = (variables.get(cdi_id, {}).get(name, "") for cdi_id in cdi_ids)
    return next(filter(None, found), "")


def _variables_by_device(text: str) -> Mapping[str, Mapping[str, str]]:
    """The document's devices by their full names, and the variables of each; none if it cannot be read."""
    try:
        document = json.loads(text)
        return {
            f"{document['kind']}={device['name']}": dict(
                entry.partition("=")[::2] for entry in device["containerEdits"].get("env", ())
            )
            for device in document["devices"]
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
