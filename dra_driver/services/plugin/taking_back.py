# SPDX-License-Identifier: Apache-2.0
"""Take back the units of rows: release a row or hold it, leave its pods a part of it, or forget what no container can have."""

from collections.abc import Callable

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.model.events import DevicesFreed, DevicesHeld
from dra_driver.model.plan import Forget, MarkHeld, Plan
from dra_driver.model.state import Held, PreparedClaim, Users
from dra_driver.planning.plugin.parted import Parted
from dra_driver.planning.unprepare import plan_unanswered
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.parts import NodeParts
from dra_driver.services.plugin.parting import part as take_part
from dra_driver.services.plugin.parting import waking
from dra_driver.services.take_back import devices_of, end_late, undo

FREE_SECONDS = 5.0
ENDED = "its pod has ended"
FORGOTTEN = "the kubelet does not list its pod any more"
REUSED = "the kubelet gives its units to another container"
UNANSWERED = "no container has got it"
JUST_GIVEN = "it was just given to a container"


class TakingBack:
    """Takes rows back. It calls `freed` after a change of what can be given out."""

    def __init__(
        self,
        parts: NodeParts,
        *,
        freed: Callable[[], None],
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._parts = parts
        self._freed = freed
        self._log: FilteringBoundLogger = log or structlog.get_logger()

    def tried(self, row: PreparedClaim, free: Callable[[float], str]) -> None:
        """Take back what seems to be free; an error is logged."""
        try:
            free(self._parts.clock() + FREE_SECONDS)
        except DriverError as error:
            self.not_freed(row, error)

    def not_freed(self, row: PreparedClaim, error: DriverError) -> None:
        """Log it: it is tried again."""
        self._log.warning("units_not_freed", row=str(row.ref), error=str(error))

    def whole(self, judged: PreparedClaim, because: str, until: float) -> str:
        """Release a row, or hold it. Returns why it is held; empty if it is free."""
        parts, ref = self._parts, judged.ref
        with ClaimLocks(parts.lock) as locks:
            if missed := locks.take([ref.uid], until=parts.clock(), purpose="releasing"):
                return str(missed[ref.uid])
            row = parts.row(ref.uid)
            if row is None:
                return ""
            if row.users.call != judged.users.call:
                return JUST_GIVEN
            error = undo(parts, locks, [row], because=because, until=until)[ref.uid]
        if error is None:
            held_since = row.held.since if row.held else ""
            parts.observe(DevicesFreed(ref, devices_of(row), held_since))
        if error is None or row.held is None:
            self._freed()
        return "" if error is None else str(error)

    def part(self, row: PreparedClaim, found: Parted, until: float) -> str:
        """Take back the rest of a row. Returns why that is not possible now; then nothing is held."""
        return take_part(self._parts, row, found, until, freed=self._freed)

    def forgotten(self, row: PreparedClaim) -> str:
        """Forget a row that no container can have, unless somebody works on it. Returns why it is still there."""
        uid = row.ref.uid
        with ClaimLocks(self._parts.lock) as locks:
            if missed := locks.take([uid], until=self._parts.clock(), purpose="releasing"):
                return str(missed[uid])
            # Who had the lock may have released it, or given it to somebody.
            found = self._parts.row(uid)
            if found == row:
                return self.forget(row, locks)
        return "" if found is None else "it has just changed"

    def forget(self, row: PreparedClaim, locks: ClaimLocks) -> str:
        """Take back what no container can have; hold it if that fails, so that it draws no pod. The caller has the row's lock. Returns the error."""
        parts, uid = self._parts, row.ref.uid
        plan = plan_unanswered(row)
        late = waking(end_late(parts, locks, "released", Forget), self._freed)
        until = parts.clock() + FREE_SECONDS
        error = parts.executor.work([plan], until=until, late=late)[uid].error
        if error is None:
            parts.mark("released", [plan], Forget)
        else:
            nobody = Users((), sole=row.users.sole)
            hold = Plan(row.ref, (MarkHeld(uid, Held(UNANSWERED, parts.now()), nobody),))
            parts.mark("releasing", [hold], MarkHeld)
            parts.observe(DevicesHeld(row.ref, devices_of(row), str(error)))
        self._freed()
        return "" if error is None else str(error)
