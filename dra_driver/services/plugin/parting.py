# SPDX-License-Identifier: Apache-2.0
"""Take back the units of a row that nobody has any more, and leave it the others."""

from collections.abc import Callable

from msgspec.structs import replace

from dra_driver.model.events import DevicesFreed
from dra_driver.model.plan import MarkStarted, Plan, WriteCdiSpec
from dra_driver.model.state import PreparedClaim
from dra_driver.planning.plugin.parted import Parted
from dra_driver.planning.plugin.rows import answered_units
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.execute import Late, Result
from dra_driver.services.parts import NodeParts
from dra_driver.services.take_back import devices_of, end_late


def part(
    parts: NodeParts,
    judged: PreparedClaim,
    found: Parted,
    until: float,
    *,
    freed: Callable[[], None],
) -> str:
    """Part the row that was `judged`. Returns why that is not possible now, without holding anything; empty if it is done. `freed` is called
    after each change of what can be given out, also if the work goes on after `until`.

    A crash in between costs nothing: the checkpoint still says the same, or the row ends as a whole.
    """
    uid = judged.ref.uid
    with ClaimLocks(parts.lock) as locks:
        if missed := locks.take([uid], until=parts.clock(), purpose="releasing"):
            return str(missed[uid])
        if parts.row(uid) != judged:
            return "it has just changed"
        # Also if the rest is still used: as long as the row has an answer for it, it is listed as healthy, and draws every new pod.
        is_news = answered_units(judged) != answered_units(found.kept)
        if is_news:
            with parts.store.transaction("releasing") as transaction:
                parts.executor.mark(transaction, [found.told])
        used = parts.usage.of(found.rest)
        plan = _of_now(parts, judged, found.plan, is_used=bool(used))
        late = end_late(parts, locks, "released", MarkStarted)
        error = parts.executor.work([plan], until=until, late=waking(late, freed))[uid].error
        if error is None and not used:
            parts.mark("released", [plan], MarkStarted)
    if is_news or not used:
        freed()  # or it is in the list as what nobody can get now
    if used or error is not None:
        return used or str(error)
    parts.observe(DevicesFreed(judged.ref, devices_of(found.rest)))
    return ""


def _of_now(parts: NodeParts, judged: PreparedClaim, plan: Plan, *, is_used: bool) -> Plan:
    """Leave out what must wait: of an earlier boot, what is left is set up first, and until then its pod must not find a file; what is still used
    is only taken out of the file.
    """
    steps = plan.steps
    if judged.boot_id != parts.store.boot_id:
        steps = tuple(one for one in steps if not isinstance(one, WriteCdiSpec))
    if is_used:
        steps = tuple(one for one in steps if isinstance(one, WriteCdiSpec))
    return replace(plan, steps=steps)


def waking(late: Late, freed: Callable[[], None]) -> Late:
    """Call `freed` too when work that takes longer than its call has ended."""

    def begin(plan: Plan) -> Callable[[Result], None]:
        end = late(plan)

        def ended(result: Result) -> None:
            end(result)
            freed()

        return ended

    return begin
