# SPDX-License-Identifier: Apache-2.0
"""End a preparation: from the answers of the backends to Prepared claims with CDI files. Prepare and adoption share this."""

from collections.abc import Callable, Mapping, Sequence

from dra_driver.errors import DriverError, Permanent
from dra_driver.model.events import WorkEnded
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import MarkPrepared, MarkStarted, Plan, Refusal
from dra_driver.planning.finish import plan_finish
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.execute import Late, Result
from dra_driver.services.parts import NodeParts


def finish(
    parts: NodeParts, worked: Sequence[tuple[Plan, Result]], until: float, commit: str = "prepared"
) -> Mapping[ClaimUid, DriverError | None]:
    """Mark the claims Prepared whose work succeeded, in one transaction, and write their CDI files. Returns for each claim its error,
    or None. Raises DriverError if the state cannot be written.
    """
    errors: dict[ClaimUid, DriverError | None] = {}
    plans: list[Plan] = []
    for plan, result in worked:
        ended = _ended(parts, plan, result)
        if isinstance(ended, Plan):
            plans.append(ended)
        else:
            errors[plan.claim.uid] = ended
    if plans:
        parts.mark(commit, plans, (MarkStarted, MarkPrepared))
    for plan in plans:
        errors[plan.claim.uid] = parts.executor.finish(plan, until)
    return errors


def finish_late(
    parts: NodeParts, locks: ClaimLocks, until: float, commit: str = "prepared"
) -> Late:
    """Return the `late` function for `Executor.work`: it ends a preparation that takes longer than its call, and then releases the
    claim's lock.
    """

    def late(plan: Plan) -> Callable[[Result], None]:
        let_go = locks.hand_over(plan.claim.uid)

        def end(result: Result) -> None:
            error: DriverError | None
            try:
                error = finish(parts, [(plan, result)], until, commit)[plan.claim.uid]
            except DriverError as failure:
                error = failure
            finally:
                let_go()
            parts.observe(WorkEnded(plan.claim, "" if error is None else str(error)))

        return end

    return late


def _ended(parts: NodeParts, plan: Plan, result: Result) -> Plan | DriverError:
    if result.error is not None:
        return result.error
    ended = plan_finish(
        plan,
        result.edits,
        driver=parts.place.driver,
        inventory=parts.inventory(),
        metadata_root=parts.place.metadata_root,
    )
    return Permanent(ended.reason) if isinstance(ended, Refusal) else ended
