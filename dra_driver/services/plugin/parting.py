# SPDX-License-Identifier: Apache-2.0
"""Take back the units of a row that nobody has any more, and leave it the others."""

from msgspec.structs import replace

from dra_driver.model.events import DevicesFreed
from dra_driver.model.plan import MarkStarted, WriteCdiSpec
from dra_driver.model.state import PreparedClaim
from dra_driver.planning.plugin.parted import Parted
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.parts import NodeParts
from dra_driver.services.take_back import devices_of, end_late


def part(parts: NodeParts, judged: PreparedClaim, found: Parted, until: float) -> str:
    """Part the row that was `judged`. Returns why that is not possible now, without holding anything; empty if it is done.

    A crash in between costs nothing: the checkpoint still says the same, or the row ends as a whole.
    """
    uid = judged.ref.uid
    with ClaimLocks(parts.lock) as locks:
        if missed := locks.take([uid], until=parts.clock(), purpose="releasing"):
            return str(missed[uid])
        if parts.row(uid) != judged:
            return "it has just changed"
        if reason := parts.usage.of(found.rest):
            return reason
        with parts.store.transaction("releasing") as transaction:
            parts.executor.mark(transaction, [found.told])
        plan = found.plan
        if judged.boot_id != parts.store.boot_id:
            # What is left is set up first: until then its pod must not find a file.
            steps = tuple(one for one in plan.steps if not isinstance(one, WriteCdiSpec))
            plan = replace(plan, steps=steps)
        late = end_late(parts, locks, "released", MarkStarted)
        error = parts.executor.work([plan], until=until, late=late)[uid].error
        if error is not None:
            return str(error)
        parts.mark("released", [plan], MarkStarted)
    parts.observe(DevicesFreed(judged.ref, devices_of(found.rest)))
    return ""
