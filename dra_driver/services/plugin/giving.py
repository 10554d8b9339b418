# SPDX-License-Identifier: Apache-2.0
"""A call needs units that a row has: what is the row's pod, and what does the call get?

The kubelet admits one pod at a time. So a new call that names the units of a row says that the admission of the row's pod has ended, or that
the same pod gets them again, for a container after an init container.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import PodUid, ResourceName, UnitId
from dra_driver.model.plugin import KubeletCheckpoint
from dra_driver.model.state import CallBegun, PreparedClaim, Unknown, Users
from dra_driver.planning.plugin.parted import Parted, parted_by_call
from dra_driver.planning.plugin.rows import answered_units, sharing, units_of
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.parts import NodeParts
from dra_driver.services.plugin.living import Living
from dra_driver.services.plugin.memory import Memory, Remembered
from dra_driver.services.plugin.naming import Naming
from dra_driver.services.plugin.taking_back import ENDED, JUST_GIVEN, REUSED, TakingBack
from dra_driver.services.plugin.witnesses import Witnesses


class Again(Struct, frozen=True):
    """The pod of this row gets its units a second time; another container of it answers for them."""

    row: PreparedClaim


class _Call(Struct, frozen=True):
    """A call that asks for units of a row, with what is known of the row."""

    row: PreparedClaim
    asked: frozenset[UnitId]
    known: Remembered
    checkpoint: KubeletCheckpoint
    until: float

    @property
    def is_named(self) -> bool:
        """Whether the checkpoint names a pod for a unit that is asked for."""
        mine = sharing(self.checkpoint.containers, self.row)
        return any(not one.units.isdisjoint(self.asked) for one in mine)

    def parted(self, suspects: Iterable[PodUid] = ()) -> Parted | None:
        """Make the asked units the rest of the row; None if they are all of it."""
        return parted_by_call(self.row, self.asked, self.checkpoint.containers, suspects)


class Giving:
    """Answers for the owners of units that a call needs."""

    def __init__(
        self,
        parts: NodeParts,
        witnesses: Witnesses,
        memory: Memory,
        *,
        living: Living,
        naming: Naming,
        take_back: TakingBack,
    ) -> None:
        self._parts = parts
        self._witnesses = witnesses
        self._memory = memory
        self._living = living
        self._naming = naming
        self._take_back = take_back

    def for_another(
        self, ref: ClaimRef, resource: ResourceName, units: frozenset[UnitId], *, until: float
    ) -> Again | str:
        """A call for these units needs a device of this row. Returns Again, or why the row must stay for now; empty if it is gone."""
        row = self._parts.row(ref.uid)
        if row is None:
            return ""
        row = self._naming.identified(row)
        if row.held is not None:
            return self._take_back.whole(row, REUSED, until)
        asked = units & units_of(row) if row.ref.name == resource else frozenset()
        if asked:
            return self._for_its_units(row, asked, until)
        return self._for_other_units(row, until)

    def _for_its_units(
        self, row: PreparedClaim, asked: frozenset[UnitId], until: float
    ) -> Again | str:
        known = self._memory.of(row)
        if known.in_call:
            return "another call sets it up"
        _, checkpoint = self._witnesses.checkpoint()
        if isinstance(checkpoint, Unknown):
            if asked != units_of(row):
                return f"who has its other units is not known: {checkpoint.reason}"
            checkpoint = KubeletCheckpoint()
        call = _Call(row, asked, known, checkpoint, until)
        if row.boot_id == self._parts.store.boot_id and row.users.has_unknown:
            return self._asked_for_unnamed(call)
        return self._asked_for(call)

    def _for_other_units(self, row: PreparedClaim, until: float) -> str:
        """A call for other units of the same hardware: a share and the whole device, or two resources. It says nothing about the row's pod."""
        reason = self._living.needed(row)
        if not reason:
            return self._take_back.whole(row, ENDED, until)
        found = self._living.parted(row)
        return reason if found is None else self._take_back.part(row, found, until)

    def _asked_for(self, call: _Call) -> Again | str:
        """The kubelet gives out only what nobody has: whoever had the units has ended, or gets them again now. But pods may have others of the row.
        While one of them may live, or it is not known whether the pod of the row is still being admitted, a call gets nothing but what it asks
        for, and the row is not held.
        """
        row, known, until = call.row, call.known, call.until
        found = call.parted()
        is_kept = found is not None and self._living.keep_units(found, call.checkpoint)
        # Of units that were taken up from another plugin, or that are being taken back, there is no answer that could be given again.
        if call.asked <= answered_units(row) and (call.is_named or not is_kept):
            part = row if found is None else found.rest
            if not self._living.may_have_run(row, part):
                return self._give_again(row, known)
        of_this_boot = row.boot_id == self._parts.store.boot_id
        in_admission = of_this_boot and not known.witnessed and self._living.is_new(known)
        # Another process may have taken an older entry for the note of the last call: whoever is listed has the other units, named or not.
        if found is not None and (is_kept or in_admission or self._living.is_listed(found.kept)):
            return self._take_back.part(row, self._living.proven(found), until)
        return self._take_back.whole(row, REUSED, until)

    def _asked_for_unnamed(self, call: _Call) -> Again | str:
        """No checkpoint has named the pod of the row's last call."""
        row, known, until = call.row, call.known, call.until
        if known.unanswered or self._naming.is_unwritten(known):
            # The kubelet has ended that admission without a note: its pod was refused, and has no container.
            if row.users.pods is not None and not known.unanswered:
                return self._asked_for(replace(call, row=self._naming.note_failure(row)))
            return self._take_back.forgotten(row)
        suspects = self._naming.suspects(known)
        found = call.parted(suspects or ())
        if suspects == () and self._may_be_of_same_pod(call, found):
            return self._give_again(row, known)
        # That pod may have others of its units than this call, or be the pod of this call.
        if found is not None and (row.users.pods is not None or self._living.is_new(known)):
            if suspects is None:
                return "the kubelet's checkpoint has not named its pod yet"
            return self._take_back.part(row, found, until)
        named = self._naming.with_suspects(row, known)
        return JUST_GIVEN if named is None else self._take_back.whole(named, REUSED, until)

    def _may_be_of_same_pod(self, call: _Call, found: Parted | None) -> bool:
        """Of an unnamed row, while no pod has come since the call: whether nothing ran with it. Then the pod of this call may have it, for an init
        container that no checkpoint has yet. Only if all of it is that pod's: a row that was given before may have another unnamed pod, with other units.
        """
        row, living = call.row, self._living
        if row.users.pods is not None and found is not None:
            return False
        if not (living.is_new(call.known) and call.asked <= answered_units(row)):
            return False
        return not living.may_have_run(row, replace(row, users=Users(row.users.pods or ())))

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
            known.entries = frozenset(checkpoint.containers)
            return Again(self._naming.note(row, Users((), sole=row.users.sole, call=call)))
