# SPDX-License-Identifier: Apache-2.0
"""Adopt claims of running pods that the state file does not know: reserve their devices again before another claim gets them.

This works without the API server, from the CDI files and the kubelet's pod-resources. The API server may not answer. Or its data
was restored from an older backup, and the scheduler gives the devices to other claims. Only the API server knows the names of the
claims' requests; the driver fills them in later.
"""

from collections.abc import Collection, Mapping
from contextlib import suppress

from dra_driver.errors import DriverError
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.ids import ClaimUid, DriverName
from dra_driver.model.plan import (
    ConfigureDevice,
    MarkHeld,
    OwnerConflict,
    Plan,
    Refusal,
)
from dra_driver.model.state import Held, PodDevice, PreparedClaim, Unknown, Users
from dra_driver.planning.adopt import (
    described_keys,
    free_of_owners,
    plan_adoption,
    plan_adoption_of,
    plan_described,
    plan_name,
    plan_reservation,
    plan_reservation_of,
    told_that_it_may_run,
)
from dra_driver.planning.allocation import claim_uid_of, is_allocation_of
from dra_driver.planning.prepare import own_keys, plan_prepare, users_of
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.execute import CALL_SECONDS
from dra_driver.services.finish import finish, finish_late
from dra_driver.services.parts import NodeParts, Transaction
from dra_driver.services.recover import Documents, WholeStore
from dra_driver.services.release import AskPodDevices, is_of

FORGOTTEN = "its row was lost with an earlier state file, and its claim is gone"


def take_up_pod_claims(
    parts: NodeParts,
    store: WholeStore,
    documents: Documents,
    pod_devices: AskPodDevices,
    *,
    at_start: bool = False,
) -> Mapping[ClaimUid, str]:
    """Adopt the claims of CDI files without a row, if the kubelet lists a pod with them. Returns a message for each failure.

    At a start (`at_start`) the driver first reserves all devices that such files describe, and asks the kubelet afterwards. If
    the state has no row, or only held rows, it was lost: then a start also reserves devices that the kubelet lists and no file
    describes. After the start that would be wrong, because the kubelet may still list a claim that it has just unprepared. The
    driver asks the kubelet only if a claim may have to be adopted.
    """
    # List files before rows: a row is committed before its file is written, so a new file is never without a row here.
    files = documents()
    with store.reading() as state:
        rows = {claim.ref.uid: claim for claim in state.all_claims()}
    orphans = files.keys() - rows.keys()
    is_lost = at_start and all(row.held is not None for row in rows.values())
    devices = pod_devices() if orphans or is_lost else frozenset()
    if at_start:
        _reserve_all_described(parts, orphans)
    if isinstance(devices, Unknown):
        return {}
    driver = parts.place.driver
    failures: dict[ClaimUid, str] = {}
    named = _named(devices, driver) - orphans if is_lost else set()
    # Claims with a file first: only the file shows whether a claim owns a device or has admin access. The kubelet lists both alike.
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
    """Reserve the devices that these files describe, so that no other claim gets them before their claims are known."""
    for uid in sorted(orphans):
        until = parts.clock() + CALL_SECONDS
        # If this fails, the first sweep tries again and reports the reason.
        with suppress(DriverError), parts.lock([f"claim-{uid}"], until, "reserving its devices"):
            _reserve_described(parts, uid, None)


def _named(devices: Collection[PodDevice], driver: DriverName) -> set[ClaimUid]:
    found = (claim_uid_of(device) for device in devices if device.driver == driver)
    return {uid for uid in found if uid is not None}


def _take_up(
    parts: NodeParts, ref: ClaimRef, pod_devices: Collection[PodDevice], *, reserve: bool
) -> str:
    until = parts.clock() + CALL_SECONDS
    with (
        parts.lock([f"claim-{ref.uid}"], until, "taking it up"),
        parts.store.transaction("recovered") as transaction,
    ):
        text = parts.cdi.read(ref.uid)
        state = transaction.read(uids=[ref.uid], keys=[device.key for device in pod_devices])
        row = state.claims.get(ref.uid)
        if (row is not None and not is_nameless(row)) or (text is None and not reserve):
            return ""  # the kubelet has unprepared or prepared the claim in the meantime
        adoption = (
            Refusal("its CDI file is gone; it is written again when the API server knows the claim")
            if text is None
            else plan_adoption(ref, pod_devices, text, boot_id=state.boot_id)
        )
        plan: Plan | Refusal | None = free_of_owners(adoption, state)
        reason = plan.reason if isinstance(plan, Refusal) else ""
        if reason and (reserve or isinstance(adoption, Plan)):
            plan = plan_reservation(ref, pod_devices, None, driver=parts.place.driver, state=state)
        if isinstance(plan, Plan):
            parts.executor.mark(transaction, plan.steps)
    return reason


def hold_described(parts: NodeParts, uid: ClaimUid) -> bool:
    """Remove a CDI file that has no row, no pod and no claim, and hold its devices: containers may still use them. Returns False
    if the claim was prepared in the meantime.

    The file may be gone already, if the driver reserved its devices at a start. Raises DriverError.
    """
    until = parts.clock() + CALL_SECONDS
    with parts.lock([f"claim-{uid}"], until, "removing its CDI file"):
        if not _reserve_described(parts, uid, Held(FORGOTTEN, parts.now())):
            return False  # the kubelet has prepared the claim in the meantime
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
        elif row is not None and held is not None:
            # Somebody removed the file since the start. The row still names the devices that it described.
            parts.executor.mark(transaction, [MarkHeld(uid, held)])
    return True


def is_nameless(claim: PreparedClaim) -> bool:
    """Whether the driver reserved this claim at a start because of a CDI file, and does not know the claim's name yet."""
    return not claim.ref.name and claim.held is None


def lacks_document(claim: PreparedClaim) -> bool:
    """Whether the claim's devices are only reserved: its CDI file is lost, so the row has no text for it."""
    return not claim.cdi_spec


def lacks_requests(claim: PreparedClaim) -> bool:
    """Whether the names of the claim's requests are missing. The driver answers the kubelet all the same: a device without names
    belongs to all requests.
    """
    return any(not device.request_names for device in claim.devices)


def name_requests(parts: NodeParts, claim: Claim) -> None:
    """Write the names of the claim's requests and its pods into the row, if the row has the claim's current allocation."""
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


def take_up_allocated(parts: NodeParts, claim: Claim, pod_devices: AskPodDevices) -> str:
    """Adopt an allocated claim without a row that has a CDI file or a pod. Returns why this failed, or an empty text.

    The backends change no device while it may be in use. `pod_devices` asks the kubelet. If none of the claim's pods runs and its
    CDI file is gone, the driver prepares the claim anew, because the kubelet does not call again for a claim that it regards as
    prepared. If the driver cannot write the file again, it only reserves the devices, and the next sweep tries again.
    """
    until = parts.clock() + CALL_SECONDS
    with ClaimLocks(parts.lock) as locks:
        missed = locks.take([claim.ref.uid], until=until, purpose="taking it up")
        if missed:
            raise missed[claim.ref.uid]
        # Before the transaction: all other calls wait while a transaction is open.
        parts.learn(parts.inventory())
        runs = parts.usage.may_run(_all_users(parts, claim))
        devices = pod_devices()
        if isinstance(devices, Unknown):
            found = _take_up_allocated(parts, claim, (), devices.reason, runs=runs)
        else:
            mine = [one for one in devices if is_of(one, claim.ref, parts.place.driver)]
            found = _take_up_allocated(parts, claim, mine, "", runs=runs)
        if isinstance(found, str):
            return found
        late = finish_late(parts, locks, until, "recovered")
        result = parts.executor.work([found], until=until, late=late)[claim.ref.uid]
        error = finish(parts, [(found, result)], until, "recovered")[claim.ref.uid]
        return "" if error is None else str(error)


def _take_up_allocated(
    parts: NodeParts, claim: Claim, pod_devices: Collection[PodDevice], unknown: str, *, runs: bool
) -> str | Plan:
    """Returns why this failed, an empty text, or a plan whose work is to be done: its devices are reserved."""
    uid, place = claim.ref.uid, parts.place
    with parts.store.transaction("recovered") as transaction:
        text = parts.cdi.read(uid)
        keys = [*own_keys(claim, place), *(device.key for device in pod_devices)]
        state = transaction.read(uids=[uid], keys=keys)
        row = state.claims.get(uid)
        if row is not None and not (lacks_document(row) and row.held is None):
            return ""  # the kubelet has prepared the claim in the meantime, or unprepares it
        plan = (
            None
            if text is None
            else free_of_owners(
                plan_adoption_of(claim, text, place=place, boot_id=state.boot_id), state
            )
        )
        if pod_devices and not isinstance(plan, Plan):
            plan = _file_again(
                plan_prepare(
                    claim.ref, claim, place=place, inventory=parts.inventory(), state=state
                ),
                {name for device in pod_devices for name in device.cdi_ids},
                runs=runs and not _was_begun(row, text),
            )
        if plan is None and unknown:
            return f"the kubelet cannot tell whether a pod uses it: {unknown}"
        if plan is None:
            # Neither file nor pod: the kubelet has unprepared the claim in the meantime. Or somebody removed the file since the start.
            if row is not None and is_nameless(row):
                parts.executor.mark(transaction, plan_name(row, claim, place=place).steps)
            return ""
        if isinstance(plan, Refusal):
            reserved = (
                plan_reservation(claim.ref, pod_devices, claim, driver=place.driver, state=state)
                if pod_devices
                # The devices that a file described stay reserved: they may be those of an earlier allocation, and in use.
                else plan_name(row, claim, place=place)
                if row is not None and is_nameless(row)
                else plan_reservation_of(claim, place=place, state=state)
            )
            if reserved is not None:
                parts.executor.mark(transaction, reserved.steps)
            return plan.reason
        return _begin(parts, transaction, plan)


def _all_users(parts: NodeParts, claim: Claim) -> Users:
    """The pods of the claim, and those that only its row knows: they may run, although the API server does not have them any more."""
    row = parts.row(claim.ref.uid)
    return users_of(claim) if row is None else row.users.joined(users_of(claim))


def _was_begun(row: PreparedClaim | None, text: str | None) -> bool:
    """Whether an earlier `_begin` reserved the devices and did not finish: then they may be half set up, and no container has them,
    because the claim has had no CDI file since.

    Only a row of a plan to prepare has leases; a row of devices that may be in use has none before it is Prepared.
    """
    return text is None and row is not None and row.leases is not None


def _begin(parts: NodeParts, transaction: Transaction, plan: Plan) -> str | Plan:
    """Carry out a plan without devices to configure, and return an empty text. Of another plan only reserve the devices: until the
    work is done, each sweep tries again.
    """
    parts.executor.mark(transaction, plan.steps)
    return plan if any(isinstance(step, ConfigureDevice) for step in plan.steps) else ""


def _file_again(
    decision: Plan | Refusal | OwnerConflict, names: Collection[str], *, runs: bool
) -> Plan | Refusal:
    """Tell the backends if a container may run with the claim (`runs`): then they change nothing and only return the edits.

    `names` are the CDI device IDs that the kubelet lists. Returns a Refusal if the plan does not have all of them.
    """
    if isinstance(decision, Refusal):
        return decision
    if isinstance(decision, OwnerConflict):
        return Refusal(f"its device {decision.device} is prepared for claim {decision.owner}")
    described = {name for device in decision.devices for name in device.cdi_ids}
    if not described.issuperset(names):
        return Refusal(
            f"its CDI file is gone or damaged, and the kubelet names {', '.join(sorted(names))}, which is not what it is allocated now; "
            f"delete the pod when it can be spared"
        )
    return told_that_it_may_run(decision) if runs else decision


def not_taken_up(ref: ClaimRef, reason: str) -> str:
    """Return the message for a claim that could not be adopted."""
    return f"claim {ref} is not in the state and cannot be taken up: {reason}"
