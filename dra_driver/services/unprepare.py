# SPDX-License-Identifier: Apache-2.0
"""NodeUnprepareResources: release claims. Needs no API server; an unknown claim is released already."""

from collections.abc import Mapping, Sequence

from dra_driver.errors import DriverError
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import ClaimUnprepared
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import Plan, Refusal
from dra_driver.planning.prepare import is_safe_uid
from dra_driver.planning.unprepare import plan_unprepare
from dra_driver.services.execute import CALL_SECONDS
from dra_driver.services.prepare import NodeParts


class UnprepareClaims:
    """Call it with the kubelet's claims. Safe to call from several threads."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts

    def __call__(self, refs: Sequence[ClaimRef]) -> Mapping[ClaimUid, Refusal | None]:
        """One answer for each claim: None, or the reason why it is still held."""
        begun = self._parts.clock()
        until = begun + CALL_SECONDS
        try:
            # No claim can have been prepared under a UID that is none.
            uids = [ref.uid for ref in refs if is_safe_uid(ref.uid)]
            with self._parts.lock([f"claim-{uid}" for uid in uids], until, "unpreparing"):
                failures = self._unprepare(uids, until)
        except DriverError as error:
            failures = {ref.uid: Refusal(f"cannot unprepare claim {ref}: {error}") for ref in refs}
        seconds = self._parts.clock() - begun
        for ref in refs:
            failure = failures.get(ref.uid)
            self._parts.observe(ClaimUnprepared(ref, seconds, failure.reason if failure else ""))
        return {ref.uid: failures.get(ref.uid) for ref in refs}

    def _unprepare(self, uids: Sequence[ClaimUid], until: float) -> dict[ClaimUid, Refusal]:
        parts = self._parts
        with parts.store.reading() as state:
            claims = state.read(uids=uids).claims
        plans = [plan_unprepare(claim) for claim in claims.values()]
        if not plans:
            return {}
        errors = parts.executor.work(plans, until=until)
        self._forget([plan for plan in plans if errors[plan.claim.uid] is None])
        return {
            plan.claim.uid: Refusal(f"cannot unprepare claim {plan.claim}: {error}")
            for plan in plans
            if (error := errors[plan.claim.uid]) is not None
        }

    def _forget(self, plans: Sequence[Plan]) -> None:
        if not plans:
            return
        with self._parts.store.transaction("released") as transaction:
            for plan in plans:
                self._parts.executor.mark(transaction, plan.steps)
