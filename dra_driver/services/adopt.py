# SPDX-License-Identifier: Apache-2.0
"""Claims of running pods that the state lost: reserved again by what this node knows, before anybody else gets their devices.

No API server is needed: it may be away, or restored to yesterday and giving the devices to others. What only it knows, the names
of the requests, is filled in when it knows the claim.
"""

from collections.abc import Collection, Mapping

from dra_driver.errors import DriverError
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import MarkPrepared, MarkStarted, Plan, Refusal
from dra_driver.model.state import HeldDevice, PreparedClaim, Unknown
from dra_driver.planning.adopt import plan_adoption
from dra_driver.planning.prepare import own_keys, plan_prepare
from dra_driver.services.execute import CALL_SECONDS
from dra_driver.services.prepare import NodeParts
from dra_driver.services.recover import Documents, WholeStore
from dra_driver.services.release import HeldClaims, is_of


def take_up_held(
    parts: NodeParts, store: WholeStore, documents: Documents, held: HeldClaims
) -> Mapping[ClaimUid, str]:
    """Take up the claims of CDI files that no row knows and a pod holds; answers what failed, claim by claim.

    The kubelet is asked only if there are such files.
    """
    # Files before rows: whoever writes a file has committed its row before.
    files = documents()
    with store.reading() as state:
        orphans = files.keys() - {claim.ref.uid for claim in state.all_claims()}
    devices = held() if orphans else frozenset()
    if isinstance(devices, Unknown):
        return {}
    failures: dict[ClaimUid, str] = {}
    for uid in sorted(orphans):
        mine = [
            device for device in devices if is_of(device, ClaimRef("", "", uid), parts.place.driver)
        ]
        if mine:
            ref = ClaimRef(mine[0].namespace, mine[0].claim_name, uid)
            try:
                reason = _take_up(parts, ref, mine)
            except DriverError as error:
                reason = str(error)
            if reason:
                failures[uid] = not_taken_up(ref, reason)
    return failures


def _take_up(parts: NodeParts, ref: ClaimRef, held: Collection[HeldDevice]) -> str:
    until = parts.clock() + CALL_SECONDS
    with (
        parts.lock([f"claim-{ref.uid}"], until, "taking it up"),
        parts.store.transaction("recovered") as transaction,
    ):
        text = parts.cdi.read(ref.uid)
        state = transaction.read(uids=[ref.uid])
        if text is None or ref.uid in state.claims:
            return ""  # the kubelet unprepared it, or prepared it, meanwhile
        plan = plan_adoption(ref, held, text, boot_id=state.boot_id)
        if isinstance(plan, Refusal):
            return plan.reason
        parts.executor.mark(transaction, plan.steps)
    return ""


def lacks_requests(claim: PreparedClaim) -> bool:
    """Whether the claim was taken up and is answered without the names of its requests."""
    return any(not device.request_names for device in claim.devices)


def name_requests(parts: NodeParts, claim: Claim) -> None:
    """Fill in the names of the requests, if the claim's devices and edits are those that its containers have."""
    until = parts.clock() + CALL_SECONDS
    with (
        parts.lock([f"claim-{claim.ref.uid}"], until, "naming its requests"),
        parts.store.transaction("recovered") as transaction,
    ):
        keys = own_keys(claim, parts.place)
        state = transaction.read(uids=[claim.ref.uid], keys=keys)
        row = state.claims.get(claim.ref.uid)
        plan = plan_prepare(
            claim.ref, claim, place=parts.place, inventory=parts.inventory(), state=state
        )
        if row is None or not lacks_requests(row) or not isinstance(plan, Plan):
            return
        marks = [step for step in plan.steps if isinstance(step, MarkStarted | MarkPrepared)]
        if any(
            step.claim.cdi_spec == row.cdi_spec for step in marks if isinstance(step, MarkStarted)
        ):
            parts.executor.mark(transaction, marks)


def not_taken_up(ref: ClaimRef, reason: str) -> str:
    """The sentence about a claim that stays unknown."""
    return f"claim {ref} is not in the state and cannot be taken up: {reason}"
