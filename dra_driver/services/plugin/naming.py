# SPDX-License-Identifier: Apache-2.0
"""Which pods have the units of a row? The kubelet's checkpoint names them; if it does not, every pod that has come since the call is suspected.

The kubelet writes the checkpoint at the end of a container's admission, before the container starts, and keeps the names of ended pods until
it gives their units away. So an entry counts for a row only if the file was written after the row's call began.
"""

from dra_driver.model.events import UnitsIdentified
from dra_driver.model.ids import PodUid
from dra_driver.model.state import PreparedClaim, Unknown, Users
from dra_driver.planning.plugin.rows import sharing
from dra_driver.services.parts import NodeParts
from dra_driver.services.plugin.memory import Memory, Remembered
from dra_driver.services.plugin.witnesses import Witnesses


class Naming:
    """Writes pods into rows."""

    def __init__(self, parts: NodeParts, witnesses: Witnesses, memory: Memory) -> None:
        self._parts = parts
        self._witnesses = witnesses
        self._memory = memory

    def identified(self, row: PreparedClaim) -> PreparedClaim:
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
        found = sharing(checkpoint.containers, row)
        if not found or (row.users.has_unknown and known.entries.issuperset(found)):
            # An entry of before the call may be in the file for another reason: the kubelet has written what it knew before.
            return row
        users = Users(tuple(dict.fromkeys(one.pod for one in found)), sole=True)
        if row.users.joined(users) == row.users:
            known.read = written
            return row
        noted = self.note(row, users)
        if noted.users == row.users.joined(users):
            known.read, known.since = written, self._parts.clock()
            self._parts.observe(UnitsIdentified(row.ref, found[0].pod, found[0].container))
        return noted

    def is_unwritten(self, known: Remembered) -> bool:
        """Whether the kubelet has written no checkpoint since the last call: if its admission has ended, then without success."""
        written, checkpoint = self._witnesses.checkpoint()
        return not isinstance(checkpoint, Unknown) and written == known.begun

    def with_suspects(self, row: PreparedClaim, known: Remembered) -> PreparedClaim | None:
        """Name each pod that has come since the call. Returns None if the row has been given to a container meanwhile."""
        suspects = self.suspects(known)
        if suspects is None:
            return row
        found = self.note(row, Users(suspects))
        return found if found.users.call is None else None

    def suspects(self, known: Remembered) -> tuple[PodUid, ...] | None:
        """Return the pods that have come since the call; None if they are not known."""
        pods = self._witnesses.pods()
        if known.before is None or isinstance(pods, Unknown):
            return None
        return tuple(sorted(pods - known.before))

    def note_failure(self, row: PreparedClaim) -> PreparedClaim:
        """The last call has led to no container: whoever had the units before it is to be judged."""
        return self.note(row, Users((), sole=row.users.sole))

    def note(self, row: PreparedClaim, users: Users) -> PreparedClaim:
        """Add users to the row; their `call` takes the place of the row's. Returns the row.

        If it has got others since it was read, these stay: a call that began meanwhile is not over.
        """
        uid = row.ref.uid
        with self._parts.store.transaction("joined") as transaction:
            found = transaction.read(uids=[uid]).claims.get(uid)
            if found is not None and found.users == row.users:
                transaction.add_users(uid, users)
        return self._parts.row(uid) or row
