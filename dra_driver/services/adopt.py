# SPDX-License-Identifier: Apache-2.0
"""Claims of running pods that the state lost: reserved again by what this node knows, before anybody else gets their devices.

No API server is needed: it may be away, or restored to yesterday and giving the devices to others. What only it knows, the names
of the requests, is filled in when it knows the claim.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress

from dra_driver.errors import DriverError
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.ids import ClaimUid, DriverName
from dra_driver.model.plan import (
    Conflict,
    MarkPrepared,
    MarkStarted,
    Plan,
    Refusal,
    WriteCdiSpec,
)
from dra_driver.model.state import Held, HeldDevice, PreparedClaim, Unknown
from dra_driver.planning.adopt import (
    described_keys,
    plan_adoption,
    plan_adoption_of,
    plan_described,
    plan_reservation,
)
from dra_driver.planning.allocation import claim_uid_of, is_allocation_of
from dra_driver.planning.prepare import own_keys, plan_prepare, users_of
from dra_driver.services.execute import CALL_SECONDS
from dra_driver.services.parts import NodeParts
from dra_driver.services.recover import Documents, WholeStore
from dra_driver.services.release import HeldClaims, is_of

FORGOTTEN = "a lost state forgot it, and its claim is gone"


def take_up_held(
    parts: NodeParts,
    store: WholeStore,
    documents: Documents,
    held: HeldClaims,
    *,
    at_start: bool = False,
) -> Mapping[ClaimUid, str]:
    """Take up the claims of CDI files that no row knows and a pod holds; answers what failed, claim by claim.

    A start reserves what such files describe, whoever they may belong to, before it asks. One that finds no row, or held ones alone,
    also reserves what the kubelet names and no file describes; later the kubelet may just not have written down yet that it
    unprepared it. The kubelet is asked only if there is something to take up.
    """
    # Files before rows: whoever writes a file has committed its row before.
    files = documents()
    with store.reading() as state:
        rows = {claim.ref.uid: claim for claim in state.all_claims()}
    orphans = files.keys() - rows.keys()
    is_lost = at_start and all(row.held is not None for row in rows.values())
    devices = held() if orphans or is_lost else frozenset()
    if at_start:
        _reserve_all_described(parts, orphans)
    if isinstance(devices, Unknown):
        return {}
    driver = parts.place.driver
    failures: dict[ClaimUid, str] = {}
    named = _named(devices, driver) - orphans if is_lost else set()
    # Files first: they tell who owns a device, which the kubelet's word for admin access looks like too.
    for uid in (*sorted(orphans), *sorted(named)):
        mine = [device for device in devices if is_of(device, ClaimRef("", "", uid), driver)]
        if mine:
            ref = ClaimRef(mine[0].namespace, mine[0].claim_name, uid)
            try:
                reason = _take_up(parts, ref, mine, reserve=is_lost)
            except DriverError as error:
                reason = str(error)
            if reason:
                failures[uid] = not_taken_up(ref, reason)
    return failures


def _reserve_all_described(parts: NodeParts, orphans: Collection[ClaimUid]) -> None:
    """Nobody gets what these files describe before it is known whose they are."""
    for uid in sorted(orphans):
        until = parts.clock() + CALL_SECONDS
        # What cannot be reserved now is looked at again by the first sweep, which says what is wrong.
        with suppress(DriverError), parts.lock([f"claim-{uid}"], until, "reserving its devices"):
            _reserve_described(parts, uid, None)


def _named(devices: Collection[HeldDevice], driver: DriverName) -> set[ClaimUid]:
    found = (claim_uid_of(device) for device in devices if device.driver == driver)
    return {uid for uid in found if uid is not None}


def _take_up(
    parts: NodeParts, ref: ClaimRef, held: Collection[HeldDevice], *, reserve: bool
) -> str:
    until = parts.clock() + CALL_SECONDS
    with (
        parts.lock([f"claim-{ref.uid}"], until, "taking it up"),
        parts.store.transaction("recovered") as transaction,
    ):
        text = parts.cdi.read(ref.uid)
        state = transaction.read(uids=[ref.uid], keys=[device.key for device in held])
        row = state.claims.get(ref.uid)
        if (row is not None and not is_nameless(row)) or (text is None and not reserve):
            return ""  # the kubelet unprepared it, or prepared it, meanwhile
        plan: Plan | Refusal | None = (
            Refusal("its CDI file is gone; it is written again when the API server knows the claim")
            if text is None
            else plan_adoption(ref, held, text, boot_id=state.boot_id)
        )
        reason = plan.reason if isinstance(plan, Refusal) else ""
        if reason and reserve:
            plan = plan_reservation(ref, held, None, driver=parts.place.driver, state=state)
        if isinstance(plan, Plan):
            parts.executor.mark(transaction, plan.steps)
    return reason


def hold_described(parts: NodeParts, uid: ClaimUid) -> bool:
    """Take the CDI file of a claim away that no row, no pod and no API server knows; its devices are held. False where a row knows it.

    Raises DriverError.
    """
    until = parts.clock() + CALL_SECONDS
    with parts.lock([f"claim-{uid}"], until, "removing its CDI file"):
        if not _reserve_described(parts, uid, Held(FORGOTTEN, parts.now())):
            return False  # the kubelet prepared it meanwhile
        parts.cdi.remove(uid)
    return True


def _reserve_described(parts: NodeParts, uid: ClaimUid, held: Held | None) -> bool:
    inventory, place = parts.inventory(), parts.place
    with parts.store.transaction("recovered") as transaction:
        text = parts.cdi.read(uid) or ""
        keys = described_keys(uid, text, place=place, inventory=inventory)
        state = transaction.read(uids=[uid], keys=keys)
        row = state.claims.get(uid)
        if row is not None and not is_nameless(row):
            return False
        plan = plan_described(uid, text, held, place=place, inventory=inventory, state=state)
        if plan is not None:
            parts.executor.mark(transaction, plan.steps)
    return True


def is_nameless(claim: PreparedClaim) -> bool:
    """Whether the claim was reserved at a start for its CDI file alone, and nobody has said yet whose it is."""
    return not claim.ref.name and claim.held is None


def lacks_document(claim: PreparedClaim) -> bool:
    """Whether the claim was only reserved, since nobody knows what its containers were given."""
    return not claim.cdi_spec


def lacks_requests(claim: PreparedClaim) -> bool:
    """Whether the claim was taken up and is answered without the names of its requests."""
    return any(not device.request_names for device in claim.devices)


def name_requests(parts: NodeParts, claim: Claim) -> None:
    """Fill in the names of the requests and the pods, if the claim's devices are those that its containers have."""
    until = parts.clock() + CALL_SECONDS
    place = parts.place
    with (
        parts.lock([f"claim-{claim.ref.uid}"], until, "naming its requests"),
        parts.store.transaction("recovered") as transaction,
    ):
        state = transaction.read(uids=[claim.ref.uid])
        row = state.claims.get(claim.ref.uid)
        if row is None or row.held is not None or not lacks_requests(row):
            return
        if is_allocation_of(row, claim, place.driver, place.cdi_kind):
            plan = plan_adoption_of(claim, row.cdi_spec, place=place, boot_id=row.boot_id)
            if isinstance(plan, Plan):
                parts.executor.mark(transaction, plan.steps)
                transaction.add_users(claim.ref.uid, row.users)


def take_up_allocated(parts: NodeParts, claim: Claim, held: HeldClaims) -> str:
    """Take up an allocated claim that no row knows, and that has a file or a pod; answers why it could not be, or nothing.

    Nothing is configured: the devices may be in use. `held` asks the kubelet. Where none of the claim's pods runs and its file is gone,
    as after a boot, nothing stands that was set up: its devices are reserved, and the kubelet's next prepare does the rest. Where the
    file cannot be made anew, its devices are reserved too, and the next sweep tries again.
    """
    until = parts.clock() + CALL_SECONDS
    with parts.lock([f"claim-{claim.ref.uid}"], until, "taking it up"):
        # Asked before the transaction, for which everybody else waits.
        runs = parts.usage.may_run(users_of(claim))
        devices = held()
        if isinstance(devices, Unknown):
            return _take_up_allocated(parts, claim, (), devices.reason, runs=runs)
        mine = [one for one in devices if is_of(one, claim.ref, parts.place.driver)]
        return _take_up_allocated(parts, claim, mine, "", runs=runs)


def _take_up_allocated(
    parts: NodeParts, claim: Claim, held: Collection[HeldDevice], unknown: str, *, runs: bool
) -> str:
    uid, place = claim.ref.uid, parts.place
    with parts.store.transaction("recovered") as transaction:
        text = parts.cdi.read(uid)
        keys = [*own_keys(claim, place), *(device.key for device in held)]
        state = transaction.read(uids=[uid], keys=keys)
        row = state.claims.get(uid)
        if row is not None and not (lacks_document(row) and row.held is None):
            return ""  # the kubelet prepared it, or unprepares it, meanwhile
        plan = (
            None
            if text is None
            else plan_adoption_of(claim, text, place=place, boot_id=state.boot_id)
        )
        if held and not isinstance(plan, Plan):
            plan = _file_again(
                plan_prepare(
                    claim.ref, claim, place=place, inventory=parts.inventory(), state=state
                ),
                {name for device in held for name in device.cdi_ids},
                runs=runs,
            )
        if plan is None:
            # Without file and pod it was unprepared meanwhile.
            return f"the kubelet cannot tell whether a pod holds it: {unknown}" if unknown else ""
        if isinstance(plan, Refusal):
            reserved = plan_reservation(claim.ref, held, claim, driver=place.driver, state=state)
            if reserved is not None:
                parts.executor.mark(transaction, reserved.steps)
            return plan.reason
        parts.executor.mark(transaction, plan.steps)
        for step in plan.steps:
            if isinstance(step, WriteCdiSpec):
                # Under the row that is about to be committed; a file without one is found by the next start.
                parts.cdi.write(uid, step.text)
    return ""


def _file_again(
    decision: Plan | Refusal | Conflict, names: Collection[str], *, runs: bool
) -> Plan | Refusal:
    """Of what a preparation would do: the row, and the file if a container may run with what the kubelet names."""
    if isinstance(decision, Refusal):
        return decision
    if isinstance(decision, Conflict):
        return Refusal(f"its device {decision.device} is prepared for claim {decision.owner}")
    described = {name for device in decision.devices for name in device.cdi_ids}
    if not described.issuperset(names):
        return Refusal(
            f"its CDI file is gone or damaged, and the kubelet names {', '.join(sorted(names))}, which is not what it is allocated now; "
            f"delete the pod when it can be spared"
        )
    steps = (MarkStarted, WriteCdiSpec, MarkPrepared) if runs else (MarkStarted,)
    return Plan(
        decision.claim,
        tuple(step for step in decision.steps if isinstance(step, steps)),
        decision.devices,
    )


def not_taken_up(ref: ClaimRef, reason: str) -> str:
    """The sentence about a claim that stays unknown."""
    return f"claim {ref} is not in the state and cannot be taken up: {reason}"
