# SPDX-License-Identifier: Apache-2.0
"""Who has the units that were given out, and when are they free?

Three witnesses know a part each:

* The kubelet's checkpoint names the pod of each set of units, by its UID. The kubelet writes it at the end of a container's admission,
  before the container starts, and keeps the names of ended pods until it gives their units away. So an entry counts for a row only if the
  file was written after the row's call began.
* The pods' cgroups show whether anything runs. A pod's cgroup is made after its admission.
* The kubelet's pod-resources list the units of active pods, without the UIDs of the pods and without init containers.

The kubelet admits one pod at a time. So a new call that names the units of a row says that the admission of the row's pod has ended, or that
the same pod gets them again, for a container after an init container.

A row is over when its pod had processes, and has neither a process nor a cgroup any more: a pod whose sandbox has died has no process for a
moment, and its containers start again without a call. If pod-resources stop listing a pod whose processes run on (it was deleted by
force), the row is held: its units are listed as unhealthy, so that the kubelet gives them to nobody.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import DevicesFreed, UnitsIdentified
from dra_driver.model.ids import ClaimUid, PodUid, ResourceName, UnitId
from dra_driver.model.plan import Forget
from dra_driver.model.plugin import KubeletCheckpoint
from dra_driver.model.presence import Gone
from dra_driver.model.state import CallBegun, PreparedClaim, Unknown, Users
from dra_driver.planning.plugin.parted import Parted, parted
from dra_driver.planning.plugin.rows import describes, shares_units, units_of
from dra_driver.planning.unprepare import plan_unanswered
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.parts import AllClaims, NodeParts
from dra_driver.services.plugin.memory import Memory, Remembered
from dra_driver.services.plugin.parting import part
from dra_driver.services.plugin.witnesses import ADMISSION_SECONDS, ActiveLists, Witnesses
from dra_driver.services.release import Silence
from dra_driver.services.take_back import devices_of, end_late, undo

SETTLED_SECONDS = 1.0  # the kubelet notes the answer of Allocate at once
GRACE_SECONDS = 10.0  # an admitted pod gets its cgroup at once
FREE_SECONDS = 5.0
ENDED = "its pod has ended"
FORGOTTEN = "the kubelet does not list its pod any more"
REUSED = "the kubelet gives its units to another container"
_JUST_GIVEN = "it was just given to a container"


class Again(Struct, frozen=True):
    """The pod of this row gets its units a second time; another container of it answers for them."""

    row: PreparedClaim


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
        self._freed = freed
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._memory = Memory(parts.clock)
        self._lists = ActiveLists(witnesses, parts.clock)

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
        version, _ = self._witnesses.checkpoint()
        pods = self._witnesses.pods()
        begun = None if isinstance(pods, Unknown) else CallBegun(version, pods)
        self._memory.begin(uid, version, begun)
        return begun

    def answered(self, uid: ClaimUid) -> None:
        """The kubelet gets the units."""
        self._memory.answered(uid)

    def set_up_again(self, row: PreparedClaim) -> None:
        """The node was rebooted, and the kubelet starts the row's pod without a call, once it has heard of it."""
        self._memory.of(row).rebooted = True

    def give_up(self, row: PreparedClaim, locks: ClaimLocks) -> None:
        """The kubelet gets an error, so no container can start with the row: take it back. If that cannot be done now, or if work on it goes on,
        it is done later.
        """
        known = self._memory.of(row)
        known.unanswered, known.in_call = True, False
        if locks.holds(row.ref.uid):
            try:
                self._forget(row, locks)
            except DriverError as error:
                self._not_freed(row, error)

    def not_given(self, rows: Iterable[PreparedClaim]) -> None:
        """The call that was to get the units of these rows again is refused, so no other pods than before may have them."""
        for row in rows:
            self._note_failure(row)

    def for_another(
        self, ref: ClaimRef, resource: ResourceName, units: frozenset[UnitId], *, until: float
    ) -> Again | str:
        """A call for these units needs a device of this row. Returns Again, or why the row must stay for now; empty if it is gone."""
        row = self._parts.row(ref.uid)
        if row is None:
            return ""
        row = self._identified(row)
        found = self._parted(row)
        asked = found is not None and row.ref.name == resource and units_of(found.rest) & units
        # The kubelet gives out only what nobody has. Without its call the checkpoint alone does not say so.
        if found is not None and (asked or not self._may_have(found.rest)):
            reason = self._part(row, found, until)
            if asked or not reason:
                return reason
        if row.held is None and not (row.ref.name == resource and units_of(row) & units):
            # Other units of the same hardware: a share and the whole device, or two resources. So the call says nothing about the row's pod.
            return self.needed(row) or self._take_back(row, ENDED, until)
        if row.held is not None or row.boot_id != self._store.boot_id:
            return self._take_back(row, REUSED, until)
        return self._asked_for(row, units, until)

    def _asked_for(self, row: PreparedClaim, units: frozenset[UnitId], until: float) -> Again | str:
        known = self._memory.of(row)
        if known.in_call:
            return "another call sets it up"
        _, checkpoint = self._witnesses.checkpoint()
        several = len(row.users.pods or ()) > 1 and not units_of(row) <= units
        if several and isinstance(checkpoint, Unknown):
            return f"who has its other units is not known: {checkpoint.reason}"
        if row.users.has_unknown:
            if row.users.pods is None or not self._is_unwritten(known):
                return self._take_back_unnamed(row, known, until)
            row = self._note_failure(row)
        # Of units that were taken up from another plugin, or that are being taken back, there is no answer that could be given again.
        if not describes(row, units) or known.seen or self._runs(row):
            return self._take_back(row, REUSED, until)
        return self._give_again(row, known)

    def _give_again(self, row: PreparedClaim, known: Remembered) -> Again | str:
        """Nothing of the row's pod ever ran: that is about to start, and this is another container of it. The checkpoint will tell whether it
        is another pod, because the first one was not admitted in the end. Until then the row has the call, for the next process too.
        """
        version, checkpoint = self._witnesses.checkpoint()
        if isinstance(checkpoint, Unknown):
            return f"which pod gets it would not be known: {checkpoint.reason}"
        pods = self._witnesses.pods()
        # If the node does not show its pods, each pod that it shows later may be the one.
        call = CallBegun(version, frozenset() if isinstance(pods, Unknown) else pods)
        with ClaimLocks(self._parts.lock) as locks:
            if missed := locks.take([row.ref.uid], until=self._parts.clock(), purpose="giving"):
                return str(missed[row.ref.uid])
            found = self._parts.row(row.ref.uid)
            if found != row:
                return "" if found is None else "it has just changed"
            # Before the row has the call: whoever looks then must not take an older entry for its pod's.
            known.since, known.settled = self._parts.clock(), None
            known.begun, known.before = version, call.pods
            return Again(self._note(row, Users((), sole=row.users.sole, call=call)))

    def needed(self, row: PreparedClaim) -> str:
        """Return why a row must stay, although a claim asks for its device; empty if it is free for all that is known."""
        if row.boot_id != self._store.boot_id:
            return self._needed_after_boot(row)
        if row.users.has_unknown:
            return "the kubelet's checkpoint has not named its pod yet"
        return "" if self._is_over(row) else "its pod runs, or is about to start"

    # What it does on its own.

    def once(self) -> None:
        """Learn the pods of rows, and take back what is free. Raises DriverError if the state cannot be read."""
        rows = self.rows()
        self._memory.keep(rows)
        boot_id = self._store.boot_id
        # In this order: a pod that the checkpoint names now is listed, if it is active.
        left = [
            self._identified(row) if row.boot_id == boot_id else row
            for row in rows
            if row.held is None
        ]
        for row in rows:
            if row.held is not None and row.users.call is not None and row.boot_id == boot_id:
                # When it was held, the node did not show its pods.
                self._with_suspects(row, self._memory.of(row))
        unlisted = self._lists.look(left)
        for row in left:
            if row.boot_id == boot_id:
                self._judge(row, unlisted)

    def _judge(self, row: PreparedClaim, unlisted: Collection[ClaimUid]) -> None:
        known = self._memory.of(row)
        if known.in_call:
            return
        if known.unanswered:
            self._forgotten(row)
        elif row.users.has_unknown:
            self._await(row, known)
        elif self._is_over(row):
            self._tried(row, partial(self._take_back, row, ENDED))
        else:
            found = self._parted(row)
            is_new = self._parts.clock() - known.since < GRACE_SECONDS
            if found is not None and not is_new and not self._may_have(found.rest):
                self._tried(row, partial(self._part, row, found))
            if row.ref.uid in unlisted:
                self._tried(row, partial(self._take_back, row, FORGOTTEN))

    def _await(self, row: PreparedClaim, known: Remembered) -> None:
        """No checkpoint has named the pod of the last call yet."""
        if not self._has_failed(row, known):
            self._suspect(row, known)
        elif row.users.pods is None:
            self._forgotten(row)
        else:
            with ClaimLocks(self._parts.lock) as locks:
                missed = locks.take([row.ref.uid], until=self._parts.clock(), purpose="noting")
                # Another call may have begun while pod-resources were asked. It has the lock while it notes that.
                if not missed and self._is_late(known):
                    self._note_failure(row)

    def _identified(self, row: PreparedClaim) -> PreparedClaim:
        """Write the pod of the row into the state, if the checkpoint names it.

        Also if it has named one before: the kubelet may have written the file from what it knew before the call, and another process does not
        know when the call began. Such an entry names the pod that had the units last.
        """
        known = self._memory.of(row)
        if known.in_call or known.unanswered or not row.ref.name or row.held is not None:
            return row
        written, checkpoint = self._witnesses.checkpoint()
        if isinstance(checkpoint, Unknown) or written in (known.begun, known.read):
            return row
        found = [one for one in checkpoint.containers if shares_units(one, row)]
        if not found:
            return row
        users = Users(tuple(dict.fromkeys(one.pod for one in found)), sole=True)
        if row.users.joined(users) == row.users:
            known.read = written
            return row
        noted = self._note(row, users)
        if noted.users == row.users.joined(users):
            known.read, known.since = written, self._parts.clock()
            self._parts.observe(UnitsIdentified(row.ref, found[0].pod, found[0].container))
        return noted

    def _note(self, row: PreparedClaim, users: Users) -> PreparedClaim:
        """Add users to the row; their `call` takes the place of the row's. Returns the row.

        If it has got others since it was read, these stay: a call that began meanwhile is not over.
        """
        uid = row.ref.uid
        with self._parts.store.transaction("joined") as transaction:
            found = transaction.read(uids=[uid]).claims.get(uid)
            if found is not None and found.users == row.users:
                transaction.add_users(uid, users)
        return self._parts.row(uid) or row

    def _note_failure(self, row: PreparedClaim) -> PreparedClaim:
        """The last call has led to no container: whoever had the units before it is to be judged."""
        return self._note(row, Users((), sole=row.users.sole))

    def _has_failed(self, row: PreparedClaim, known: Remembered) -> bool:
        """Whether the admission of the row's container has failed: nothing was written since, for long, and no active pod has it."""
        return self._is_late(known) and self._is_unwritten(known) and not self._lists.lists(row)

    def _is_late(self, known: Remembered) -> bool:
        return self._parts.clock() - known.since >= ADMISSION_SECONDS

    def _is_unwritten(self, known: Remembered) -> bool:
        """Whether the kubelet has written no checkpoint since the last call: if its admission has ended, then without success."""
        written, checkpoint = self._witnesses.checkpoint()
        same = not isinstance(checkpoint, Unknown) and written == known.begun
        return known.before is not None and same

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
        if (found := self._with_suspects(row, known)) is not None:
            self._tried(found, partial(self._take_back, found, FORGOTTEN))

    def _with_suspects(self, row: PreparedClaim, known: Remembered) -> PreparedClaim | None:
        """Name each pod that has come since the call. Returns None if the row has been given to a container meanwhile."""
        pods = self._witnesses.pods()
        if known.before is None or isinstance(pods, Unknown):
            return row
        found = self._note(row, Users(tuple(sorted(pods - known.before))))
        return found if found.users.call is None else None

    def _take_back_unnamed(self, row: PreparedClaim, known: Remembered, until: float) -> str:
        if known.unanswered or self._is_unwritten(known):
            # The kubelet has ended that admission without a note: its pod was refused, and has no container.
            self._forgotten(row)
            return "" if self._parts.row(row.ref.uid) is None else "it is being taken back"
        found = self._with_suspects(row, known)
        if found is None:
            return _JUST_GIVEN
        return self._take_back(found, REUSED, until)

    def _runs(self, row: PreparedClaim) -> bool:
        presence = self._parts.usage.presence
        if presence is None:
            return self._lists.lists(row)
        found = presence(row.users.pods or ())
        alive = {pod for pod, one in found.items() if not isinstance(one, Gone)}
        self._memory.of(row).seen |= alive
        return bool(alive)

    def _has_cgroup(self, row: PreparedClaim) -> bool:
        """Whether the kubelet keeps a cgroup for a pod of the row, also an empty one. Then the pod may start, or start again after its sandbox has
        died, and neither is preceded by a call of Allocate.
        """
        pods = self._witnesses.pods()
        return not isinstance(pods, Unknown) and not pods.isdisjoint(row.users.pods or ())

    def _is_named(self, row: PreparedClaim) -> bool:
        _, checkpoint = self._witnesses.checkpoint()
        if isinstance(checkpoint, Unknown):
            return True
        return any(shares_units(one, row) for one in checkpoint.containers)

    def _is_over(self, row: PreparedClaim) -> bool:
        """Whether the row's pod has ended, or will not start."""
        if self._runs(row) or self._has_cgroup(row):
            return False
        if self._parts.usage.presence is None and self._is_named(row):
            # Only the kubelet is left to say it, and a new one lists no pod at first: `_unlisted` knows how long it is the same one.
            return False
        known = self._memory.of(row)
        age = self._parts.clock() - known.since
        # One pod of several may have ended, and another one that has the units now may be about to start.
        pods = frozenset(row.users.pods or ())
        if pods and pods <= known.seen:
            return True
        # Another process may have been told of it after a reboot, or a moment ago.
        is_new = known.rebooted or known.read is None
        grace = ADMISSION_SECONDS if is_new else GRACE_SECONDS
        return age >= grace and not self._lists.lists(row)

    def _needed_after_boot(self, row: PreparedClaim) -> str:
        _, checkpoint = self._witnesses.checkpoint()
        if isinstance(checkpoint, Unknown):
            return Silence(
                f"whether a pod gets it again after the reboot is not known: {checkpoint.reason}"
            )
        return "its pod may start again after the reboot" if self.comers(row, checkpoint) else ""

    def comers(self, row: PreparedClaim, checkpoint: KubeletCheckpoint) -> tuple[PodUid, ...]:
        """Return the pods of the checkpoint that may start again with units of a row of an earlier boot.

        The kubelet keeps its entries of ended pods. A pod that it knows has a cgroup, also while it waits to start, and is active. So a pod without
        a cgroup has ended, if the kubelet has had the time to hear of it and does not list the units.
        """
        named = dict.fromkeys(one.pod for one in checkpoint.containers if shares_units(one, row))
        pods = self._witnesses.pods()
        if not named or isinstance(pods, Unknown) or not self._lists.is_long_absent(row):
            return tuple(named)
        return tuple(pod for pod in named if pod in pods)

    # Taking back.

    def _tried(self, row: PreparedClaim, free: Callable[[float], str]) -> None:
        try:
            free(self._parts.clock() + FREE_SECONDS)
        except DriverError as error:
            self._not_freed(row, error)

    def _not_freed(self, row: PreparedClaim, error: DriverError) -> None:
        self._log.warning("units_not_freed", row=str(row.ref), error=str(error))

    def _take_back(self, judged: PreparedClaim, because: str, until: float) -> str:
        """Release a row, or hold it. Returns why it is held; empty if it is free."""
        parts, ref = self._parts, judged.ref
        with ClaimLocks(parts.lock) as locks:
            if missed := locks.take([ref.uid], until=parts.clock(), purpose="releasing"):
                return str(missed[ref.uid])
            row = parts.row(ref.uid)
            if row is None:
                return ""
            if row.users.call != judged.users.call:
                return _JUST_GIVEN
            error = undo(parts, locks, [row], because=because, until=until)[ref.uid]
        if error is None:
            held_since = row.held.since if row.held else ""
            parts.observe(DevicesFreed(ref, devices_of(row), held_since))
        if error is None or row.held is None:
            self._freed()
        return "" if error is None else str(error)

    def _parted(self, row: PreparedClaim) -> Parted | None:
        """Find units that nobody has any more, in a row that other pods have had before: a part of it was given again."""
        if row.held is not None or row.users.has_unknown:
            return None
        if len(row.devices) == 1 or len(row.users.pods or ()) == 1:
            return None  # so are most rows, and this is asked at each look
        _, checkpoint = self._witnesses.checkpoint()
        if isinstance(checkpoint, Unknown):
            return None
        return parted(row, checkpoint.containers)

    def _may_have(self, rest: PreparedClaim) -> bool:
        """Whether a pod of before may be about to start with these units after all: the kubelet may have written an older checkpoint last."""
        return self._has_cgroup(rest) or self._lists.lists(rest)

    def _part(self, row: PreparedClaim, found: Parted, until: float) -> str:
        reason = part(self._parts, row, found, until)
        self._freed()  # or it is in the list as what nobody can get now
        return reason

    def _forgotten(self, row: PreparedClaim) -> None:
        with ClaimLocks(self._parts.lock) as locks:
            missed = locks.take([row.ref.uid], until=self._parts.clock(), purpose="releasing")
            # Who had the lock may have released it, or given it to somebody.
            if not missed and self._parts.row(row.ref.uid) == row:
                self._forget(row, locks)

    def _forget(self, row: PreparedClaim, locks: ClaimLocks) -> None:
        """Take back what no container can have. The caller has the row's lock."""
        parts, uid = self._parts, row.ref.uid
        plan = plan_unanswered(row)
        late = end_late(parts, locks, "released", Forget)
        until = parts.clock() + FREE_SECONDS
        if parts.executor.work([plan], until=until, late=late)[uid].error is None:
            parts.mark("released", [plan], Forget)
            self._freed()
