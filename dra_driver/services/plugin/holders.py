# SPDX-License-Identifier: Apache-2.0
"""Who has the units that were given out, and when are they free?

Three witnesses know a part each:

* The kubelet's checkpoint names the pod of each set of units, by its UID (`naming.py`).
* The pods' cgroups show whether anything runs. A pod's cgroup is made after its admission.
* The kubelet's pod-resources list the units of active pods, without the UIDs of the pods and without init containers.

`living.py` judges by them who may still have a row, `giving.py` answers a call that needs units of one, and `taking_back.py` takes rows and parts of
them back. What is here looks from time to time. If pod-resources stop listing a pod whose processes run on (it was deleted by
force), the row is held: its units are listed as unhealthy, so that the kubelet gives them to nobody.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.model.ids import ClaimUid
from dra_driver.model.state import CallBegun, PreparedClaim, Unknown
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.parts import AllClaims, NodeParts
from dra_driver.services.plugin.giving import Giving
from dra_driver.services.plugin.living import Living
from dra_driver.services.plugin.memory import Memory, Remembered
from dra_driver.services.plugin.naming import Naming
from dra_driver.services.plugin.taking_back import ENDED, FORGOTTEN, TakingBack
from dra_driver.services.plugin.witnesses import (
    ADMISSION_SECONDS,
    ActiveLists,
    Witnesses,
)

SETTLED_SECONDS = 1.0  # the kubelet notes the answer of Allocate at once


class PluginStore(Protocol):
    """The methods of the state store that this service calls."""

    @property
    def boot_id(self) -> str:
        """The ID of this boot."""

    def reading(self) -> AbstractContextManager[AllClaims]:
        """Read without a transaction."""


class Holders:
    """Looks after the rows of the device plugin API. `once` may be called at any time. It calls `freed` after a change of what can be
    given out.
    """

    def __init__(
        self,
        parts: NodeParts,
        store: PluginStore,
        witnesses: Witnesses,
        *,
        freed: Callable[[], None],
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._parts = parts
        self._store = store
        self._witnesses = witnesses
        self._memory = Memory(parts.clock)
        self._lists = ActiveLists(witnesses, parts.clock)
        self._living = Living(parts, witnesses, self._memory, self._lists)
        self._naming = Naming(parts, witnesses, self._memory)
        self._take_back = TakingBack(parts, freed=freed, log=log)
        giving = Giving(
            parts,
            witnesses,
            self._memory,
            living=self._living,
            naming=self._naming,
            take_back=self._take_back,
        )
        self.for_another = giving.for_another
        self.needed, self.comers = self._living.needed, self._living.comers

    def rows(self) -> tuple[PreparedClaim, ...]:
        """Return the rows of the device plugin API. Raises DriverError."""
        return tuple(row for row in self.all_rows() if row.ref.of_plugin)

    def all_rows(self) -> tuple[PreparedClaim, ...]:
        """Return these rows and those of claims. Raises DriverError."""
        with self._store.reading() as state:
            return state.all_claims()

    # What AllocateUnits tells and asks.

    def expect(self, uid: ClaimUid) -> CallBegun | None:
        """A call begins: what the witnesses say now has nothing to do with it. Returns what they say; None if they are silent."""
        version, checkpoint = self._witnesses.checkpoint()
        pods = self._witnesses.pods()
        begun = None if isinstance(pods, Unknown) else CallBegun(version, pods)
        entries = () if isinstance(checkpoint, Unknown) else checkpoint.containers
        self._memory.begin(uid, version, begun, entries)
        return begun

    def answered(self, uid: ClaimUid) -> None:
        """The kubelet gets the units."""
        self._memory.answered(uid)

    def set_up_again(self, row: PreparedClaim) -> None:
        """The node was rebooted, and the kubelet starts the row's pod without a call, once it has heard of it."""
        known = self._memory.of(row)
        known.rebooted = known.witnessed = True

    def give_up(self, row: PreparedClaim, locks: ClaimLocks) -> None:
        """The kubelet gets an error, so no container can start with the row: take it back. If that cannot be done now, or if work on it goes on,
        it is done later.
        """
        known = self._memory.of(row)
        known.unanswered, known.in_call = True, False
        if locks.holds(row.ref.uid):
            try:
                self._take_back.forget(row, locks)
            except DriverError as error:
                self._take_back.not_freed(row, error)

    def not_given(self, rows: Iterable[PreparedClaim]) -> None:
        """The call that was to get the units of these rows again is refused, so no other pods than before may have them."""
        for row in rows:
            self._naming.note_failure(row)

    # What it does on its own.

    def once(self) -> None:
        """Learn the pods of rows, and take back what is free. Raises DriverError if the state cannot be read."""
        rows = self.rows()
        self._memory.keep(rows)
        boot_id = self._store.boot_id
        # In this order: a pod that the checkpoint names now is listed, if it is active.
        left = [
            self._naming.identified(row) if row.boot_id == boot_id else row
            for row in rows
            if row.held is None
        ]
        for row in rows:
            if row.held is not None and row.users.call is not None and row.boot_id == boot_id:
                # When it was held, the node did not show its pods.
                self._naming.with_suspects(row, self._memory.of(row))
        unlisted = self._lists.look(left)
        for row in left:
            if row.boot_id == boot_id:
                self._judge(row, unlisted)

    def _judge(self, row: PreparedClaim, unlisted: Collection[ClaimUid]) -> None:
        known = self._memory.of(row)
        if known.in_call:
            return
        if known.unanswered:
            self._take_back.forgotten(row)
        elif row.users.has_unknown:
            self._await(row, known)
        elif self._living.is_over(row):
            self._take_back.tried(row, partial(self._take_back.whole, row, ENDED))
        else:
            if (found := self._living.parted(row)) is not None:
                self._take_back.tried(row, partial(self._take_back.part, row, found))
            if row.ref.uid in unlisted:
                self._take_back.tried(row, partial(self._take_back.whole, row, FORGOTTEN))

    def _await(self, row: PreparedClaim, known: Remembered) -> None:
        """No checkpoint has named the pod of the last call yet."""
        if not self._has_failed(row, known):
            self._suspect(row, known)
        elif row.users.pods is None:
            self._take_back.forgotten(row)
        else:
            with ClaimLocks(self._parts.lock) as locks:
                missed = locks.take([row.ref.uid], until=self._parts.clock(), purpose="noting")
                # Another call may have begun while pod-resources were asked. It has the lock while it notes that.
                if not missed and self._is_late(known):
                    self._naming.note_failure(row)

    def _has_failed(self, row: PreparedClaim, known: Remembered) -> bool:
        """Whether the admission of the row's container has failed: nothing was written since, for long, and no active pod has it."""
        return (
            self._is_late(known) and self._naming.is_unwritten(known) and not self._lists.lists(row)
        )

    def _is_late(self, known: Remembered) -> bool:
        return self._parts.clock() - known.since >= ADMISSION_SECONDS

    def _suspect(self, row: PreparedClaim, known: Remembered) -> None:
        """Checkpoints were written since the call, and the one that is there does not name the row. So every pod that has come since may
        have it, and nobody else.
        """
        written, checkpoint = self._witnesses.checkpoint()
        age = self._parts.clock() - known.since
        if isinstance(checkpoint, Unknown) or not row.ref.name or age < SETTLED_SECONDS:
            return
        if known.settled is None:
            known.settled = written
        # The admission may go on as long as plugins of its other resources take, while lists of any plugin are written.
        if age < ADMISSION_SECONDS or written == known.settled:
            return
        if (found := self._naming.with_suspects(row, known)) is not None:
            self._take_back.tried(found, partial(self._take_back.whole, found, FORGOTTEN))
