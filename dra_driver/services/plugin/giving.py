# SPDX-License-Identifier: Apache-2.0
"""A call needs units that a row has: what is the row's pod, and what does the call get?

The kubelet admits one pod at a time. So a new call that names the units of a row says that the admission of the row's pod has ended, or that
the same pod gets them again, for a container after an init container.
"""

from msgspec import Struct

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ResourceName, UnitId
from dra_driver.model.plugin import KubeletCheckpoint
from dra_driver.model.state import CallBegun, PreparedClaim, Unknown, Users
from dra_driver.planning.plugin.parted import parted_by_call
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
        if not asked:
            return self._for_other_units(row, until)
        known = self._memory.of(row)
        if known.in_call:
            return "another call sets it up"
        if row.boot_id == self._parts.store.boot_id and row.users.has_unknown:
            return self._asked_for_unnamed(row, asked, known, until)
        return self._asked_for(row, asked, known, until)

    def _for_other_units(self, row: PreparedClaim, until: float) -> str:
        """A call for other units of the same hardware: a share and the whole device, or two resources. It says nothing about the row's pod."""
        reason = self._living.needed(row)
        if not reason:
            return self._take_back.whole(row, ENDED, until)
        found = self._living.parted(row)
        return reason if found is None else self._take_back.part(row, found, until)

    def _asked_for(
        self, row: PreparedClaim, asked: frozenset[UnitId], known: Remembered, until: float
    ) -> Again | str:
        """A call for units of the row. The kubelet gives out only what nobody has: whoever had them has ended, or gets them again now. But pods may
        have other units of the row. While one of them may live, or it is not known whether the pod of the row is still being admitted, a call gets
        nothing but what it asks for, and the row is not held.
        """
        _, checkpoint = self._witnesses.checkpoint()
        if isinstance(checkpoint, Unknown):
            if asked != units_of(row):
                return f"who has its other units is not known: {checkpoint.reason}"
            checkpoint = KubeletCheckpoint(())
        found = parted_by_call(row, asked, checkpoint.containers)
        is_kept = found is not None and self._living.keep_units(found, checkpoint)
        is_named = any(one.units & asked for one in sharing(checkpoint.containers, row))
        judged = row if found is None else found.rest
        if (is_named or not is_kept) and self._can_be_given_again(row, judged, asked):
            return self._give_again(row, known)
        in_admission = not known.witnessed and self._living.is_new(known)
        if found is not None and (is_kept or in_admission):
            return self._take_back.part(row, self._living.proven(found), until)
        return self._take_back.whole(row, REUSED, until)

    def _can_be_given_again(
        self, row: PreparedClaim, part: PreparedClaim, asked: frozenset[UnitId]
    ) -> bool:
        """Whether nothing of the pods of this part ever ran. Of units that were taken up from another plugin, or that are being taken back, there is no
        answer that could be given again, nor is there one after a reboot.
        """
        if row.boot_id != self._parts.store.boot_id or not asked <= answered_units(row):
            return False
        return not self._living.may_have_run(row, part)

    def _asked_for_unnamed(
        self, row: PreparedClaim, asked: frozenset[UnitId], known: Remembered, until: float
    ) -> Again | str:
        """No checkpoint has named the pod of the row's last call."""
        if known.unanswered or self._naming.is_unwritten(known):
            # The kubelet has ended that admission without a note: its pod was refused, and has no container.
            if row.users.pods is not None and not known.unanswered:
                return self._asked_for(self._naming.note_failure(row), asked, known, until)
            self._take_back.forgotten(row)
            return "" if self._parts.row(row.ref.uid) is None else "it is being taken back"
        _, checkpoint = self._witnesses.checkpoint()
        suspects = self._naming.suspects(known)
        containers = () if isinstance(checkpoint, Unknown) else checkpoint.containers
        found = parted_by_call(row, asked, containers, suspects or ())
        if found is not None and isinstance(checkpoint, Unknown):
            return f"who has its other units is not known: {checkpoint.reason}"
        # That pod may have others of its units than this call.
        if found is not None and (row.users.pods is not None or self._living.is_new(known)):
            if suspects is None:
                return "the kubelet's checkpoint has not named its pod yet"
            return self._take_back.part(row, found, until)
        named = self._naming.with_suspects(row, known)
        return JUST_GIVEN if named is None else self._take_back.whole(named, REUSED, until)

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
