# SPDX-License-Identifier: Apache-2.0
"""A new claim needs a device that belongs to another claim: may the driver take the device from its owner?

`dra_driver.services.release` decides whether the owner still needs the device. If not, the driver gives the device to the new
claim only when no process uses it any more. While the owner's last pod ends, the new claim waits inside its call: otherwise the
kubelet would call again only after a minute or more.
"""

from collections.abc import Mapping
from threading import BoundedSemaphore

from msgspec import Struct

from dra_driver.errors import DriverError, Temporary
from dra_driver.model.claim import ClaimRef
from dra_driver.model.events import SecondOwnerRefused
from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import OwnerConflict, Refusal
from dra_driver.model.state import PreparedClaim
from dra_driver.services.claim_locks import ClaimLocks
from dra_driver.services.execute import StillUsed
from dra_driver.services.parts import NodeParts
from dra_driver.services.take_back import REALLOCATED, release_if_unneeded, undo

WAITING_CALLS = 8
LOOK_SECONDS = 0.25
# The last look may end later than the call's work should, and still before the kubelet's deadline. On a busy node the pod's event would
# otherwise say that the work takes long, instead of who uses the device.
LAST_LOOK_SECONDS = 2.0


class InUse(Struct, frozen=True):
    """The owner does not need the device any more, but a process may still use it."""

    reason: str


class Conflicts:
    """Resolves the conflicts of all calls of this process. At most WAITING_CALLS calls wait for a device at the same time."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts
        self._seats = BoundedSemaphore(WAITING_CALLS)

    def resolve(
        self, conflicts: Mapping[ClaimUid, OwnerConflict], locks: ClaimLocks, until: float
    ) -> Mapping[ClaimUid, Refusal]:
        """Take devices back from owners that do not need them. Returns the refused claims; the caller plans the others again."""
        refused: dict[ClaimUid, Refusal] = {}
        waiting: dict[ClaimUid, InUse] = {}
        for uid, conflict in conflicts.items():
            found = self._look(conflict, locks, until)
            if isinstance(found, InUse):
                waiting[uid] = found
            elif found:
                refused[uid] = self._refuse(conflict, found)
        if len(refused) + len(waiting) < len(conflicts) or not waiting:
            # A device was taken back: plan all other claims again before anything else.
            return refused
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
        conflicts: Mapping[ClaimUid, OwnerConflict],
        waiting: dict[ClaimUid, InUse],
        locks: ClaimLocks,
        until: float,
    ) -> dict[ClaimUid, InUse]:
        """Try again until one claim is not waiting any more, or until the time is up.

        Returns the claims that still wait when the time is up. Otherwise returns nothing, so the caller plans all of them again.
        """
        while self._parts.clock() + LOOK_SECONDS < until:
            self._parts.sleep(LOOK_SECONDS)
            for uid in waiting:
                found = self._look(conflicts[uid], locks, until)
                if not isinstance(found, InUse):
                    return {}
                waiting[uid] = found
        return waiting

    def _look(self, conflict: OwnerConflict, locks: ClaimLocks, until: float) -> InUse | str:
        """Try to take the device back. Returns why it is not available; empty if it is free now."""
        parts, owner = self._parts, conflict.owner
        row = parts.row(owner.uid)
        if row is None:
            return ""
        try:
            if owner.uid == conflict.claim.uid:
                return self._replace(row, locks, until)
            reason = "" if row.held is not None else parts.releasable.why_not(row)
            # Try its lock only once: the other call that has it may wait for the lock of our claim.
            now = parts.clock()
            return reason or release_if_unneeded(
                parts, owner, lock_until=now, until=max(until, now + LAST_LOOK_SECONDS)
            )
        except (StillUsed, Temporary) as error:
            # Temporary: another thread releases the claim right now, and may still ask the API server for its pods.
            current = parts.row(owner.uid) or row
            failed = f"the claim is gone, but releasing it failed: {error}"
            return InUse(failed if current.held is None else _held(current, error))
        except DriverError as error:
            return f"the claim is gone, but releasing it failed: {error}"

    def _replace(self, row: PreparedClaim, locks: ClaimLocks, until: float) -> str:
        """Take back an earlier allocation of the same claim. This call has the claim's lock.

        If the work takes longer than the call, it keeps the lock. Then this call must not change the claim again.
        """
        uid = row.ref.uid
        error = undo(self._parts, locks, [row], because=REALLOCATED, until=until)[uid]
        if error is None:
            return ""
        if not locks.holds(uid):
            return f"that is its earlier allocation, which is not released yet: {error}"
        raise error

    def _refuse(self, conflict: OwnerConflict, reason: str) -> Refusal:
        owner = conflict.owner
        self._parts.observe(SecondOwnerRefused(conflict.claim, owner, conflict.device, reason))
        look = f"kubectl get resourceclaim -n {owner.namespace} {owner.name}"
        tail = f"; `{look}` shows who uses it" if owner.name and not owner.of_plugin else ""
        return Refusal(
            f"device {conflict.device} is prepared for {_named(owner)} and cannot be given to {_named(conflict.claim)} as well: {reason}{tail}"
        )


def _named(ref: ClaimRef) -> str:
    """The owner of a device: a claim, or a container that got it as an extended resource."""
    if not ref.of_plugin:
        return f"claim {ref}"
    return f"a container with resource {ref.name or 'of a lost state'} (row {ref.uid})"


def _held(row: PreparedClaim, error: DriverError) -> str:
    since = row.held.since if row.held is not None else ""
    return (
        f"it is not needed, and it is held since {since} because something may still use it: {error}; end what uses it: the driver "
        f"releases it when the last process has ended, or at the next boot; run `dra-driver release {row.ref.word}` on this node if you "
        f"know that nothing uses it"
    )
