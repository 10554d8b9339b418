# SPDX-License-Identifier: Apache-2.0
"""Answer NodePrepareResources: one answer for each claim that the kubelet names.

The call has the locks of the claims during all these steps:

1. If a claim is Prepared in this boot, the driver answers from the state, and writes its CDI file again if it differs. The driver
   asks the API server only if other pods may use the claim and the claim's watch is not current; if the API server does not
   answer, the driver uses the state.
2. The driver reads the other claims from the API server in parallel, before it reserves a device.
3. One transaction plans all of them and reserves their devices.
4. The executor lets the backends configure the devices, for all claims in parallel.
5. One transaction marks the successful claims as Prepared, with the text of their CDI files. Then the files are written.
6. If the device of a claim has another owner, `dra_driver.services.conflicts` tries to take the device back. If it succeeds, the
   claim goes to step 3 again.

A claim that fails does not affect the others.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from dra_driver.errors import DriverError, Temporary
from dra_driver.kube.base import Invalid
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import ClaimPrepared
from dra_driver.model.ids import ClaimUid
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import Decision, OwnerConflict, Plan, Refusal
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice
from dra_driver.planning.allocation import is_allocation_of
from dra_driver.planning.moved import moved
from dra_driver.planning.prepare import is_safe_uid, own_keys, plan_prepare, users_for
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.conflicts import Conflicts
from dra_driver.services.execute import CALL_SECONDS, patiently
from dra_driver.services.finish import finish, finish_late
from dra_driver.services.parts import NodeParts

# For so long the driver tries again after the API server has refused a request: an admin may be replacing its role.
PASSING_SECONDS = 3.0

Answer = tuple[PreparedDevice, ...] | Refusal


class PrepareClaims:
    """Prepares the kubelet's claims when called. Safe to call from several threads; calls for one claim wait for each other."""

    def __init__(
        self,
        parts: NodeParts,
        fetch: Callable[[ClaimRef], Claim],
        pool: ThreadPoolExecutor,
        *,
        may_hang: bool = False,
    ) -> None:
        """`may_hang`: whoever calls answers the kubelet in time, also if this does not return (`dra_driver.kubelet.calls`)."""
        self._parts = parts
        self._fetch = fetch
        self._pool = pool
        self._may_hang = may_hang
        self._conflicts = Conflicts(parts)

    def __call__(
        self, refs: Sequence[ClaimRef], *, until: float | None = None
    ) -> Mapping[ClaimUid, Answer]:
        """Return one answer for each claim, by `until`: its devices, or the reason that the pod's events will show."""
        begun = self._parts.clock()
        latest = begun + CALL_SECONDS
        until = latest if until is None else min(until, latest)
        answers: dict[ClaimUid, Answer] = {
            ref.uid: Refusal(
                f"claim {ref.namespace}/{ref.name}: uid {ref.uid[:80]!a} is no UID that the API server makes"
            )
            for ref in refs
            if not is_safe_uid(ref.uid)
        }
        # First answer the claims whose locks are free now. Then wait for the locks of the others: another call works on them.
        for patience in (begun, until):
            if left := [ref for ref in refs if ref.uid not in answers]:
                answers |= self._locked(left, patience, until)
        seconds = self._parts.clock() - begun
        for ref in refs:
            answer = answers[ref.uid]
            self._parts.observe(
                ClaimPrepared(ref, seconds, answer.reason if isinstance(answer, Refusal) else "")
            )
        return answers

    def _locked(
        self, refs: Sequence[ClaimRef], patience: float, until: float
    ) -> dict[ClaimUid, Answer]:
        """Answer the claims whose locks are free by `patience`. In the last round (`patience` is `until`) refuse the others."""
        answers: dict[ClaimUid, Answer] = {}
        with ClaimLocks(self._parts.lock) as locks:
            missed = locks.take((ref.uid for ref in refs), until=patience, purpose="preparing")
            taken = [ref for ref in refs if ref.uid not in missed]
            try:
                for found in self._prepare(taken, locks, until):
                    answers |= found
            except DriverError as error:
                answers |= _all_refused((ref for ref in taken if ref.uid not in answers), error)
        if patience == until:
            for ref in refs:
                if ref.uid in missed:
                    answers |= _all_refused([ref], missed[ref.uid])
        return answers

    def _prepare(
        self, refs: Sequence[ClaimRef], locks: ClaimLocks, until: float
    ) -> Iterator[dict[ClaimUid, Answer]]:
        """Yield answers as soon as they are known. If a later step fails, the caller keeps the earlier answers."""
        if not refs:
            return
        answers, changed = self._answer_prepared(refs, until)
        yield answers
        known = {*answers, *(ref.uid for ref in changed)}
        fetched = self._fetch_all([ref for ref in refs if ref.uid not in known], until)
        yield {ref.uid: claim for ref, claim in fetched.items() if isinstance(claim, Refusal)}
        claims = changed | {
            ref: claim for ref, claim in fetched.items() if isinstance(claim, Claim)
        }
        while claims:
            decisions = self._decide(claims, until)
            yield {uid: found for uid, found in decisions.items() if isinstance(found, Refusal)}
            plans = [found for found in decisions.values() if isinstance(found, Plan)]
            yield self._finish(plans, locks, until)
            conflicts = {
                uid: found for uid, found in decisions.items() if isinstance(found, OwnerConflict)
            }
            refused = self._conflicts.resolve(conflicts, locks, until)
            yield dict(refused)
            claims = {
                ref: claim
                for ref, claim in claims.items()
                if ref.uid in conflicts and ref.uid not in refused
            }

    def _answer_prepared(
        self, refs: Sequence[ClaimRef], until: float
    ) -> tuple[dict[ClaimUid, Answer], dict[ClaimRef, Claim]]:
        """Answer the claims that are Prepared in this boot. Returns the answers, and apart from them the Prepared claims that are
        allocated in another way now.
        """
        parts = self._parts
        with parts.store.reading() as state:
            node = state.read(uids=[ref.uid for ref in refs])
        answers: dict[ClaimUid, Answer] = {}
        rows: list[PreparedClaim] = []
        for uid, row in node.claims.items():
            if row.phase is Phase.PREPARED and row.boot_id == node.boot_id:
                rows.append(row)
                continue
            try:
                # For recovery a CDI file is proof of a finished preparation. So first remove the file of an earlier one.
                parts.cdi.remove(uid)
            except DriverError as error:
                answers |= _all_refused([row.ref], error)
        changed = self._ask_again(rows, until)
        return answers | {
            row.ref.uid: self._repeat(row) for row in rows if row.ref not in changed
        }, changed

    def _ask_again(self, rows: Sequence[PreparedClaim], until: float) -> dict[ClaimRef, Claim]:
        """Add new pods to the rows of these claims. Returns the claims that are allocated in another way now.

        If the API server does not answer, or does not have the claim, the driver uses the state: the devices belong to the claim,
        and the API server's data may have been restored from an older backup.
        """
        parts = self._parts
        open_rows = {
            row.ref: row
            for row in rows
            if row.users.pods is None or not (row.users.sole or parts.followed(row.ref))
        }
        if not open_rows:
            return {}
        found = {
            ref: claim
            for ref, claim in parts.ask(open_rows, until).items()
            if isinstance(claim, Claim) and claim.ref.uid == ref.uid
        }
        place = parts.place
        changed = {
            ref: claim
            for ref, claim in found.items()
            if not is_allocation_of(open_rows[ref], claim, place.driver, place.cdi_kind)
        }
        joined = {
            ref: users
            for ref, claim in found.items()
            if open_rows[ref].users.joined(users := users_for(open_rows[ref], claim, place))
            != open_rows[ref].users
        }
        if joined:
            with parts.store.transaction("joined") as transaction:
                for ref, users in joined.items():
                    transaction.add_users(ref.uid, users)
        return changed

    def _repeat(self, claim: PreparedClaim) -> Answer:
        inventory = self._parts.inventory()
        present = inventory.by_name
        for device in claim.devices:
            name = device.device
            if said := moved(device, inventory, self._parts.place.pool):
                return Refusal(
                    f"device {name} of claim {claim.ref} was prepared, and {said}; see `dra-driver devices` and the log of the kernel "
                    f"driver (dmesg); delete the pod and the claim, so that the scheduler chooses a device anew"
                )
            if inventory.scanned and name not in present and not inventory.may_exist(name):
                return Refusal(
                    f"device {device.device} of claim {claim.ref} was prepared and has vanished from this node; "
                    f"see `dra-driver devices`; delete the pod and the claim, so that the scheduler chooses another device"
                )
        try:
            self._parts.cdi.write(claim.ref.uid, claim.cdi_spec, claim.metadata)
        except DriverError as error:
            return Refusal(f"cannot prepare claim {claim.ref}: {error}")
        return claim.devices

    def _fetch_all(
        self, refs: Sequence[ClaimRef], until: float
    ) -> Mapping[ClaimRef, Claim | Refusal]:
        """Read the claims in parallel. This thread reads too, so for quick answers the driver needs no other thread."""
        waiting = deque(refs)
        found: dict[ClaimRef, Claim | Refusal] = {}

        def fetch() -> None:
            while True:
                try:
                    ref = waiting.popleft()
                except IndexError:
                    return  # other threads took the rest
                found[ref] = self._fetch_one(ref, until)

        others = [self._pool.submit(fetch) for _ in refs[1:]]
        fetch()
        for other in others:
            if not other.cancel():
                other.result()
        return found

    def _fetch_one(self, ref: ClaimRef, until: float) -> Claim | Refusal:
        parts = self._parts
        passing = parts.clock() + PASSING_SECONDS

        def fetch() -> Claim:
            try:
                return self._fetch(ref)
            except Invalid as error:
                if parts.clock() >= passing:
                    raise
                raise Temporary(str(error)) from error

        try:
            return patiently(fetch, until=until, clock=parts.clock, sleep=parts.sleep)
        except DriverError as error:
            return Refusal(f"cannot read claim {ref}: {error}")

    def _decide(self, claims: Mapping[ClaimRef, Claim], until: float) -> dict[ClaimUid, Decision]:
        """Plan the claims and reserve their devices, in one transaction."""
        parts = self._parts
        inventory = patiently(
            partial(_scanned, parts), until=until, clock=parts.clock, sleep=parts.sleep
        )
        decisions: dict[ClaimUid, Decision] = {}
        parts.learn(inventory)
        with parts.store.transaction("started") as transaction:
            for ref, claim in claims.items():
                state = transaction.read(uids=[ref.uid], keys=own_keys(claim, parts.place))
                decision = plan_prepare(
                    ref, claim, place=parts.place, inventory=inventory, state=state
                )
                decisions[ref.uid] = decision
                if isinstance(decision, Plan) and ref.uid not in state.claims:
                    # A file without a row, of a lost state. Beside the new row it would prove a preparation that has not ended.
                    parts.cdi.remove(ref.uid)
                if isinstance(decision, Plan):
                    # Write the row now, so that the plan for the next claim of this call sees the new owners.
                    parts.executor.mark(transaction, decision.steps[:1])
                    # Before the commit: whoever sees the row must know from where to read the claim's changes.
                    parts.reserved(claim)
        return decisions

    def _finish(
        self, plans: Sequence[Plan], locks: ClaimLocks, until: float
    ) -> dict[ClaimUid, Answer]:
        if not plans:
            return {}
        parts = self._parts
        late = finish_late(parts, locks, until)
        # A hang would keep the locks and the answers of the other claims of this call too.
        may_hang = self._may_hang and len(locks) == 1
        results = parts.executor.work(plans, until=until, late=late, may_hang=may_hang)
        errors = finish(parts, [(plan, results[plan.claim.uid]) for plan in plans], until)
        return {plan.claim.uid: _answer(plan, errors[plan.claim.uid]) for plan in plans}


def _scanned(parts: NodeParts) -> Inventory:
    inventory = parts.inventory()
    if not inventory.scanned:
        raise Temporary(
            "the hardware of this node has not been read yet; the driver's log says what it waits for, the kubelet tries again"
        )
    return inventory


def _answer(plan: Plan, error: DriverError | None) -> Answer:
    if error is None:
        return plan.devices
    return Refusal(f"cannot prepare claim {plan.claim}: {error}")


def _all_refused(refs: Iterable[ClaimRef], error: DriverError) -> dict[ClaimUid, Answer]:
    return {ref.uid: Refusal(f"cannot prepare claim {ref}: {error}") for ref in refs}
