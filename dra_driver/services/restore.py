# SPDX-License-Identifier: Apache-2.0
"""While running: put back CDI files that somebody else changed or removed.

The kubelet asks once for a claim and remembers the answer. A container that starts later, again or in a second pod, meets the
file as it stands then, and a runtime that cannot read it lets the pod hang. So the directory's entries are looked at every few
seconds, and a file is read when its entry changed.
"""

from collections.abc import Callable, Collection, Mapping
from threading import Event

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import Recovered
from dra_driver.model.ids import ClaimUid
from dra_driver.model.state import Phase, PreparedClaim
from dra_driver.services.execute import CALL_SECONDS
from dra_driver.services.parts import NodeParts
from dra_driver.services.recover import WholeStore

LOOK_SECONDS = 5.0

Entries = Callable[[], Mapping[ClaimUid, object]]
_LOOK_AGAIN = object()  # no entry is equal to it


class RestoreFiles:
    """`once` may be called at any time. `entries` answers something for each claim's file that changes whenever the file does."""

    def __init__(
        self,
        parts: NodeParts,
        store: WholeStore,
        entries: Entries,
        *,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._parts = parts
        self._store = store
        self._entries = entries
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._well: Mapping[ClaimUid, object] | None = None  # the entries with which all was well

    def run(self, stop: Event, *, wait: Callable[[Event, float], bool] = Event.wait) -> None:
        """Look again and again until `stop`."""
        while not wait(stop, LOOK_SECONDS):
            try:
                failures = self.once()
            except DriverError as error:
                self._log.warning("cdi_files_not_checked", error=str(error))
                continue
            for uid, failure in failures.items():
                self._log.warning("cdi_file_not_restored", claim_uid=uid, error=str(failure))

    def once(self) -> Mapping[ClaimUid, DriverError]:
        """Compare, and write what differs from the state; answers what failed. Raises DriverError if nobody can look."""
        seen = self._entries()
        suspects = [claim.ref for claim in self._changed(seen) if self._differs(claim)]
        failures: dict[ClaimUid, DriverError] = {}
        restored = 0
        for ref in suspects:
            try:
                restored += self._restore(ref)
            except DriverError as error:
                failures[ref.uid] = error
        if restored:
            self._parts.observe(Recovered(rewritten=restored, released=0, removed_files=0))
        self._well = {**seen, **{ref.uid: _LOOK_AGAIN for ref in suspects}}
        return failures

    def _changed(self, seen: Mapping[ClaimUid, object]) -> Collection[PreparedClaim]:
        """Claims whose entries changed since all was well; at first every claim."""
        well = self._well
        with self._store.reading() as state:
            if well is None:
                return state.all_claims()
            changed = [uid for uid in {*seen, *well} if seen.get(uid) != well.get(uid)]
            return state.read(uids=changed).claims.values()

    def _differs(self, claim: PreparedClaim) -> bool:
        prepared = (claim.phase, claim.boot_id) == (Phase.PREPARED, self._store.boot_id)
        return prepared and self._parts.cdi.read(claim.ref.uid) != claim.cdi_spec

    def _restore(self, ref: ClaimRef) -> bool:
        parts = self._parts
        # A call may be at work on the very claim: what is true counts under its lock.
        with parts.lock([f"claim-{ref.uid}"], parts.clock() + CALL_SECONDS, "restoring its file"):
            with parts.store.reading() as state:
                claim = state.read(uids=[ref.uid]).claims.get(ref.uid)
            if claim is None or not self._differs(claim):
                return False
            self._log.warning("cdi_file_changed_by_somebody_else", claim=str(ref))
            parts.cdi.write(ref.uid, claim.cdi_spec)
        return True
