# SPDX-License-Identifier: Apache-2.0
"""Plan the preparation of a claim from the claim, this node's devices and its state; or find why the claim is refused.

The steps reserve the devices and store their leases (MarkStarted), then set them up (ConfigureDevice). If the process dies after
MarkStarted, the row has the leases. So at the next start the driver knows what it may have to undo. What the backends return decides
the rest of the plan: `dra_driver.planning.finish`.

The plan uses only this driver's results. A device has one owner, or one owner for each share. A claim with admin access owns no
device and causes no conflict. If the row was made for another allocation of the claim, the driver first releases what it
prepared for that allocation, and then plans the claim again.
"""

import re
from collections import Counter, deque
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult
from dra_driver.model.claim import (
    Claim,
    ClaimRef,
    DeviceConfig,
    base_request,
    key_of,
    share_of,
)
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceKey, DeviceName, DriverName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Lease
from dra_driver.model.plan import (
    ConfigureDevice,
    Decision,
    MarkStarted,
    OwnerConflict,
    Plan,
    Refusal,
    Step,
)
from dra_driver.model.state import NodeState, Phase, PreparedClaim, PreparedDevice, Users
from dra_driver.model.vocabulary import PCI_BUS_ID
from dra_driver.planning.allocation import (
    allocation_digest,
    cdi_name,
    is_allocation_of,
    own_results,
)
from dra_driver.planning.config import BadConfig, config_for
from dra_driver.planning.shares import too_much

# The UID becomes part of a file's name and of CDI device names; the API server makes UUIDs.
_UID = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z-]{0,62}[0-9A-Za-z])?")


class NodePlace(Struct, frozen=True):
    """The driver's name and this node's pool. `metadata_root` is the directory of the metadata files; "" if claims get none."""

    driver: DriverName
    pool: PoolName
    metadata_root: str = ""

    @property
    def cdi_kind(self) -> str:
        """Vendor and class of this driver's CDI files."""
        return f"k8s.{self.driver}/claim"


def is_safe_uid(uid: str) -> bool:
    """Whether a claim's UID, or a share ID, may be part of the names of files and variables."""
    return _UID.fullmatch(uid) is not None


def own_keys(claim: Claim, place: NodePlace) -> tuple[DeviceKey, ...]:
    """Return the devices and shares whose owners `plan_prepare` needs."""
    return tuple(key_of(result) for result in own_results(claim, place.driver))


def users_of(claim: Claim) -> Users:
    """Return the pods in the claim's status.reservedFor, and the pod for which it was made from a template, even if not reserved."""
    sole = claim.sole_pod
    pods = claim.reserved_for if sole is None else (sole, *claim.reserved_for)
    return Users(tuple(dict.fromkeys(pods)), sole is not None, claim.unnamed_users)


def users_for(row: PreparedClaim, claim: Claim, place: NodePlace) -> Users:
    """Return the claim's pods for its row. `unnamed` is set if the row has no pods, because the state was lost, and the claim may not
    name all pods that used it.

    A claim loses its pods' names when its status.reservedFor becomes empty, and when it is allocated again.
    """
    users = users_of(claim)
    if row.users.pods is not None or users.sole:
        return users
    told = claim.reserved_for and is_allocation_of(row, claim, place.driver, place.cdi_kind)
    return users if told else replace(users, unnamed=True)


def plan_prepare(
    requested: ClaimRef, claim: Claim, *, place: NodePlace, inventory: Inventory, state: NodeState
) -> Decision:
    """Return a plan for `claim`, a refusal that the pod's events will show, or a conflict with the device's owner.

    `requested` is the claim that the kubelet named, `claim` is the claim that the API server has under that name. `state` has the
    claim's row, if it exists, the owners of `own_keys`, and what others consume of them. The caller itself answers claims that are Prepared in this boot.
    """
    found = _own_results(requested, claim, place) or _missing_device(claim, place, inventory)
    if isinstance(found, Refusal):
        return found
    if claim.unusable:
        return Refusal(f"cannot read claim {requested}: {claim.unusable}")
    results = _in_order(own_results(claim, place.driver), inventory)
    configured = _configure(results, claim, place, inventory)
    if isinstance(configured, Refusal):
        return configured
    row = state.claims.get(requested.uid)
    if row is not None and not is_allocation_of(row, claim, place.driver, place.cdi_kind):
        return OwnerConflict(requested, row.ref, row.devices[0].device)
    for result in results:
        owner = state.owners.get(key_of(result))
        if owner is not None and owner.uid != requested.uid and not result.admin_access:
            return OwnerConflict(requested, owner, DeviceName(result.device))
    refusal = _same_hardware(results, claim, inventory) or too_much(
        claim, results, inventory=inventory, state=state
    )
    return refusal or _steps(
        claim, results, configured, place=place, inventory=inventory, state=state
    )


def _in_order(
    results: Sequence[DeviceRequestAllocationResult], inventory: Inventory
) -> Sequence[DeviceRequestAllocationResult]:
    """Return the results in the order in which a container gets the devices: those of each request by their PCI addresses.

    The scheduler may have chosen them in another order. The requests keep their order, because their configurations are counted with
    them, and equal claims give equal containers.
    """

    def key(result: DeviceRequestAllocationResult) -> tuple[int, str]:
        address = _pci_address(inventory.by_name[DeviceName(result.device)])
        return len(address), address

    waiting: dict[str, deque[DeviceRequestAllocationResult]] = {}
    for result in sorted(results, key=key):
        waiting.setdefault(result.request, deque()).append(result)
    return [waiting[result.request].popleft() for result in results]


def _pci_address(device: AllocatableDevice) -> str:
    found = (device.api.attributes or {}).get(PCI_BUS_ID)
    return (found.string_value or "").lower() if found is not None else ""


def _own_results(requested: ClaimRef, claim: Claim, place: NodePlace) -> Refusal | None:
    asked = f"ResourceClaim {requested.namespace}/{requested.name}"
    if not is_safe_uid(requested.uid):
        return Refusal(
            f"{asked}: uid {requested.uid[:80]!a} is no UID of the API server; nothing was done"
        )
    if claim.ref.uid != requested.uid:
        return Refusal(
            f"{asked} was replaced: the pod was scheduled with uid {requested.uid}, the API server has {claim.ref.uid}; "
            f"delete the pod, its successor gets the new claim"
        )
    if claim.results is None:
        return Refusal(
            f"{asked} is not allocated; the scheduler allocates it again, delete the pod if it stays so"
        )
    own = own_results(claim, place.driver)
    if not own:
        drivers = ", ".join(sorted({result.driver for result in claim.results})) or "none"
        return Refusal(f"{asked} has no device of driver {place.driver}, only of: {drivers}")
    if not claim.unnamed_users and not users_of(claim).pods:
        # The kubelet checks this before it calls. Without pods the driver could not prove later that the claim's pods have ended.
        return Refusal(
            f"{asked} is reserved for no pod (any more); delete the pod if it stays so, its successor is scheduled anew"
        )
    return _unusable(asked, own)


def _unusable(asked: str, own: Sequence[DeviceRequestAllocationResult]) -> Refusal | None:
    keys = [key_of(result) for result in own]
    times = Counter(keys)  # a container of the device plugin API may have a thousand
    whole = {(key.pool, key.device) for key in keys if not key.share}
    for key in keys:
        if key.share and not is_safe_uid(key.share):
            return Refusal(
                f"{asked}: share ID {key.share[:80]!a} of device {key.device} is no share ID that the scheduler makes; "
                f"delete and create the claim again"
            )
        if times[key] > 1 or (key.share and (key.pool, key.device) in whole):
            return Refusal(f"{asked} names device {key} twice; delete and create the claim again")
    return None


def _missing_device(claim: Claim, place: NodePlace, inventory: Inventory) -> Refusal | None:
    for result in claim.results or ():
        if result.driver != place.driver:
            continue
        if result.pool != place.pool:
            return Refusal(
                f"ResourceClaim {claim.ref.namespace}/{claim.ref.name} is allocated from pool {result.pool}, "
                f"this node's pool is {place.pool}; the pod cannot run here, delete it"
            )
        name = DeviceName(result.device)
        if inventory.may_exist(name):
            return Refusal(
                f"device {name} of ResourceClaim {claim.ref.namespace}/{claim.ref.name} is not known yet: since the driver "
                f"started, no scan of backend {', '.join(inventory.unanswered)} has succeeded, see the driver's log; the kubelet tries "
                f"again"
            )
        device = inventory.by_name.get(name)
        if device is not None and result.share_id and not device.api.allow_multiple_allocations:
            return Refusal(
                f"ResourceClaim {claim.ref.namespace}/{claim.ref.name} has share {result.share_id[:80]} of device {result.device}, which "
                f"cannot be shared (any more); delete the pod and the claim, so that the scheduler allocates it again"
            )
        if device is None:
            return Refusal(
                f"device {result.device} of ResourceClaim {claim.ref.namespace}/{claim.ref.name} is not found on this node (any more); "
                f"`dra-driver devices` shows what is; delete the pod and the claim, so that the scheduler chooses another device"
            )
    return None


def _same_hardware(
    results: Sequence[DeviceRequestAllocationResult], claim: Claim, inventory: Inventory
) -> Refusal | None:
    """Refuse a claim for several devices that are the same hardware: the scheduler did not know their counters."""
    taken: dict[tuple[str, str], DeviceName] = {}
    for name in dict.fromkeys(DeviceName(one.device) for one in results if not one.admin_access):
        resource = inventory.by_name[name].resource
        others = [
            other
            for (parent, part), other in taken.items()
            if parent == resource.parent and (part in ("", *resource.parts) or not resource.parts)
        ]
        if others:
            return Refusal(
                f"ResourceClaim {claim.ref.namespace}/{claim.ref.name} has devices {others[0]} and {name}, which are the same hardware; "
                f"delete the pod and the claim, so that the scheduler allocates it again"
            )
        taken |= dict.fromkeys(((resource.parent, part) for part in resource.parts or ("",)), name)
    return None


def _configure(
    results: Sequence[DeviceRequestAllocationResult],
    claim: Claim,
    place: NodePlace,
    inventory: Inventory,
) -> list[DeviceConfig] | Refusal:
    configs = [entry for entry in claim.configs if entry.driver == place.driver]
    others = inventory.config_kinds() if configs else ()
    decoded: list[DeviceConfig] = []
    for result in results:
        device = inventory.by_name[DeviceName(result.device)]
        named = f'device "{device.name}"' + (f' of type "{device.type}"' if device.type else "")
        config = config_for(result.request, configs, device.reads, others, device=named)
        if isinstance(config, BadConfig):
            return Refusal(
                f"ResourceClaim {claim.ref.namespace}/{claim.ref.name}: configuration refused at {config}; "
                f"correct it in the claim or its DeviceClass and create the claim again"
            )
        decoded.append(config)
    return decoded


def _steps(
    claim: Claim,
    results: Sequence[DeviceRequestAllocationResult],
    configs: Sequence[DeviceConfig],
    *,
    place: NodePlace,
    inventory: Inventory,
    state: NodeState,
) -> Plan:
    ref = claim.ref
    allocation = allocation_digest(claim, place.driver)
    chosen = [(result, inventory.by_name[DeviceName(result.device)]) for result in results]
    leases = tuple(
        _lease(ref, index, result, device, config)
        for index, ((result, device), config) in enumerate(zip(chosen, configs, strict=True))
    )
    answers = tuple(
        PreparedDevice(
            request_names=(base_request(result),),
            pool=PoolName(result.pool),
            device=DeviceName(result.device),
            cdi_ids=(f"{place.cdi_kind}={cdi_name(ref.uid, allocation, result)}",),
            uuid=device.uuid,
            share_id=share_of(result),
            admin_access=bool(result.admin_access),
        )
        for result, device in chosen
    )
    users = _known_users(ref, state).joined(users_of(claim))
    started = PreparedClaim(
        ref, Phase.STARTED, state.boot_id, answers, cdi_spec="", users=users, leases=leases
    )
    steps: tuple[Step, ...] = (MarkStarted(started), *map(ConfigureDevice, leases))
    return Plan(ref, steps, answers, claim.pod_claim_name)


def _lease(
    ref: ClaimRef,
    index: int,
    result: DeviceRequestAllocationResult,
    device: AllocatableDevice,
    config: DeviceConfig,
) -> Lease:
    resource = device.resource
    return Lease(
        claim_uid=ref.uid,
        request=result.request,
        device=device.name,
        index=index,
        share_id=share_of(result),
        consumed_capacity={
            name: str(size) for name, size in (result.consumed_capacity or {}).items()
        },
        admin_access=bool(result.admin_access),
        config=config,
        backend=device.backend,
        parent=resource.parent,
        parts=resource.parts,
        profile=resource.profile,
    )


def _known_users(ref: ClaimRef, state: NodeState) -> Users:
    """Return the pods that used the same allocation before in this boot: their containers may still run."""
    row = state.claims.get(ref.uid)
    return Users() if row is None or row.boot_id != state.boot_id else row.users
