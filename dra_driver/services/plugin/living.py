# SPDX-License-Identifier: Apache-2.0
"""Who may still live with the units of a row: what the witnesses say now, and what was seen of the row's pods.

A row is over when its pod had processes, and has neither a process nor a cgroup any more: a pod whose sandbox has died has no process for a
moment, and its containers start again without a call.
"""

from msgspec.structs import replace

from dra_driver.model.ids import PodUid
from dra_driver.model.plugin import KubeletCheckpoint
from dra_driver.model.presence import Gone
from dra_driver.model.state import PreparedClaim, Unknown, Users
from dra_driver.planning.plugin.parted import Parted, parted, parted_by_call
from dra_driver.planning.plugin.rows import sharing, unanswered_units
from dra_driver.services.parts import NodeParts
from dra_driver.services.plugin.memory import Memory, Remembered
from dra_driver.services.plugin.witnesses import (
    ADMISSION_SECONDS,
    GRACE_SECONDS,
    ActiveLists,
    Witnesses,
)
from dra_driver.services.release import Silence


class Living:
    """Judges rows."""

    def __init__(
        self, parts: NodeParts, witnesses: Witnesses, memory: Memory, lists: ActiveLists
    ) -> None:
        self._parts = parts
        self._witnesses = witnesses
        self._memory = memory
        self._lists = lists

    def needed(self, row: PreparedClaim) -> str:
        """Return why a row must stay, although a claim asks for its device; empty if it is free for all that is known."""
        if row.boot_id != self._parts.store.boot_id:
            return self._needed_after_boot(row)
        if row.users.has_unknown:
            return "the kubelet's checkpoint has not named its pod yet"
        return "" if self.is_over(row) else "its pod runs, or is about to start"

    def is_over(self, row: PreparedClaim) -> bool:
        """Whether the row's pod has ended, or will not start."""
        if self.runs(row) or self._has_cgroup(row):
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

    def runs(self, row: PreparedClaim) -> bool:
        """Whether a pod of the row has a process now."""
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

    def _may_have(self, part: PreparedClaim) -> bool:
        """Whether a pod may have this part of a row: the kubelet keeps a cgroup for one of its pods, or lists its units."""
        return self._has_cgroup(part) or self._lists.lists(part)

    def is_new(self, known: Remembered) -> bool:
        """Whether the admission of the row's pod may still go on, or has just ended."""
        return self._parts.clock() - known.since < GRACE_SECONDS

    def may_have_run(self, row: PreparedClaim, part: PreparedClaim) -> bool:
        """Whether a pod of this part of the row may have run, or something runs now, since the units were set up."""
        known = self._memory.of(row)
        if not known.witnessed or not known.seen.isdisjoint(part.users.pods or ()):
            return True
        if self._parts.usage.presence is None and not self.is_new(known):
            return True
        return bool(self._parts.usage.of(part))

    def keep_units(self, found: Parted, checkpoint: KubeletCheckpoint) -> bool:
        """Whether a pod that the checkpoint names for the kept part may live with it."""
        pods, kept = found.keepers, found.kept
        if kept.boot_id != self._parts.store.boot_id:
            return not frozenset(pods).isdisjoint(self.comers(kept, checkpoint))
        kept = replace(kept, users=Users(pods))
        return bool(pods) and (
            self.is_new(self._memory.of(kept)) or self._may_have(kept) or self.runs(kept)
        )

    def is_listed(self, part: PreparedClaim) -> bool:
        """Whether an active pod has units of this part, or may have: nobody answers."""
        return self._lists.lists(part)

    def proven(self, found: Parted) -> Parted:
        """Of a part that a call asks for: if no other pods than the keepers have had the row, only the kubelet of now can say that they do not have
        this part, too. An older checkpoint would say the same.
        """
        if found.rest.users.pods or self._lists.has(found.kept):
            return found
        return replace(found, rest=replace(found.rest, users=found.kept.users))

    def _is_named(self, row: PreparedClaim) -> bool:
        _, checkpoint = self._witnesses.checkpoint()
        if isinstance(checkpoint, Unknown):
            return True
        return bool(sharing(checkpoint.containers, row))

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
        named = dict.fromkeys(one.pod for one in sharing(checkpoint.containers, row))
        pods = self._witnesses.pods()
        if not named or isinstance(pods, Unknown) or not self._lists.is_long_absent(row):
            return tuple(named)
        return tuple(pod for pod in named if pod in pods)

    def parted(self, row: PreparedClaim) -> Parted | None:
        """Find units that nobody has any more, in a row that other pods have had before: a part of it was given again."""
        if row.users.has_unknown or len(row.devices) == 1:
            return None  # most rows have one device, and this is asked at each look
        _, checkpoint = self._witnesses.checkpoint()
        if isinstance(checkpoint, Unknown):
            return None
        if left := unanswered_units(row):
            # A call asked for them, and they were not free yet. The kubelet may never say it again: they are listed as unhealthy since.
            again = parted_by_call(row, left, checkpoint.containers)
            found = None if again is None else self.proven(again)
        else:
            found = parted(row, checkpoint.containers)
        # The kubelet may have written an older checkpoint last: a pod of before may be about to start with these units after all.
        if found is None or self.is_new(self._memory.of(row)) or self._may_have(found.rest):
            return None
        return found
