# SPDX-License-Identifier: Apache-2.0
"""At the start, make the state and the CDI files agree.

The recovery uses only files of this node, and ends before the driver serves its sockets. `dra_driver.services.sweep` later decides
what needs the API server or the kubelet: files without a row, and claims that may be released.
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
    """The methods of the state store that recovery and sweeps call."""

    @property
    def boot_id(self) -> str:
        """The ID of this boot."""

    def reading(self) -> AbstractContextManager[AllClaims]:
        """Read without a transaction."""


Documents = Callable[[], Mapping[ClaimUid, str]]


def recover(
    parts: NodeParts, store: WholeStore, documents: Documents, *, boot_id: str
) -> Mapping[ClaimUid, DriverError]:
    """Carry out the recovery plans. Returns an error for each claim that failed; the recovery goes on with the other claims."""
    with store.reading() as state:
        claims = state.all_claims()
    failures: dict[ClaimUid, DriverError] = {}
    done: list[Plan] = []
    until = parts.clock() + CALL_SECONDS
    metadata = {uid: parts.cdi.read_metadata(uid) for uid in parts.cdi.with_metadata()}
    for suspect in plan_recovery(claims, documents(), metadata, boot_id=boot_id):
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
    # A second driver process may be working on a half-done claim. So take the claim's lock, and read row and file again. If the lock
    # is not free in time, leave the claim to that process.
    with ClaimLocks(parts.lock) as locks:
        missed = locks.take([ref.uid], until=until, purpose="recovering")
        if missed:
            raise missed[ref.uid]
        row = parts.row(ref.uid)
        text = parts.cdi.read(ref.uid)
        files = {} if text is None else {ref.uid: text}
        metadata = {ref.uid: parts.cdi.read_metadata(ref.uid)}
        plans = plan_recovery([] if row is None else [row], files, metadata, boot_id=boot_id)
        for plan in plans:
            # If the work takes longer than `until`, its thread writes the result into the state: it removes the row if the plan ends
            # with Forget, and otherwise marks the row as Prepared.
            ends = Forget if isinstance(plan.steps[-1], Forget) else MarkPrepared
            late = end_late(parts, locks, "recovered", ends)
            error = parts.executor.work([plan], until=until, late=late)[ref.uid].error
            # StillUsed: containers of the claim may run, so its half-done work stays as it is.
            if error is not None and not isinstance(error, StillUsed):
                raise error
            if any(
                isinstance(step, MarkPrepared | MarkStartedAgain | Forget) for step in plan.steps
            ):
                with parts.store.transaction("recovered") as transaction:
                    parts.executor.mark(transaction, plan.steps)
    return plans
