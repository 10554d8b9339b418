# SPDX-License-Identifier: Apache-2.0
"""NodePrepareResources: from the kubelet's list of claims to one answer each.

1. A claim that is Prepared in this boot is answered from the state; its CDI file is checked. No API call.
2. The others are fetched from the API server in parallel, before anything is locked or reserved.
3. One transaction decides and reserves for all of them.
4. The work is done, claim by claim.
5. One transaction says Prepared for those that succeeded.

A claim that fails costs nothing but itself.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from dra_driver.errors import DriverError, Temporary
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import ClaimPrepared, ClaimUnprepared, Observer, ignore
from dra_driver.model.ids import ClaimUid, DeviceKey
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import (
    Conflict,
    Decision,
    Forget,
    MarkPrepared,
    MarkStartedAgain,
    Plan,
    Refusal,
    Step,
)
from dra_driver.model.state import NodeState, Phase, PreparedClaim, PreparedDevice
from dra_driver.planning.prepare import NodePlace, is_safe_uid, own_keys, plan_prepare
from dra_driver.planning.unprepare import plan_unprepare
from dra_driver.services.execute import CALL_SECONDS, CdiFiles, Executor, Marks, patiently
from dra_driver.services.release import Releasable

Answer = tuple[PreparedDevice, ...] | Refusal


class Transaction(Marks, Protocol):
    """What prepare needs of an open transaction."""

    def read(self, *, uids: Sequence[ClaimUid] = (), keys: Sequence[DeviceKey] = ()) -> NodeState:
        """Claims and owners by key."""


class Store(Protocol):
    """What prepare needs of the state."""

    def transaction(self, commit: str) -> AbstractContextManager[Transaction]:
        """One transaction."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """Read only."""


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What prepare, unprepare and recovery work on."""

    place: NodePlace
    inventory: Callable[[], Inventory]
    store: Store
    cdi: CdiFiles
    executor: Executor
    releasable: Releasable
    lock: Callable[[Sequence[str], float, str], AbstractContextManager[None]]
    observe: Observer = ignore
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class PrepareClaims:
    """Call it with the kubelet's claims. Safe to call from several threads; calls for one claim wait for each other."""

    def __init__(
        self, parts: NodeParts, fetch: Callable[[ClaimRef], Claim], pool: ThreadPoolExecutor
    ) -> None:
        self._parts = parts
        self._fetch = fetch
        self._pool = pool

    def __call__(
        self, refs: Sequence[ClaimRef], *, until: float | None = None
    ) -> Mapping[ClaimUid, Answer]:
        """One answer for each claim: its devices, or the reason for the pod's events."""
        begun = self._parts.clock()
        latest = begun + CALL_SECONDS
        until = latest if until is None else min(until, latest)
        safe = [ref for ref in refs if is_safe_uid(ref.uid)]
        answers: dict[ClaimUid, Answer] = {
            ref.uid: Refusal(
                f"claim {ref.namespace}/{ref.name}: uid {ref.uid[:80]!a} is none of the API server's"
            )
            for ref in refs
            if ref not in safe
        }
        try:
            with self._parts.lock([f"claim-{ref.uid}" for ref in safe], until, "preparing"):
                for found in self._prepare(safe, until):
                    answers |= found
        except DriverError as error:
            answers |= {
                ref.uid: Refusal(f"cannot prepare claim {ref}: {error}")
                for ref in safe
                if ref.uid not in answers
            }
        seconds = self._parts.clock() - begun
        for ref in refs:
            answer = answers[ref.uid]
            self._parts.observe(
                ClaimPrepared(ref, seconds, answer.reason if isinstance(answer, Refusal) else "")
            )
        return answers

    def _prepare(self, refs: Sequence[ClaimRef], until: float) -> Iterator[dict[ClaimUid, Answer]]:
        """Answers as they become known, so that a failure later on takes none of them back."""
        prepared = self._answer_prepared(refs)
        yield prepared
        fetched = self._fetch_all([ref for ref in refs if ref.uid not in prepared], until)
        yield {ref.uid: claim for ref, claim in fetched.items() if isinstance(claim, Refusal)}
        decisions = self._reserve(
            {ref: claim for ref, claim in fetched.items() if isinstance(claim, Claim)}
        )
        yield {uid: found for uid, found in decisions.items() if isinstance(found, Refusal)}
        yield self._finish(
            [found for found in decisions.values() if isinstance(found, Plan)], until
        )

    def _answer_prepared(self, refs: Sequence[ClaimRef]) -> dict[ClaimUid, Answer]:
        with self._parts.store.reading() as state:
            node = state.read(uids=[ref.uid for ref in refs])
        answers: dict[ClaimUid, Answer] = {}
        for uid, claim in node.claims.items():
            if claim.phase is Phase.PREPARED and claim.boot_id == node.boot_id:
                answers[uid] = self._repeat(claim)
            elif not self._parts.executor.remembers(uid):
                # What an earlier try wrote must not vouch, after a crash, for what this one only half did.
                self._parts.cdi.remove(uid)
        return answers

    def _repeat(self, claim: PreparedClaim) -> Answer:
        inventory = self._parts.inventory()
        for device in claim.devices:
            if inventory.scanned and device.device not in inventory.by_name:
                return Refusal(
                    f"device {device.device} of claim {claim.ref} was prepared and has vanished from this node; "
                    f"see `dra-driver devices`; delete the pod and the claim, so that the scheduler chooses another device"
                )
        try:
            self._parts.cdi.write(claim.ref.uid, claim.cdi_spec)
        except DriverError as error:
            return Refusal(f"cannot prepare claim {claim.ref}: {error}")
        return claim.devices

    def _fetch_all(
        self, refs: Sequence[ClaimRef], until: float
    ) -> Mapping[ClaimRef, Claim | Refusal]:
        """Side by side. This thread takes part, so that answers that come at once need no other one."""
        waiting = deque(refs)
        found: dict[ClaimRef, Claim | Refusal] = {}

        def fetch() -> None:
            while True:
                try:
                    ref = waiting.popleft()
                except IndexError:
                    return  # others took the rest
                found[ref] = self._fetch_one(ref, until)

        others = [self._pool.submit(fetch) for _ in refs[1:]]
        fetch()
        for other in others:
            if not other.cancel():
                other.result()
        return found

    def _fetch_one(self, ref: ClaimRef, until: float) -> Claim | Refusal:
        parts = self._parts
        try:
            return patiently(
                partial(self._fetch, ref), until=until, clock=parts.clock, sleep=parts.sleep
            )
        except DriverError as error:
            return Refusal(f"cannot read claim {ref}: {error}")

    def _reserve(self, claims: Mapping[ClaimRef, Claim]) -> Mapping[ClaimUid, Plan | Refusal]:
        """Decide and reserve; a conflict is looked into outside the transaction, then everything is decided again."""
        judged: dict[ClaimUid, Refusal] = {}
        while True:
            open_claims = {ref: claim for ref, claim in claims.items() if ref.uid not in judged}
            if not open_claims:
                return judged
            decisions = self._decide(open_claims)
            conflicts = [
                decision for decision in decisions.values() if isinstance(decision, Conflict)
            ]
            if not conflicts:
                return judged | {
                    uid: found
                    for uid, found in decisions.items()
                    if not isinstance(found, Conflict)
                }
            for conflict in conflicts:
                refusal = self._look_into(conflict)
                if refusal is not None:
                    judged[conflict.claim.uid] = refusal

    def _decide(self, claims: Mapping[ClaimRef, Claim]) -> Mapping[ClaimUid, Decision]:
        parts = self._parts
        inventory = parts.inventory()
        if not inventory.scanned:
            raise Temporary(
                "the devices of this node are not known yet: no scan of the hardware has succeeded; see the driver's log"
            )
        decisions: dict[ClaimUid, Decision] = {}
        with parts.store.transaction("started") as transaction:
            for ref, claim in claims.items():
                state = transaction.read(keys=own_keys(claim, parts.place))
                decision = plan_prepare(
                    ref, claim, place=parts.place, inventory=inventory, state=state
                )
                decisions[ref.uid] = decision
                if isinstance(decision, Plan):
                    # At once, so that the next claim of this call meets its owners.
                    parts.executor.mark(transaction, decision.steps[:1])
        return decisions

    def _look_into(self, conflict: Conflict) -> Refusal | None:
        owner = conflict.owner
        reason = self._parts.releasable.why_not(owner)
        if not reason:
            try:
                # One try for its lock: whoever holds it is at work on that claim and may wait for ours.
                reason = release_if_gone(self._parts, owner, until=self._parts.clock())
            except DriverError as error:
                reason = f"it is gone, but releasing it failed: {error}"
        if not reason:
            return None
        return Refusal(
            f"device {conflict.device} is prepared for claim {owner} and cannot be given to claim {conflict.claim} as well: "
            f"{reason}; `kubectl get resourceclaim -n {owner.namespace} {owner.name}` shows who uses it"
        )

    def _finish(self, plans: Sequence[Plan], until: float) -> dict[ClaimUid, Answer]:
        if not plans:
            return {}
        parts = self._parts
        errors = parts.executor.work(plans, until=until)
        done = [plan for plan in plans if errors[plan.claim.uid] is None]
        if done:
            _mark(parts, "prepared", done, MarkPrepared)
        return {plan.claim.uid: _answer(plan, errors[plan.claim.uid]) for plan in plans}


def release_if_gone(parts: NodeParts, ref: ClaimRef, *, until: float) -> str:
    """Release a claim that nobody will unprepare; answers why it must stay, or nothing. Raises DriverError.

    Its lock is waited for until then, and what is true is asked again under it.
    """
    with parts.lock([f"claim-{ref.uid}"], until, "releasing a claim that is gone"):
        reason = parts.releasable.why_not(ref)
        if reason:
            return reason
        with parts.store.reading() as state:
            claim = state.read(uids=[ref.uid]).claims.get(ref.uid)
        if claim is not None:
            _release(parts, claim)
    return ""


def _release(parts: NodeParts, claim: PreparedClaim) -> None:
    begun = parts.clock()
    error = undo(parts, [claim], until=begun + CALL_SECONDS)[claim.ref.uid]
    if error is not None:
        raise error
    parts.observe(ClaimUnprepared(claim.ref, parts.clock() - begun))


def undo(
    parts: NodeParts, claims: Sequence[PreparedClaim], *, until: float
) -> Mapping[ClaimUid, DriverError | None]:
    """Release these claims, whose locks are held; answers what went wrong with each. Raises what the state says."""
    plans = [plan_unprepare(claim) for claim in claims]
    if any(claim.phase is Phase.PREPARED for claim in claims):
        _mark(parts, "releasing", plans, MarkStartedAgain)
    errors = parts.executor.work(plans, until=until)
    done = [plan for plan in plans if errors[plan.claim.uid] is None]
    if done:
        _mark(parts, "released", done, Forget)
    return errors


def _mark(parts: NodeParts, commit: str, plans: Sequence[Plan], kind: type[Step]) -> None:
    with parts.store.transaction(commit) as transaction:
        for plan in plans:
            parts.executor.mark(
                transaction, [step for step in plan.steps if isinstance(step, kind)]
            )


def _answer(plan: Plan, error: DriverError | None) -> Answer:
    if error is None:
        return plan.devices
    return Refusal(f"cannot prepare claim {plan.claim}: {error}")
