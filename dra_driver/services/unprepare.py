# SPDX-License-Identifier: Apache-2.0
"""NodeUnprepareResources: the kubelet forgets claims; an unknown claim is released already.

The call says nothing about containers: the kubelet makes it within a minute after a pod was removed from the API, whatever runs. So
the claim's CDI file goes and the call succeeds, and the devices are given back in it if it is shown that nothing uses them. Else
they stay held, and `dra_driver.services.held` looks again. A refusal would only stop other pods of the claim: the kubelet lets none
start before the call has succeeded.
"""

from collections.abc import Mapping, Sequence

from dra_driver.errors import DriverError
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import ClaimUnprepared
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import Refusal
from dra_driver.planning.prepare import is_safe_uid
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.execute import CALL_SECONDS, StillUsed
from dra_driver.services.parts import NodeParts
from dra_driver.services.take_back import UNPREPARED, undo


class UnprepareClaims:
    """Call it with the kubelet's claims. Safe to call from several threads."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts

    def __call__(
        self, refs: Sequence[ClaimRef], *, until: float | None = None
    ) -> Mapping[ClaimUid, Refusal | None]:
        """One answer for each claim, by `until` at the latest: None, or the reason why the kubelet must ask again."""
        begun = self._parts.clock()
        latest = begun + CALL_SECONDS
        until = latest if until is None else min(until, latest)
        # No claim can have been prepared under a UID that is none.
        safe = [ref.uid for ref in refs if is_safe_uid(ref.uid)]
        # Claims that somebody is at work on hold up no others.
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
        """The claims whose locks were not free by then, and those whose unpreparation failed."""
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
                    # A lost state may have known it; its file must not be taken for a living claim's by the next sweep.
                    parts.cdi.remove(uid)
                except DriverError as error:
                    failures[uid] = error
        if claims:
            errors = undo(parts, locks, list(claims.values()), because=UNPREPARED, until=until)
            failures |= {
                uid: error
                for uid, error in errors.items()
                if error is not None and not isinstance(error, StillUsed)
            }
        return failures
