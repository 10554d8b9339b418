# SPDX-License-Identifier: Apache-2.0
"""When may the devices of a claim that is not needed any more go to other claims, and in which steps?

A driver gets no message when a container ends. NodeUnprepareResources only means that the kubelet forgets the claim: the kubelet
calls within a minute after a pod was removed from the API, and lets the containers run until their grace period ends, which has no
upper limit. So a device is released only if it is proved that none of the pods that ever used the claim has a process left.
"""

from collections.abc import Mapping

from dra_driver.model.ids import PodUid
from dra_driver.model.lease import Lease
from dra_driver.model.plan import (
    Forget,
    MarkHeld,
    Plan,
    RemoveCdiSpec,
    ResetDevice,
    ShowUnused,
)
from dra_driver.model.presence import Alive, CannotTell, Presence
from dra_driver.model.state import NOBODY_KNOWN, Held, PreparedClaim, Users

UNASKED = "the API server has not said yet which pods used it"


def plan_unprepare(claim: PreparedClaim, held: Held, users: Users = NOBODY_KNOWN) -> Plan:
    """Plan to release a claim, in this order: mark its row as held, remove its CDI file, check that no process uses its devices,
    reset the devices, delete the row. The plan needs only the state, so it also works if the claim does not exist any more.

    After a crash between two steps, the row still has the devices to reset, and the driver answers no call from the row: otherwise
    a container could get a device that is reset already. The CDI file is removed before the check for processes, so that no new
    container gets the device.
    """
    uid = claim.ref.uid
    return Plan(
        claim.ref,
        (
            MarkHeld(uid, held, users),
            RemoveCdiSpec(uid),
            ShowUnused(claim),
            *resets(claim),
            Forget(uid),
        ),
    )


def plan_unanswered(claim: PreparedClaim) -> Plan:
    """Plan to take back what an Allocate call of the device plugin API began and did not answer. The kubelet starts no container then, so
    there is nothing to prove.
    """
    uid = claim.ref.uid
    return Plan(claim.ref, (RemoveCdiSpec(uid), *resets(claim), Forget(uid)))


def resets(claim: PreparedClaim) -> tuple[ResetDevice, ...]:
    """Return the steps that undo the claim's leases, in the reverse order of their set-up.

    If a row has no leases, an older driver wrote it, or it was made from a CDI file: then everything that it owns may be set up. A
    lease with admin access changed nothing.
    """
    leases = claim.leases
    if leases is None:
        leases = tuple(
            Lease(claim.ref.uid, "", key.device, index, key.share)
            for index, key in enumerate(claim.owned)
        )
    by_admin = claim.held is not None and claim.held.by_admin
    return tuple(
        ResetDevice(lease, by_admin) for lease in reversed(leases) if not lease.admin_access
    )


def still_used(claim: PreparedClaim, presence: Mapping[PodUid, Presence], *, boot_id: str) -> str:
    """Return why the claim's devices cannot be released; empty if it is proved that no process uses them.

    `presence` has the presence of each of the claim's pods. Without it the result is empty in three cases: the claim owns no device
    (admin access), the row is of an earlier boot, because no process survives a reboot, or an admin confirmed that nothing uses the
    devices. But a pod with device files in its kubelet's answer may run again since the reboot.
    """
    held = claim.held
    if not claim.owned or (held is not None and held.by_admin):
        return ""
    if claim.boot_id != boot_id:
        return "; ".join(_all_alive(claim, presence)) if claim.is_fixed else ""
    return UNASKED if held is not None and held.unasked else _used_by(claim, presence)


def _used_by(claim: PreparedClaim, presence: Mapping[PodUid, Presence]) -> str:
    users = claim.users
    if users.has_unknown:
        return "which pods used it is not known any more"
    if alive := _all_alive(claim, presence):
        return "; ".join(alive)
    doubtful = [
        f"whether pod {pod} has ended is not known: {found.reason}"
        for pod in users.pods or ()
        if isinstance(found := presence[pod], CannotTell)
    ]
    if doubtful:
        return "; ".join(doubtful)
    return "not all of its users are pods that the claim names" if users.unnamed else ""


def _all_alive(claim: PreparedClaim, presence: Mapping[PodUid, Presence]) -> list[str]:
    pods = claim.users.pods or ()
    return [_alive(pod, found) for pod in pods if isinstance(found := presence[pod], Alive)]


def _alive(pod: PodUid, found: Alive) -> str:
    return f"pod {pod} still runs: {found.detail}"
