# SPDX-License-Identifier: Apache-2.0
"""A device that a claim was allocated belongs to another claim: may it be taken from that one?

The owner is asked about by the rule of `dra_driver.services.release`; the device is given away only when nothing uses it. While the
last pod of the owner ends, the new claim waits inside its call: the kubelet would ask again after a minute or more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from threading import BoundedSemaphore

from dra_driver.errors import DriverError, Temporary
from dra_driver.model.events import SecondOwnerRefused
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import Conflict, Refusal
from dra_driver.model.state import PreparedClaim
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.execute import StillUsed
from dra_driver.services.parts import NodeParts
from dra_driver.services.take_back import REALLOCATED, release_if_unneeded, undo

WAITING_CALLS = 8
LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class InUse:
    """The owner needs the device no more, and something may still use it."""

    reason: str


class Conflicts:
    """One for the process: no more than WAITING_CALLS of its calls wait for a device at a time."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts
        self._seats = BoundedSemaphore(WAITING_CALLS)

    def resolve(
        self, conflicts: Mapping[ClaimUid, Conflict], locks: ClaimLocks, until: float
    ) -> Mapping[ClaimUid, Refusal]:
        """Take back what can be taken; answers the claims that are refused. The others are to be decided anew."""
        refused: dict[ClaimUid, Refusal] = {}
        waiting: dict[ClaimUid, InUse] = {}
        for uid, conflict in conflicts.items():
            found = self._look(conflict, locks, until)
            if isinstance(found, InUse):
                waiting[uid] = found
            elif found:
                refused[uid] = self._refuse(conflict, found)
        if len(refused) + len(waiting) < len(conflicts) or not waiting:
            return refused  # something was taken back: the rest is looked at again after the next decision
        waited = self._seats.acquire(blocking=False)
        try:
            if waited:
                waiting = self._wait(conflicts, waiting, locks, until)
        finally:
            if waited:
                self._seats.release()
        return refused | {
            uid: self._refuse(conflicts[uid], found.reason) for uid, found in waiting.items()
        }

    def _wait(
        self,
        conflicts: Mapping[ClaimUid, Conflict],
        waiting: dict[ClaimUid, InUse],
        locks: ClaimLocks,
        until: float,
    ) -> dict[ClaimUid, InUse]:
        """Look again until one of them is free; answers those that are not when the time is up, none if one is free."""
        while self._parts.clock() + LOOK_SECONDS < until:
            self._parts.sleep(LOOK_SECONDS)
            for uid in waiting:
                found = self._look(conflicts[uid], locks, until)
                if not isinstance(found, InUse):
                    return {}
                waiting[uid] = found
        return waiting

    def _look(self, conflict: Conflict, locks: ClaimLocks, until: float) -> InUse | str:
        """Why the device cannot be had; nothing when the owner has given it back."""
        parts, owner = self._parts, conflict.owner
        row = parts.row(owner.uid)
        if row is None:
            return ""
        try:
            if owner.uid == conflict.claim.uid:
                return self._replace(row, locks, until)
            reason = "" if row.held is not None else parts.releasable.why_not(row)
            # One try for its lock: whoever holds it is at work on that claim and may wait for ours.
            return reason or release_if_unneeded(
                parts, owner, lock_until=parts.clock(), until=until
            )
        except (StillUsed, Temporary) as error:
            now = parts.row(owner.uid) or row
            if now.held is None:
                return f"it is gone, but releasing it failed: {error}"
            # Somebody else may be looking at it at this very moment.
            return InUse(_held(now, error))
        except DriverError as error:
            return f"it is gone, but releasing it failed: {error}"

    def _replace(self, row: PreparedClaim, locks: ClaimLocks, until: float) -> str:
        """Take the claim's own earlier allocation back; its lock is this call's.

        Work that takes longer than the call takes the lock along: this call must not touch the claim again.
        """
        uid = row.ref.uid
        error = undo(self._parts, locks, [row], because=REALLOCATED, until=until)[uid]
        if error is None:
            return ""
        if not locks.holds(uid):
            return f"that is its earlier allocation, and giving it back has not ended: {error}"
        raise error

    def _refuse(self, conflict: Conflict, reason: str) -> Refusal:
        owner = conflict.owner
        self._parts.observe(SecondOwnerRefused(conflict.claim, owner, conflict.device, reason))
        look = f"kubectl get resourceclaim -n {owner.namespace} {owner.name}"
        tail = f"; `{look}` shows who uses it" if owner.name else ""
        return Refusal(
            f"device {conflict.device} is prepared for claim {owner} and cannot be given to claim {conflict.claim} as well: {reason}{tail}"
        )


def _held(row: PreparedClaim, error: DriverError) -> str:
    since = row.held.since if row.held is not None else ""
    return (
        f"nobody needs it, and it is held since {since} because something may still use it: {error}; end what uses it: it is "
        f"given back when the last process has ended, or at the next boot; `dra-driver release {row.ref.word}` on this node is for who "
        f"knows that nothing uses it"
    )
