# SPDX-License-Identifier: Apache-2.0
"""Take devices back from a claim. Unprepare, sweep, conflicts and `dra_driver.services.held` share this."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from dra_driver.errors import DriverError, Temporary
from dra_driver.kube.base import NotFound
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import DevicesFreed, DevicesHeld, WorkEnded
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import Forget, MarkHeld, Plan
from dra_driver.model.state import NOBODY_KNOWN, Held, PreparedClaim, Users
from dra_driver.planning.prepare import users_for
from dra_driver.planning.unprepare import plan_unprepare
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.execute import Late, Result, StillUsed
from dra_driver.services.parts import ASK_SECONDS, Kinds, NodeParts

UNPREPARED = "the kubelet unprepared it"
UNNEEDED = "nobody needs it on this node any more"
REALLOCATED = "it was allocated anew"


def undo(
    parts: NodeParts,
    locks: ClaimLocks,
    rows: Sequence[PreparedClaim],
    *,
    because: str,
    until: float,
) -> Mapping[ClaimUid, DriverError | None]:
    """Release these claims; the caller has their locks. Returns for each claim its error, or None. StillUsed means that the claim's
    devices stay held; `stays_held` tells it of other errors.

    Raises DriverError if the state cannot be read or written.
    """
    told = _ask_who_used_them(parts, rows, until)
    plans: list[Plan] = []
    news: list[Plan] = []
    for row in rows:
        unasked = row.held is not None and row.held.unasked
        users, unasked = told.get(row.ref, (NOBODY_KNOWN, unasked))
        held = replace(row.held or Held(because, parts.now()), unasked=unasked)
        plans.append(plan_unprepare(row, held, users))
        if held != row.held or row.users.joined(users) != row.users:
            news.append(plans[-1])
    if news:
        _mark_held(parts, news)
    results = parts.executor.work(
        plans, until=until, late=end_late(parts, locks, "released", Forget)
    )
    errors = {uid: result.error for uid, result in results.items()}
    done = [plan for plan in plans if errors[plan.claim.uid] is None]
    if done:
        parts.mark("released", done, Forget)
    for row in rows:
        error = errors[row.ref.uid]
        if row.held is None and stays_held(parts, row.ref.uid, error):
            parts.observe(DevicesHeld(row.ref, devices_of(row), str(error)))
    return errors


def stays_held(parts: NodeParts, uid: ClaimUid, error: DriverError | None) -> bool:
    """Whether the rest of an `undo` that ended with this error is left to `dra_driver.services.held`: the row is held, no container
    can start with its devices any more, and a later try may succeed, for example when a device answers again.
    """
    if isinstance(error, StillUsed):
        return True
    return isinstance(error, Temporary) and parts.cdi.read(uid) is None


def _mark_held(parts: NodeParts, plans: Sequence[Plan]) -> None:
    """Mark all rows as held, in one transaction. Keep an admin's confirmation (`by_admin`) that came after the plan was made."""
    with parts.store.transaction("releasing") as transaction:
        rows = transaction.read(uids=[plan.claim.uid for plan in plans]).claims
        for plan in plans:
            row = rows.get(plan.claim.uid)
            by_admin = row is not None and row.held is not None and row.held.by_admin
            marks = [step for step in plan.steps if isinstance(step, MarkHeld)]
            parts.executor.mark(
                transaction,
                [replace(mark, held=replace(mark.held, by_admin=by_admin)) for mark in marks],
            )


def end_late(parts: NodeParts, locks: ClaimLocks, commit: str, kind: Kinds) -> Late:
    """Return the `late` function for `Executor.work`: for work that takes longer than its call.

    When such work ends, the steps of these kinds are written into the state, unless the work failed. Then the claim's lock is released.
    """

    def late(plan: Plan) -> Callable[[Result], None]:
        let_go = locks.hand_over(plan.claim.uid)

        def end(result: Result) -> None:
            error = result.error
            try:
                if error is None:
                    parts.mark(commit, [plan], kind)
            except DriverError as failure:
                error = failure
            finally:
                let_go()
            parts.observe(WorkEnded(plan.claim, "" if error is None else str(error)))

        return end

    return late


def release_if_unneeded(parts: NodeParts, ref: ClaimRef, *, lock_until: float, until: float) -> str:
    """Release a claim that the kubelet will not unprepare, or a held claim. Returns why the claim must stay, or an empty text.

    Waits for the claim's lock until `lock_until`. When it has the lock, it checks again whether the claim is needed. Raises
    StillUsed if the claim's devices stay held, and another DriverError if the lock is not free in time or a step fails.
    """
    with ClaimLocks(parts.lock) as locks:
        missed = locks.take([ref.uid], until=lock_until, purpose="releasing")
        if missed:
            raise missed[ref.uid]
        row = parts.row(ref.uid)
        if row is None:
            return ""
        reason = "" if row.held is not None else parts.releasable.why_not(row)
        if not reason:
            error = undo(parts, locks, [row], because=UNNEEDED, until=until)[ref.uid]
            if error is not None:
                raise error
            parts.observe(DevicesFreed(ref, devices_of(row), row.held.since if row.held else ""))
    return reason


def devices_of(row: PreparedClaim) -> str:
    """Return the devices that a claim owns, as text."""
    return ", ".join(str(key) for key in row.owned)


def _ask_who_used_them(
    parts: NodeParts, rows: Sequence[PreparedClaim], until: float
) -> Mapping[ClaimRef, tuple[Users, bool]]:
    """Ask the API server for the pods of the claims that other pods may have used.

    Returns for each of them its users, and whether they are still unknown because the API server did not answer.
    """
    asked = {row.ref: row for row in rows if _must_ask(parts, row)}
    if not asked:
        return {}
    answers = parts.ask(asked, until)
    latest = min(until, parts.clock() + ASK_SECONDS)
    return {ref: _told(parts, asked[ref], answer, latest) for ref, answer in answers.items()}


def _must_ask(parts: NodeParts, row: PreparedClaim) -> bool:
    held = row.held
    asked = held is not None and (held.by_admin or not held.unasked)
    if asked or not row.ref.name or row.ref.of_plugin:
        return False
    unwatched = parts.unwatched(row.ref)
    return parts.usage.must_ask(row, unwatched=unwatched) and not parts.followed(row.ref)


def _told(
    parts: NodeParts, row: PreparedClaim, answer: Claim | DriverError, latest: float
) -> tuple[Users, bool]:
    if isinstance(answer, Claim) and answer.ref.uid == row.ref.uid:
        return users_for(row, answer, parts.place), not _caught_up(parts, row, answer, latest)
    # If the claim is deleted, only the changes that led there name its other pods.
    gone = isinstance(answer, Claim | NotFound)
    return NOBODY_KNOWN, not (gone and _caught_up(parts, row, None, latest))


def _caught_up(parts: NodeParts, row: PreparedClaim, claim: Claim | None, latest: float) -> bool:
    """Whether the row has every pod that used the claim up to this version of it. False if the answer may come later."""
    if parts.clock() > latest:
        return False
    try:
        parts.catch_up(row.ref, claim)
    except Temporary:
        return False
    except DriverError:
        return True  # this API server does not let the driver watch: nothing more can be found out
    return True
