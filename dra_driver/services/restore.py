# SPDX-License-Identifier: Apache-2.0
"""While the driver runs, write CDI files and their metadata files again that somebody else changed or removed.

The kubelet calls the driver once for a claim and remembers the answer. When a container starts later (again, or in a second pod),
the container runtime reads the claim's CDI file; if the runtime cannot read the file, the container does not start. So the driver
lists the directory every LOOK_SECONDS, and reads a file if its entry changed.
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
_LOOK_AGAIN = object()  # differs from every entry, so the file is read again at the next check


class RestoreFiles:
    """Restores CDI files. `once` may be called at any time. `entries` returns a value for each claim's file: the value changes
    whenever the file changes.
    """

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
        self._well: Mapping[ClaimUid, object] | None = None  # the entries at the last check

    def run(self, stop: Event, *, wait: Callable[[Event, float], bool] = Event.wait) -> None:
        """Check every LOOK_SECONDS until `stop`."""
        while not wait(stop, LOOK_SECONDS):
            try:
                failures = self.once()
            except DriverError as error:
                self._log.warning("cdi_files_not_checked", error=str(error))
                continue
            for uid, failure in failures.items():
                self._log.warning("cdi_file_not_restored", claim_uid=uid, error=str(failure))

    def once(self) -> Mapping[ClaimUid, DriverError]:
        """Compare the changed files with the state, and write each file that differs. Returns the error of each claim whose file
        could not be written. Raises DriverError if the directory cannot be listed.
        """
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
        """Return the claims whose entries changed since the last check; at the first check, every claim."""
        well = self._well
        with self._store.reading() as state:
            if well is None:
                return state.all_claims()
            changed = [uid for uid in {*seen, *well} if seen.get(uid) != well.get(uid)]
            return state.read(uids=changed).claims.values()

    def _differs(self, claim: PreparedClaim) -> bool:
        prepared = (claim.phase, claim.boot_id) == (Phase.PREPARED, self._store.boot_id)
        if not prepared:
            return False
        uid, cdi = claim.ref.uid, self._parts.cdi
        if cdi.read(uid) != claim.cdi_spec:
            return True
        return bool(claim.metadata) and cdi.read_metadata(uid) != claim.metadata

    def _restore(self, ref: ClaimRef) -> bool:
        parts = self._parts
        # A call may be working on the claim. So take the claim's lock, and compare again.
        with parts.lock([f"claim-{ref.uid}"], parts.clock() + CALL_SECONDS, "restoring its file"):
            with parts.store.reading() as state:
                claim = state.read(uids=[ref.uid]).claims.get(ref.uid)
            if claim is None or not self._differs(claim):
                return False
            self._log.warning("cdi_file_changed_by_somebody_else", claim=str(ref))
            parts.cdi.write(ref.uid, claim.cdi_spec, claim.metadata)
        return True
