# SPDX-License-Identifier: Apache-2.0
"""Devices of claims that are needed no more, until it is shown that nothing uses them.

The kubelet was answered long ago; nobody asks again. So every second the rows that are held are looked at, by the leader: those of
another boot, those whose pods have all ended by now, and those for which an admin vouches give their devices back.

Claims of which the cluster says that they are allocated no more, or elsewhere, are suspects: they are judged by the rule of
`dra_driver.services.release` once, as a sweep would.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Event, Lock
from typing import Protocol

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import HeldCounted, StillHeld
from dra_driver.model.ids import ClaimUid
from dra_driver.model.state import PreparedClaim
from dra_driver.services.execute import StillUsed
from dra_driver.services.parts import NodeParts, Transaction
from dra_driver.services.release import STILL_EXISTS
from dra_driver.services.take_back import devices_of, release_if_unneeded

LOOK_SECONDS = 1.0
ASK_AGAIN_SECONDS = 5.0  # between two questions to the API server about one claim
SUSPECT_SECONDS = (
    30.0  # between two looks at a suspect that a pod holds, or about which nobody could be asked
)
FREE_SECONDS = 5.0  # what takes longer goes on, while the others are looked at
TOLD_SECONDS = 30.0  # what is held no longer is an ordinary end


class HeldClaims(Transaction, Protocol):
    """A transaction that can list what is held."""

    def held_claims(self) -> tuple[PreparedClaim, ...]:
        """The rows whose devices are held."""


class HeldStore(Protocol):
    """The state as the keeper sees it."""

    def reading(self) -> AbstractContextManager[HeldClaims]:
        """Read only."""


class HeldDevices:
    """`once` may be called at any time. `freed` is called when devices were given back."""

    def __init__(
        self,
        parts: NodeParts,
        store: HeldStore,
        *,
        freed: Callable[[], None],
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._parts = parts
        self._store = store
        self._freed = freed
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._mutex = Lock()
        self._suspects: dict[ClaimRef, float] = {}  # and when to look at them
        self._known: dict[ClaimUid, _Known] = {}
        self._count = 0

    def suspect(self, ref: ClaimRef) -> None:
        """The cluster says that this claim is not what it was when it was prepared."""
        with self._mutex:
            self._suspects[ref] = self._parts.clock()

    def run(self, stop: Event, *, wait: Callable[[Event, float], bool] = Event.wait) -> None:
        """Look again and again until `stop`."""
        while not wait(stop, LOOK_SECONDS):
            try:
                self.once()
            except DriverError as error:
                self._log.warning("held_devices_not_looked_at", error=str(error))

    def once(self) -> None:
        """Look at what is held and at the suspects. Raises DriverError if the state cannot be read."""
        self._judge_suspects()
        with self._store.reading() as state:
            rows = state.held_claims()
        now = self._parts.clock()
        self._known = {row.ref.uid: self._known.get(row.ref.uid) or _Known(now) for row in rows}
        left = [row for row in rows if not self._free(row, self._known[row.ref.uid], now)]
        if len(left) < len(rows):
            self._freed()
        if len(left) != self._count:
            self._count = len(left)
            self._parts.observe(HeldCounted(self._count))

    def _free(self, row: PreparedClaim, known: "_Known", now: float) -> bool:
        if row.held is not None and row.held.unasked:
            if now < known.ask_at:
                return False
            known.ask_at = now + ASK_AGAIN_SECONDS
        try:
            # One try for its lock: whoever holds it is at work on the claim, which is well.
            release_if_unneeded(self._parts, row.ref, lock_until=now, until=now + FREE_SECONDS)
        except StillUsed as error:
            if now - known.since >= TOLD_SECONDS and not known.told and row.held is not None:
                known.told = True
                self._parts.observe(StillHeld(row.ref, devices_of(row), row.held.since, str(error)))
            return False
        except DriverError as error:
            if str(error) != known.failure:
                known.failure = str(error)
                self._log.warning("held_device_not_freed", claim=str(row.ref), error=str(error))
            return False
        return True

    def _judge_suspects(self) -> None:
        now = self._parts.clock()
        with self._mutex:
            due = [ref for ref, at in self._suspects.items() if at <= now]
            self._suspects |= dict.fromkeys(due, now + SUSPECT_SECONDS)
        for ref in due:
            if self._is_judged(ref, now):
                with self._mutex:
                    self._suspects.pop(ref, None)

    def _is_judged(self, ref: ClaimRef, now: float) -> bool:
        try:
            reason = release_if_unneeded(self._parts, ref, lock_until=now, until=now + FREE_SECONDS)
        except StillUsed:
            return True  # it is held from now on
        except DriverError as error:
            reason = str(error)
        if reason not in ("", STILL_EXISTS):
            self._log.info("claim_changed_and_stays", claim=str(ref), reason=reason)
        return reason in ("", STILL_EXISTS)


class _Known:
    """What this keeper remembers of a row between two looks."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.ask_at = since
        self.told = False
        self.failure = ""
