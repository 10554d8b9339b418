# SPDX-License-Identifier: Apache-2.0
"""While running: put back CDI files that somebody else changed or removed.

The kubelet asks once for a claim and remembers the answer. A container that starts later, again or in a second pod, meets the
file as it stands then, and a runtime that cannot read it lets the pod hang. So the files are looked at every few seconds;
only their directory entries while nothing changed.
"""

from collections.abc import Callable, Mapping
from threading import Event

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import Recovered
from dra_driver.model.ids import ClaimUid
from dra_driver.model.state import Phase, PreparedClaim
from dra_driver.services.execute import CALL_SECONDS
from dra_driver.services.prepare import NodeParts
from dra_driver.services.recover import Documents, WholeStore

LOOK_SECONDS = 5.0

Fingerprint = Callable[[], object]


class RestoreFiles:
    """`once` may be called at any time. `fingerprint` is something that changes whenever a document does."""

    def __init__(
        self,
        parts: NodeParts,
        store: WholeStore,
        documents: Documents,
        fingerprint: Fingerprint,
        *,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._parts = parts
        self._store = store
        self._documents = documents
        self._fingerprint = fingerprint
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._well: object = None  # the fingerprint with which all was well

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
        seen = self._fingerprint()
        if seen == self._well:
            return {}
        files = self._documents()
        with self._store.reading() as state:
            claims = state.all_claims()
        suspects = [claim.ref for claim in claims if self._differs(claim, files)]
        failures: dict[ClaimUid, DriverError] = {}
        restored = 0
        for ref in suspects:
            try:
                restored += self._restore(ref)
            except DriverError as error:
                failures[ref.uid] = error
        if restored:
            self._parts.observe(Recovered(rewritten=restored, released=0, removed_files=0))
        self._well = None if suspects else seen
        return failures

    def _differs(self, claim: PreparedClaim, files: Mapping[ClaimUid, str]) -> bool:
        prepared = (claim.phase, claim.boot_id) == (Phase.PREPARED, self._store.boot_id)
        return prepared and files.get(claim.ref.uid) != claim.cdi_spec

    def _restore(self, ref: ClaimRef) -> bool:
        parts = self._parts
        # A call may be at work on the very claim: what is true counts under its lock.
        with parts.lock([f"claim-{ref.uid}"], parts.clock() + CALL_SECONDS, "restoring its file"):
            with parts.store.reading() as state:
                claim = state.read(uids=[ref.uid]).claims.get(ref.uid)
            text = parts.cdi.read(ref.uid)
            if claim is None or not self._differs(claim, {} if text is None else {ref.uid: text}):
                return False
            self._log.warning("cdi_file_changed_by_somebody_else", claim=str(ref))
            parts.cdi.write(ref.uid, claim.cdi_spec)
        return True
