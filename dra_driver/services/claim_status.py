# SPDX-License-Identifier: Apache-2.0
"""Write what the driver knows of the devices of prepared claims into status.devices of the claims (option `device_status`).

This is for people and for programs that read claims. No pod waits for it: the kubelet's calls end before, and a cluster that refuses the
writes prepares claims as before. The queue is the state file itself: every LOOK_SECONDS, and after each preparation, the driver
compares what each Prepared row says with what it wrote for this claim before. So nothing is lost by a restart, claims of another
process are included, and no more is waiting than there are rows.

A failure costs only its claim: the next try for this claim comes later, and later each time. If a right is missing, the driver says so
once, and asks again every FORBIDDEN_SECONDS. If the API server does not answer, the other claims wait too, and at the next look those that failed least
come first: the server may have failed because of one claim.

Kubernetes removes the entries when the claim is deallocated, so unprepare writes nothing.
"""

from collections.abc import Callable, Sequence
from math import inf
from threading import Event

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError, Permanent
from dra_driver.kube.base import Conflict, Forbidden
from dra_driver.model.api.resource_claim import AllocatedDeviceStatus
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import (
    ClaimPrepared,
    DeviceStatusForbidden,
    DriverEvent,
    Recovered,
    WorkEnded,
)
from dra_driver.model.ids import ClaimUid
from dra_driver.model.state import Phase, PreparedClaim
from dra_driver.planning.allocation import is_allocation_of
from dra_driver.planning.device_status import entries_to_write, statuses_of
from dra_driver.services.pace import delay_after
from dra_driver.services.parts import NodeParts
from dra_driver.services.recover import WholeStore

LOOK_SECONDS = 30.0
FORBIDDEN_SECONDS = 300.0
_WAKE_SECONDS = 1.0

Statuses = tuple[AllocatedDeviceStatus, ...]
Get = Callable[[ClaimRef], Claim]
Report = Callable[[ClaimRef, Sequence[AllocatedDeviceStatus]], None]
Wait = Callable[[Event, float], bool]


class ChangedMeanwhile(Conflict):
    """The claim at the API server is another one than the prepared one, or is allocated in another way."""


class _Told(Struct):
    """What was written for a claim, and when to try again after a failure."""

    written: Statuses = ()
    tries: int = 0
    again_at: float = -inf


class ClaimStatuses:
    """Writes the entries of this node's claims. It is an observer of events: a preparation wakes it up, and never waits for it."""

    def __init__(
        self,
        parts: NodeParts,
        store: WholeStore,
        door: tuple[Get, Report],
        *,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._parts = parts
        self._store = store
        self._get, self._report = door
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._told: dict[ClaimUid, _Told] = {}
        self._woken = Event()
        self._is_forbidden = False

    def __call__(self, event: DriverEvent) -> None:
        if isinstance(event, ClaimPrepared | WorkEnded | Recovered):
            self._woken.set()

    def run(self, stop: Event, *, wait: Wait = Event.wait) -> None:
        """Write until `stop`."""
        look_at = -inf
        while not stop.is_set():
            if self._woken.is_set() or self._parts.clock() >= look_at:
                self._woken.clear()
                look_at = self._parts.clock() + LOOK_SECONDS
                try:
                    look_at = min(look_at, self.once(stop))
                except DriverError as error:  # the state cannot be read
                    self._log.warning("claim_statuses_not_written", error=str(error))
            wait(self._woken, _WAKE_SECONDS)

    def once(self, stop: Event | None = None) -> float:
        """Write the entries of each claim for which they changed. Returns when to try again at the latest. Raises DriverError if the
        state cannot be read.
        """
        with self._store.reading() as state:
            rows = {row.ref.uid: row for row in state.all_claims() if self._counts(row)}
        self._told = {uid: told for uid, told in self._told.items() if uid in rows}
        inventory = self._parts.inventory()
        for uid, row in sorted(rows.items(), key=lambda entry: self._tries(entry[0])):
            told = self._told.setdefault(uid, _Told())
            wanted = statuses_of(row, inventory, self._parts.place.driver, self._parts.place.pool)
            if wanted == told.written or self._parts.clock() < told.again_at:
                continue
            if (stop is not None and stop.is_set()) or not self._write(row, wanted, told):
                break
        return min((told.again_at for told in self._told.values() if told.tries), default=inf)

    def _tries(self, uid: ClaimUid) -> int:
        told = self._told.get(uid)
        return 0 if told is None else told.tries

    def _counts(self, row: PreparedClaim) -> bool:
        prepared = row.phase is Phase.PREPARED and row.boot_id == self._store.boot_id
        return prepared and bool(row.ref.name) and not row.ref.of_plugin

    def _write(self, row: PreparedClaim, wanted: Statuses, told: _Told) -> bool:
        """Write the entries of one claim. Returns whether the API server answered."""
        try:
            self._compare_and_write(row, wanted)
        except DriverError as error:
            told.again_at = self._parts.clock() + self._delay(row, error, told.tries)
            told.tries += 1
            return _is_of_the_claim(error)
        told.written, told.tries, told.again_at = wanted, 0, -inf
        self._is_forbidden = False
        return True

    def _compare_and_write(self, row: PreparedClaim, wanted: Statuses) -> None:
        place = self._parts.place
        claim = self._get(row.ref)
        if claim.ref.uid != row.ref.uid or not is_allocation_of(
            row, claim, place.driver, place.cdi_kind
        ):
            raise ChangedMeanwhile(f"claim {row.ref} is not allocated as it is prepared (any more)")
        entries = entries_to_write(wanted, claim, place.driver, self._parts.now())
        if entries:
            self._report(row.ref, entries)

    def _delay(self, row: PreparedClaim, error: DriverError, tries: int) -> float:
        """Report a failure. Returns the seconds until the next try for this claim."""
        if not isinstance(error, Forbidden):
            delay = delay_after(error, tries)
            self._log.info(
                "claim_status_not_written",
                claim=str(row.ref),
                error=str(error),
                again_in_seconds=delay,
            )
            return delay
        if not self._is_forbidden:
            self._is_forbidden = True
            self._parts.observe(DeviceStatusForbidden(row.ref, str(error)))
        return FORBIDDEN_SECONDS


def _is_of_the_claim(error: DriverError) -> bool:
    return isinstance(error, Permanent | Conflict)
