# SPDX-License-Identifier: Apache-2.0
"""A call needs units that a row has: what is the row's pod, and what does the call get?

The kubelet admits one pod at a time. So a new call that names the units of a row says that the admission of the row's pod has ended, or that
the same pod gets them again, for a container after an init container.
"""

from msgspec import Struct

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ResourceName, UnitId
from dra_driver.model.state import CallBegun, PreparedClaim, Unknown, Users
from dra_driver.planning.plugin.rows import describes, units_of
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
        found = self._living.parted(row)
        asked = found is not None and row.ref.name == resource and units_of(found.rest) & units
        # The kubelet gives out only what nobody has. Without its call the checkpoint alone does not say so.
        if found is not None and (asked or not self._living.may_have(found.rest)):
            reason = self._take_back.part(row, found, until)
            if asked or not reason:
                return reason
        if row.held is None and not (row.ref.name == resource and units_of(row) & units):
            # Other units of the same hardware: a share and the whole device, or two resources. So the call says nothing about the row's pod.
            return self._living.needed(row) or self._take_back.whole(row, ENDED, until)
        if row.held is not None or row.boot_id != self._parts.store.boot_id:
            return self._take_back.whole(row, REUSED, until)
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
            if row.users.pods is None or not self._naming.is_unwritten(known):
                return self._take_back_unnamed(row, known, until)
            row = self._naming.note_failure(row)
        # Of units that were taken up from another plugin, or that are being taken back, there is no answer that could be given again.
        if not describes(row, units) or known.seen or self._living.runs(row):
            return self._take_back.whole(row, REUSED, until)
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
            return Again(self._naming.note(row, Users((), sole=row.users.sole, call=call)))

    def _take_back_unnamed(self, row: PreparedClaim, known: Remembered, until: float) -> str:
        if known.unanswered or self._naming.is_unwritten(known):
            # The kubelet has ended that admission without a note: its pod was refused, and has no container.
            self._take_back.forgotten(row)
            return "" if self._parts.row(row.ref.uid) is None else "it is being taken back"
        found = self._naming.with_suspects(row, known)
        if found is None:
            return JUST_GIVEN
        return self._take_back.whole(found, REUSED, until)
