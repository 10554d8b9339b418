# SPDX-License-Identifier: Apache-2.0
"""A claim that a pod holds and the state lost: what its row must have been, by what stands on this node alone.

The kubelet's pod-resources name the claim and its devices, the CDI document holds what its containers got. That is a whole row
but for the names of the requests; an answer without any belongs to all requests. Nothing is configured: the devices are
in use. The API server need not know the claim, and may be wrong about it: it may have been restored to yesterday.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult
from dra_driver.model.claim import Claim, ClaimRef, base_request, key_of, share_of
from dra_driver.model.ids import ClaimUid, DeviceKey, DeviceName, DriverName, PoolName, ShareId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import MarkHeld, MarkPrepared, MarkStarted, Plan, Refusal
from dra_driver.model.state import (
    NOBODY_KNOWN,
    Held,
    HeldDevice,
    NodeState,
    Phase,
    PreparedClaim,
    PreparedDevice,
)
from dra_driver.planning.allocation import (
    allocation_digest,
    cdi_name,
    own_cdi_ids,
    own_results,
)
from dra_driver.planning.edits import ADMIN_VARIABLE, device_variable
from dra_driver.planning.prepare import NodePlace, users_of

_SHARE = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


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
        replace(
            device,
            uuid=_value(variables, device.cdi_ids, device_variable(device.device, device.share_id)),
            admin_access=_value(variables, device.cdi_ids, ADMIN_VARIABLE) == "true",
        )
        for device in _named_devices(held)
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
    ref: ClaimRef,
    held: Collection[HeldDevice],
    claim: Claim | None,
    *,
    driver: DriverName,
    state: NodeState,
) -> Plan | None:
    """The row of a claim whose document is lost and cannot be made anew: of the devices that the kubelet names, those that are nobody's.

    The kubelet tells neither of admin access nor of pods: `claim` does, if the API server knows it. `state` has the owners of the
    devices' keys. None where nothing is left for the claim.
    """
    results = own_results(claim, driver) if claim is not None else ()
    is_same = {key_of(result) for result in results}.issuperset(device.key for device in held)
    admin = {key_of(result) for result in results if result.admin_access and is_same}
    devices = tuple(
        replace(device, admin_access=device.key in admin)
        for device in _named_devices(held)
        if device.key in admin or state.owners.get(device.key, ref) == ref
    )
    if not devices:
        return None
    # Who was there before it was allocated anew has no name any more.
    users = NOBODY_KNOWN if claim is None else replace(users_of(claim), unnamed=not is_same)
    row = PreparedClaim(ref, Phase.STARTED, state.boot_id, devices, "", users)
    return Plan(ref, (MarkStarted(row),), devices)


def plan_described(
    uid: ClaimUid,
    text: str,
    held: Held | None,
    *,
    place: NodePlace,
    inventory: Inventory,
    state: NodeState,
) -> Plan | None:
    """The row of a claim of which a CDI document is all that is left: its containers may run on. None where it describes nothing.

    Its devices are reserved, but those that `state` gives an owner, and `held` once it is known that the claim is gone: kubelet and
    API server forget a pod whose containers still run. Nobody knows the claim's name any more.
    """
    ref = ClaimRef("", "", uid)
    devices = tuple(
        PreparedDevice((), place.pool, device, (name,), uuid="", share_id=share)
        for name, variables in _variables_by_device(text).items()
        for device, share in _described(uid, name, inventory)
        if variables.get(ADMIN_VARIABLE) != "true"
        and state.owners.get(DeviceKey(place.pool, device, share), ref) == ref
    )
    if not devices:
        return None
    started = MarkStarted(PreparedClaim(ref, Phase.STARTED, state.boot_id, devices, ""))
    steps = (started,) if held is None else (started, MarkHeld(uid, held))
    return Plan(ref, steps, devices)


def described_keys(
    uid: ClaimUid, text: str, *, place: NodePlace, inventory: Inventory
) -> list[DeviceKey]:
    """What a claim's CDI document describes."""
    return [
        DeviceKey(place.pool, device, share)
        for name in _variables_by_device(text)
        for device, share in _described(uid, name, inventory)
    ]


def _described(
    uid: ClaimUid, name: str, inventory: Inventory
) -> Iterator[tuple[DeviceName, ShareId]]:
    """Device and share of a full CDI name. The hardware tells where the device's name ends, if it is known; else share IDs are UUIDs."""
    found = re.fullmatch(rf"[^=]+={re.escape(uid)}(?:-[0-9a-f]{{8}})?-(.+)", name)
    if found:
        rest = found[1]
        names = [one for one in inventory.by_name if f"{rest}-".startswith(f"{one}-")]
        device = max(names, key=len, default=_SHARE.sub("", rest))
        yield DeviceName(device), ShareId(rest.removeprefix(device).removeprefix("-"))


def _named_devices(held: Collection[HeldDevice]) -> tuple[PreparedDevice, ...]:
    """As the kubelet names them; it does not know their requests."""
    return tuple(
        PreparedDevice((), one.pool, one.device, own_cdi_ids(one), uuid="", share_id=one.share_id)
        for one in sorted(set(held), key=lambda one: (one.device, one.share_id))
    )


def _devices_of(
    results: Sequence[DeviceRequestAllocationResult],
    names: Sequence[str],
    variables: Mapping[str, Mapping[str, str]],
) -> tuple[PreparedDevice, ...]:
    return tuple(
        PreparedDevice(
            request_names=(base_request(result),),
            pool=PoolName(result.pool),
            device=DeviceName(result.device),
            cdi_ids=(name,),
            uuid=_value(
                variables, (name,), device_variable(DeviceName(result.device), share_of(result))
            ),
            share_id=share_of(result),
            admin_access=bool(result.admin_access),
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
