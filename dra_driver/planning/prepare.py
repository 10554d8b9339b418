# SPDX-License-Identifier: Apache-2.0
"""A claim, this node's devices and its state: what to do, or why not.

The steps reserve first (MarkStarted), act (ConfigureDevice, WriteCdiSpec) and say Prepared last. Whoever crashes after
MarkStarted leaves a row that names the devices and the CDI document, so that the next start knows what may exist.

Only this driver's results are looked at. A key (pool, device, share) has one owner; admin access neither owns nor
conflicts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dra_driver.model.cdi import CdiDevice, CdiSpec
from dra_driver.model.claim import AllocationResult, Claim, ClaimRef, DeviceConfig
from dra_driver.model.ids import DeviceKey, DriverName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import (
    ConfigureDevice,
    Conflict,
    Decision,
    MarkPrepared,
    MarkStarted,
    Plan,
    Refusal,
    WriteCdiSpec,
)
from dra_driver.model.state import NodeState, Phase, PreparedClaim, PreparedDevice
from dra_driver.planning.config import BadConfig, config_for
from dra_driver.planning.edits import container_edits

# The UID becomes part of a file's name and of CDI device names; the API server makes UUIDs.
_UID = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z-]{0,62}[0-9A-Za-z])?")


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Where decisions apply: the driver's name and this node's pool."""

    driver: DriverName
    pool: PoolName

    @property
    def cdi_kind(self) -> str:
        """Vendor and class of this driver's CDI documents."""
        return f"k8s.{self.driver}/claim"


def is_safe_uid(uid: str) -> bool:
    """Whether a claim's UID, or a share ID, can stand in names of files and variables."""
    return _UID.fullmatch(uid) is not None


def own_keys(claim: Claim, place: NodePlace) -> tuple[DeviceKey, ...]:
    """The keys whose owners `plan_prepare` has to know."""
    return tuple(result.key for result in claim.results or () if result.driver == place.driver)


def plan_prepare(
    requested: ClaimRef, claim: Claim, *, place: NodePlace, inventory: Inventory, state: NodeState
) -> Decision:
    """The plan for `claim`, the refusal that the pod's events will show, or the conflict to look into.

    `requested` is what the kubelet asked for, `claim` what the API server has under that name; `state` holds the
    owners of `own_keys`. A claim that is Prepared in this boot is the caller's to answer.
    """
    found = _own_results(requested, claim, place) or _missing_device(claim, place, inventory)
    if isinstance(found, Refusal):
        return found
    results = [result for result in claim.results or () if result.driver == place.driver]
    configured = _configure(results, claim, place, inventory)
    if isinstance(configured, Refusal):
        return configured
    for result in results:
        owner = state.owners.get(result.key)
        if owner is not None and owner.uid != requested.uid and not result.admin_access:
            return Conflict(requested, owner, result.device)
    return _steps(
        requested, results, configured, place=place, inventory=inventory, boot_id=state.boot_id
    )


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
    own = [result for result in claim.results if result.driver == place.driver]
    if not own:
        drivers = ", ".join(sorted({result.driver for result in claim.results})) or "none"
        return Refusal(f"{asked} has no device of driver {place.driver}, only of: {drivers}")
    return _unusable(asked, own)


def _unusable(asked: str, own: Sequence[AllocationResult]) -> Refusal | None:
    keys = [result.key for result in own]
    for key in keys:
        if key.share and not is_safe_uid(key.share):
            return Refusal(
                f"{asked}: share ID {key.share[:80]!a} of device {key.device} is none of the scheduler's; "
                f"delete and create the claim again"
            )
        if keys.count(key) > 1:
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
        if result.device not in inventory.by_name:
            return Refusal(
                f"device {result.device} of ResourceClaim {claim.ref.namespace}/{claim.ref.name} is not found on this node (any more); "
                f"`dra-driver devices` shows what is; delete the pod and the claim, so that the scheduler chooses another device"
            )
    return None


def _configure(
    results: Sequence[AllocationResult], claim: Claim, place: NodePlace, inventory: Inventory
) -> list[DeviceConfig] | Refusal:
    configs = [entry for entry in claim.configs if entry.driver == place.driver]
    decoded: list[DeviceConfig] = []
    for result in results:
        config = config_for(result.request, configs, inventory.config_kinds)
        if isinstance(config, BadConfig):
            return Refusal(
                f"ResourceClaim {claim.ref.namespace}/{claim.ref.name}: configuration refused at {config.path}: {config.found}; "
                f"correct it in the claim or its DeviceClass and create the claim again"
            )
        decoded.append(config)
    return decoded


def _steps(
    ref: ClaimRef,
    results: Sequence[AllocationResult],
    configs: Sequence[DeviceConfig],
    *,
    place: NodePlace,
    inventory: Inventory,
    boot_id: str,
) -> Plan:
    chosen = [
        (result, inventory.by_name[result.device], config)
        for result, config in zip(results, configs, strict=True)
    ]
    cdi_devices = [
        CdiDevice(_cdi_name(ref, result), container_edits(device, result, config))
        for result, device, config in chosen
    ]
    spec = CdiSpec(place.cdi_kind, tuple(cdi_devices))
    answers = tuple(
        PreparedDevice(
            request_names=(result.base_request,),
            pool=result.pool,
            device=result.device,
            cdi_ids=(spec.device_id(cdi_device),),
            uuid=device.uuid,
            share_id=result.share_id,
            admin_access=result.admin_access,
        )
        for (result, device, _), cdi_device in zip(chosen, cdi_devices, strict=True)
    )
    text = spec.to_json()
    started = PreparedClaim(ref, Phase.STARTED, boot_id, answers, text)
    settings = [
        ConfigureDevice(device, config)
        for result, device, config in chosen
        if not result.admin_access
    ]
    return Plan(
        ref,
        (MarkStarted(started), *settings, WriteCdiSpec(ref.uid, text), MarkPrepared(ref.uid)),
        answers,
    )


def _cdi_name(ref: ClaimRef, result: AllocationResult) -> str:
    # A claim's UID is never used again, so neither is the name: no runtime can meet a stale device under it.
    share = f"-{result.share_id}" if result.share_id else ""
    return f"{ref.uid}-{result.device}{share}"
