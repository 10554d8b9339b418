# SPDX-License-Identifier: Apache-2.0
"""NodeUnprepareResources: release claims. Needs no API server; an unknown claim is released already."""

from collections.abc import Mapping, Sequence

from dra_driver.errors import DriverError
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import ClaimUnprepared
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import Refusal
from dra_driver.planning.prepare import is_safe_uid
from dra_driver.services.execute import CALL_SECONDS
from dra_driver.services.prepare import NodeParts, undo


class UnprepareClaims:
    """Call it with the kubelet's claims. Safe to call from several threads."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts

    def __call__(
        self, refs: Sequence[ClaimRef], *, until: float | None = None
    ) -> Mapping[ClaimUid, Refusal | None]:
        """One answer for each claim: None, or the reason why it is still held."""
        begun = self._parts.clock()
        latest = begun + CALL_SECONDS
        until = latest if until is None else min(until, latest)
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
        for uid in uids:
            if uid not in claims:
                # A lost state may have known it; its file must not be taken for a living claim's by the next sweep.
                parts.cdi.remove(uid)
        errors = undo(parts, list(claims.values()), until=until)
        return {
            uid: Refusal(f"cannot unprepare claim {claims[uid].ref}: {error}")
            for uid, error in errors.items()
            if error is not None
        }
