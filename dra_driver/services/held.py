# SPDX-License-Identifier: Apache-2.0
"""Release the devices of held rows, as soon as it is proved that no process uses them.

The kubelet got its answer already, so it does not call again for these claims. So the leader checks the held rows every second. A
row is released if it is of another boot, if all its pods have ended, or if an admin confirms that nothing uses its devices
(`dra-driver release`).

Suspects are claims that the API server reports as deleted, deallocated, or allocated in another way. The driver checks each
suspect by the rule of `dra_driver.services.release`, as a sweep does.
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
# Between two checks of a suspect, if a pod still uses it or one side did not answer.
SUSPECT_SECONDS = 30.0
FREE_SECONDS = 5.0  # work that takes longer goes on, while the next row is checked
TOLD_SECONDS = 30.0  # a shorter wait is normal when a pod ends, and is not reported


class HeldRows(Transaction, Protocol):
    """A transaction that can list the held rows."""

    def held_claims(self) -> tuple[PreparedClaim, ...]:
        """Return the held rows."""


class HeldStore(Protocol):
    """The methods of the state store that HeldDevices calls."""

    def reading(self) -> AbstractContextManager[HeldRows]:
        """Read without a transaction."""


class HeldDevices:
    """Releases the devices of held rows. `once` may be called at any time. It calls `freed` after it has released devices."""

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
        self._suspects: dict[ClaimRef, float] = {}  # with the time of the next check
        self._known: dict[ClaimUid, _Known] = {}
        self._count = 0

    def suspect(self, ref: ClaimRef) -> None:
        """Remember to check this claim: at the API server it is deleted, or not allocated any more as it was prepared."""
        with self._mutex:
            self._suspects[ref] = self._parts.clock()

    def run(self, stop: Event, *, wait: Callable[[Event, float], bool] = Event.wait) -> None:
        """Check every LOOK_SECONDS until `stop`."""
        while not wait(stop, LOOK_SECONDS):
            try:
                self.once()
            except DriverError as error:
                self._log.warning("held_devices_not_looked_at", error=str(error))

    def once(self) -> None:
        """Check the suspects and the held rows, and release what is free. Raises DriverError if the state cannot be read."""
        self._judge_suspects()
        with self._store.reading() as state:
            rows = state.held_claims()
        now = self._parts.clock()
        self._known = {row.ref.uid: self._known.get(row.ref.uid) or _Known(now) for row in rows}
        left = [row for row in rows if not self._free(row, self._known[row.ref.uid])]
        if len(left) < len(rows):
            self._freed()
        if len(left) != self._count:
            self._count = len(left)
            self._parts.observe(HeldCounted(self._count))

    def _free(self, row: PreparedClaim, known: "_Known") -> bool:
        # Each row has its time: releasing the rows before it may have taken long.
        now = self._parts.clock()
        if row.held is not None and row.held.unasked:
            if now < known.ask_at:
                return False
            known.ask_at = now + ASK_AGAIN_SECONDS
        try:
            # Try the lock only once: if it is taken, another thread works on the claim already.
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
    """What HeldDevices remembers about a row between two checks."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.ask_at = since
        self.told = False
        self.failure = ""
