# SPDX-License-Identifier: Apache-2.0
"""At start: make state and CDI files agree again. Local work only; runs before the sockets are served.

What needs to be asked of others (whose file is this, may that claim be released) is `dra_driver.services.sweep`.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from dra_driver.errors import DriverError
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import Recovered
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import (
    Forget,
    MarkPrepared,
    MarkStartedAgain,
    Plan,
    RemoveCdiSpec,
    WriteCdiSpec,
)
from dra_driver.planning.recover import plan_recovery
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.execute import CALL_SECONDS, StillUsed
from dra_driver.services.parts import AllClaims, NodeParts
from dra_driver.services.take_back import end_late


class WholeStore(Protocol):
    """The state as recovery and sweeps see it."""

    @property
    def boot_id(self) -> str:
        """This boot."""

    def reading(self) -> AbstractContextManager[AllClaims]:
        """Read only."""


Documents = Callable[[], Mapping[ClaimUid, str]]


def recover(
    parts: NodeParts, store: WholeStore, documents: Documents, *, boot_id: str
) -> Mapping[ClaimUid, DriverError]:
    """Carry out the recovery plans; answers what failed, claim by claim. Nothing that fails stops the others."""
    with store.reading() as state:
        claims = state.all_claims()
    failures: dict[ClaimUid, DriverError] = {}
    done: list[Plan] = []
    until = parts.clock() + CALL_SECONDS
    for suspect in plan_recovery(claims, documents(), boot_id=boot_id):
        try:
            done += _bring_to_agree(parts, suspect.claim, boot_id, until)
        except DriverError as error:
            failures[suspect.claim.uid] = error
    steps = [step for plan in done for step in plan.steps]
    written = sum(isinstance(step, WriteCdiSpec) for step in steps)
    removed = sum(isinstance(step, RemoveCdiSpec) for step in steps)
    parts.observe(Recovered(rewritten=written, released=0, removed_files=removed))
    return failures


def _bring_to_agree(
    parts: NodeParts, ref: ClaimRef, boot_id: str, until: float
) -> tuple[Plan, ...]:
    # A second driver process may be at work on the very claim that looks half done. What is true counts under its lock, and a claim
    # whose lock is not free by then is that process's.
    with ClaimLocks(parts.lock) as locks:
        missed = locks.take([ref.uid], until=until, purpose="recovering")
        if missed:
            raise missed[ref.uid]
        row = parts.row(ref.uid)
        text = parts.cdi.read(ref.uid)
        files = {} if text is None else {ref.uid: text}
        plans = plan_recovery([] if row is None else [row], files, boot_id=boot_id)
        for plan in plans:
            # Work that goes on after its time says its end itself; a row that its file's end was to forget goes with it.
            ends = Forget if isinstance(plan.steps[-1], Forget) else MarkPrepared
            late = end_late(parts, locks, "recovered", ends)
            error = parts.executor.work([plan], until=until, late=late)[ref.uid]
            # Containers from before may still run: what is half done of the same claim's stays as it is.
            if error is not None and not isinstance(error, StillUsed):
                raise error
            if any(
                isinstance(step, MarkPrepared | MarkStartedAgain | Forget) for step in plan.steps
            ):
                with parts.store.transaction("recovered") as transaction:
                    parts.executor.mark(transaction, plan.steps)
    return plans
