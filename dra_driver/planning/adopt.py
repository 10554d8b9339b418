# SPDX-License-Identifier: Apache-2.0
"""Make a new row for a claim whose row was lost, from the files of this node and the kubelet's answer.

The kubelet's pod-resources list the claim and its devices. The CDI file has the settings of the claim's containers. From both the
driver can make a whole row, except the names of the requests; a device without them belongs to all requests. The driver configures
no device, because the devices are in use. It does not need the API server, whose data may have been restored from an older backup.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec.structs import replace

from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult
from dra_driver.model.claim import Claim, ClaimRef, base_request, key_of, share_of
from dra_driver.model.ids import (
    NO_SHARE,
    ClaimUid,
    DeviceKey,
    DeviceName,
    DriverName,
    PoolName,
    ShareId,
)
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import (
    ConfigureDevice,
    MarkHeld,
    MarkPrepared,
    MarkStarted,
    Plan,
    Refusal,
)
from dra_driver.model.state import (
    NOBODY_KNOWN,
    Held,
    NodeState,
    Phase,
    PodDevice,
    PreparedClaim,
    PreparedDevice,
)
from dra_driver.planning.allocation import (
    allocation_digest,
    cdi_name,
    own_cdi_ids,
    own_results,
)
from dra_driver.planning.finish import ADMIN_VARIABLE, started_row, variables_by_device
from dra_driver.planning.prepare import NodePlace, users_for, users_of

# A share of a claim, or of the device plugin API.
_SHARE = re.compile(r"(.+)-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:replica|memory)-[0-9]+)")


def plan_adoption(
    ref: ClaimRef, pod_devices: Collection[PodDevice], text: str, *, boot_id: str
) -> Plan | Refusal:
    """Plan two marks that write the claim's row, from its CDI file `text` and from the devices that the kubelet lists for it; or
    return why that is impossible.
    """
    variables = variables_by_device(text)
    named = sorted({name for device in pod_devices for name in device.cdi_ids})
    if named != sorted(variables):
        return Refusal(
            f"its CDI file describes {', '.join(sorted(variables)) or 'nothing that can be read'}, the kubelet names "
            f"{', '.join(named)}; delete the pod when it can be spared"
        )
    devices = tuple(
        dataclasses.replace(
            device,
            admin_access=any(
                variables.get(name, {}).get(ADMIN_VARIABLE) == "true" for name in device.cdi_ids
            ),
        )
        for device in _as_prepared(_named_devices(pod_devices), variables)
    )
    claim = PreparedClaim(ref, Phase.STARTED, boot_id, devices, text)
    return Plan(ref, (MarkStarted(claim), MarkPrepared(ref.uid)), devices)


def plan_adoption_of(claim: Claim, text: str, *, place: NodePlace, boot_id: str) -> Plan | Refusal:
    """Plan two marks that write the claim's row, from the allocated claim and its CDI file; or return why that is impossible.

    A preparation writes the CDI file last. So every device in the file was set up, and may be in use. The file is accepted if it
    describes exactly the devices of the claim's current allocation.
    """
    variables = variables_by_device(text)
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
    devices = _as_prepared(_devices_of(results, names), variables)
    row = PreparedClaim(claim.ref, Phase.STARTED, boot_id, devices, text, users_of(claim))
    return Plan(claim.ref, (MarkStarted(row), MarkPrepared(claim.ref.uid)), devices)


def _as_prepared(
    devices: Sequence[PreparedDevice], described: Iterable[str]
) -> tuple[PreparedDevice, ...]:
    """The devices in the order of the claim's CDI file: the kubelet got them in this order, and gets them so again."""
    places = {name: place for place, name in enumerate(described)}
    return tuple(sorted(devices, key=lambda device: min(map(places.__getitem__, device.cdi_ids))))


def free_of_owners(plan: Plan | Refusal, state: NodeState) -> Plan | Refusal:
    """Return the plan, or a Refusal if another claim owns a device of it. `state` has the owners of the devices.

    The state file refuses such a row whole. So the caller reserves the claim's other devices: its containers may use them.
    """
    if isinstance(plan, Refusal):
        return plan
    for device in plan.devices:
        owner = state.owners.get(device.key, plan.claim)
        if owner.uid != plan.claim.uid and not device.admin_access:
            return Refusal(
                f"device {device.pool}/{device.device} of claim {plan.claim} is owned by claim {owner}"
            )
    return plan


def told_that_it_may_run(plan: Plan) -> Plan:
    """Change a plan to prepare for a claim whose containers may run, so that no backend changes a device.

    Its row gets no leases before it is Prepared: nothing was begun, and nothing is to be undone or set up anew if the plan does not end.
    """
    started = MarkStarted(replace(started_row(plan), leases=None))
    leases = [step.lease for step in plan.steps if isinstance(step, ConfigureDevice)]
    told = [ConfigureDevice(dataclasses.replace(lease, may_run=True)) for lease in leases]
    return replace(plan, steps=(started, *told))


def plan_reservation(
    ref: ClaimRef,
    pod_devices: Collection[PodDevice],
    claim: Claim | None,
    *,
    driver: DriverName,
    state: NodeState,
) -> Plan | None:
    """Plan for a claim whose CDI file is lost and cannot be rebuilt: reserve the devices that the kubelet lists for this claim, except
    devices that another claim owns.

    The kubelet lists neither admin access nor the claim's pods; `claim` has both, if the API server has the claim. A device with
    admin access is also taken if another claim owns it. `state` has the owners of the devices. None if no device is left.
    """
    results = own_results(claim, driver) if claim is not None else ()
    is_same = {key_of(result) for result in results}.issuperset(
        device.key for device in pod_devices
    )
    admin = {key_of(result) for result in results if result.admin_access and is_same}
    devices = tuple(
        dataclasses.replace(device, admin_access=device.key in admin)
        for device in _named_devices(pod_devices)
        if device.key in admin or state.owners.get(device.key, ref).uid == ref.uid
    )
    if not devices:
        return None
    # If the claim was allocated again since, its status.reservedFor does not have the earlier pods any more.
    users = NOBODY_KNOWN if claim is None else replace(users_of(claim), unnamed=not is_same)
    row = PreparedClaim(ref, Phase.STARTED, state.boot_id, devices, "", users)
    return Plan(ref, (MarkStarted(row),), devices)


def plan_reservation_of(claim: Claim, *, place: NodePlace, state: NodeState) -> Plan | None:
    """Plan for a claim with a CDI file that cannot be read, and that the kubelet does not list: reserve the devices of its allocation,
    except devices that another claim owns.

    The file shows that the claim was prepared here, so its containers may run. None if no device is left.
    """
    results = [one for one in own_results(claim, place.driver) if one.pool == place.pool]
    allocation = allocation_digest(claim, place.driver)
    names = [f"{place.cdi_kind}={cdi_name(claim.ref.uid, allocation, one)}" for one in results]
    devices = tuple(
        device
        for device in _devices_of(results, names)
        if device.admin_access or state.owners.get(device.key, claim.ref) == claim.ref
    )
    if not devices:
        return None
    row = PreparedClaim(claim.ref, Phase.STARTED, state.boot_id, devices, "", users_of(claim))
    return Plan(claim.ref, (MarkStarted(row),), devices)


def plan_described(
    uid: ClaimUid,
    text: str,
    held: Held | None,
    *,
    place: NodePlace,
    inventory: Inventory,
    state: NodeState,
) -> Plan | None:
    """Plan to reserve the devices of a claim of which only the CDI file is left, because its containers may still run. None if no
    device is left to reserve.

    Devices that have an owner in `state` are left out. If the claim is gone, the caller passes `held`, and the row becomes held,
    because the kubelet and the API server forget a pod whose containers still run. The row has no claim name, because the CDI file
    does not contain the name.
    """
    ref = ClaimRef("", "", uid)
    devices = tuple(
        PreparedDevice((), place.pool, device, (name,), uuid="", share_id=share)
        for name, variables in variables_by_device(text).items()
        for device, share in _described(uid, name, inventory)
        if variables.get(ADMIN_VARIABLE) != "true"
        and state.owners.get(DeviceKey(place.pool, device, share), ref) == ref
    )
    if not devices:
        return None
    started = MarkStarted(PreparedClaim(ref, Phase.STARTED, state.boot_id, devices, ""))
    steps = (started,) if held is None else (started, MarkHeld(uid, held))
    return Plan(ref, steps, devices)


def plan_name(row: PreparedClaim, claim: Claim, *, place: NodePlace) -> Plan:
    """Plan to write the claim's name and pods, from the API server, into a row of `plan_described`.

    From then on the row is like any other: the driver watches the claim, and releases its devices when the claim is not needed any
    more.
    """
    named = replace(row, ref=claim.ref, users=users_for(row, claim, place))
    return Plan(claim.ref, (MarkStarted(named),), row.devices)


def described_keys(
    uid: ClaimUid, text: str, *, place: NodePlace, inventory: Inventory
) -> list[DeviceKey]:
    """Return the devices and shares that a claim's CDI file describes."""
    return [
        DeviceKey(place.pool, device, share)
        for name in variables_by_device(text)
        for device, share in _described(uid, name, inventory)
    ]


def _described(
    uid: ClaimUid, name: str, inventory: Inventory
) -> Iterator[tuple[DeviceName, ShareId]]:
    """Split a full CDI name into device and share; yield nothing for a name of another form.

    A share ID is a UUID, and the name of a device may end in a UUID too. If the inventory does not show which of them the text
    ends in, both readings are yielded: no other claim may get the device or the share.
    """
    found = re.fullmatch(rf"[^=]+={re.escape(uid)}(?:-[0-9a-f]{{8}})?-(.+)", name)
    if not found:
        return
    whole, split = DeviceName(found[1]), _SHARE.fullmatch(found[1])
    is_share = split is not None and DeviceName(split[1]) in inventory.by_name
    if whole in inventory.by_name or not is_share:
        yield whole, NO_SHARE
    if split is not None and whole not in inventory.by_name:
        yield DeviceName(split[1]), ShareId(split[2])


def _named_devices(pod_devices: Collection[PodDevice]) -> tuple[PreparedDevice, ...]:
    """Return the devices as the kubelet lists them, without the names of requests, which the kubelet does not list."""
    return tuple(
        PreparedDevice((), one.pool, one.device, own_cdi_ids(one), uuid="", share_id=one.share_id)
        for one in sorted(set(pod_devices), key=lambda one: (one.device, one.share_id))
    )


def _devices_of(
    results: Sequence[DeviceRequestAllocationResult],
    names: Sequence[str],
) -> tuple[PreparedDevice, ...]:
    return tuple(
        PreparedDevice(
            request_names=(base_request(result),),
            pool=PoolName(result.pool),
            device=DeviceName(result.device),
            cdi_ids=(name,),
            uuid="",
            share_id=share_of(result),
            admin_access=bool(result.admin_access),
        )
        for result, name in zip(results, names, strict=True)
    )
