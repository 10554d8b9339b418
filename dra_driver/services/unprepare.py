# SPDX-License-Identifier: Apache-2.0
"""Answer NodeUnprepareResources: the kubelet does not need these claims any more. For an unknown claim the call succeeds.

The call does not mean that the containers have ended: the kubelet calls within a minute after a pod was removed from the API. So
the driver removes the claim's CDI file, and the call succeeds. The driver releases the devices in the call only if it is proved
that no process uses them, and if they can be reset now. Otherwise they stay held, and `dra_driver.services.held` tries again. An
error instead would keep the pod Terminating, and would stop other pods of the claim: the kubelet starts none of them before the call
has succeeded.
"""

from collections.abc import Mapping, Sequence

from dra_driver.errors import DriverError
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import ClaimUnprepared
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import Refusal
from dra_driver.planning.prepare import is_safe_uid
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.execute import CALL_SECONDS
from dra_driver.services.parts import NodeParts
from dra_driver.services.take_back import UNPREPARED, stays_held, undo


class UnprepareClaims:
    """Unprepares the kubelet's claims when called. Safe to call from several threads."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts

    def __call__(
        self, refs: Sequence[ClaimRef], *, until: float | None = None
    ) -> Mapping[ClaimUid, Refusal | None]:
        """Return one answer for each claim, by `until`: None, or the reason why the kubelet must call again."""
        begun = self._parts.clock()
        latest = begun + CALL_SECONDS
        until = latest if until is None else min(until, latest)
        # A claim with such a UID was never prepared.
        safe = [ref.uid for ref in refs if is_safe_uid(ref.uid)]
        # First unprepare the claims whose locks are free now. Then wait for the locks of the others: another call works on them.
        missed, failures = self._locked(safe, begun, until)
        if missed:
            missed, failed = self._locked(list(missed), until, until)
            failures |= failed | missed
        refusals = {
            ref.uid: Refusal(f"cannot unprepare claim {ref}: {failures[ref.uid]}")
            for ref in refs
            if ref.uid in failures
        }
        seconds = self._parts.clock() - begun
        for ref in refs:
            refusal = refusals.get(ref.uid)
            self._parts.observe(ClaimUnprepared(ref, seconds, refusal.reason if refusal else ""))
        return {ref.uid: refusals.get(ref.uid) for ref in refs}

    def _locked(
        self, uids: Sequence[ClaimUid], patience: float, until: float
    ) -> tuple[dict[ClaimUid, DriverError], dict[ClaimUid, DriverError]]:
        """Unprepare the claims whose locks are free by `patience`. Returns the errors of the claims whose locks were not free, and
        the errors of the claims that failed.
        """
        with ClaimLocks(self._parts.lock) as locks:
            missed = locks.take(uids, until=patience, purpose="unpreparing")
            taken = [uid for uid in uids if uid not in missed]
            try:
                return missed, self._unprepare(taken, locks, until)
            except DriverError as error:
                return missed, dict.fromkeys(taken, error)

    def _unprepare(
        self, uids: Sequence[ClaimUid], locks: ClaimLocks, until: float
    ) -> dict[ClaimUid, DriverError]:
        parts = self._parts
        if not uids:
            return {}
        with parts.store.reading() as state:
            claims = state.read(uids=uids).claims
        failures: dict[ClaimUid, DriverError] = {}
        for uid in uids:
            if uid not in claims:
                try:
                    # The claim's row may have been lost with the state file. Without a CDI file the next sweep does not adopt the claim.
                    parts.cdi.remove(uid)
                except DriverError as error:
                    failures[uid] = error
        if claims:
            errors = undo(parts, locks, list(claims.values()), because=UNPREPARED, until=until)
            failures |= {
                uid: error
                for uid, error in errors.items()
                if error is not None and not stays_held(parts, uid, error)
            }
        return failures
