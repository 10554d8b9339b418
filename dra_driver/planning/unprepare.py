# SPDX-License-Identifier: Apache-2.0
"""A claim that is needed no more: when its devices may go to others, and in which steps.

Nobody tells a driver that a container has ended. NodeUnprepareResources says that the kubelet forgets the claim; the kubelet
calls it within a minute after a pod was removed from the API, and lets the containers run on for their grace period, which has no
upper bound. So a device is let go only when it is shown that no pod that ever used the claim has a process left.
"""

from collections.abc import Mapping

from dra_driver.model.ids import PodUid
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

UNASKED = "the API server could not say yet which pods used it"


def plan_unprepare(claim: PreparedClaim, held: Held, users: Users = NOBODY_KNOWN) -> Plan:
    """First the row stops saying Prepared, then the file goes, the row last. Needs nothing but the state; the claim may be gone.

    After a crash in between, the row still says what is to be undone, and nobody is answered from it: a device that was
    reset would reach a container without its configuration. The file goes before anything is looked at: no container that is
    started from now on gets the device.
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


def resets(claim: PreparedClaim) -> tuple[ResetDevice, ...]:
    """What undoes the claim's settings: of each device and share that it owns."""
    return tuple(ResetDevice(key.device, key.share) for key in claim.owned)


def still_used(claim: PreparedClaim, presence: Mapping[PodUid, Presence], *, boot_id: str) -> str:
    """Why the claim's devices cannot be given to others; empty when it is shown that nothing uses them.

    `presence` answers for each of the claim's pods. Who has admin access owns nothing, another boot left nothing running, and what
    an admin vouches for is believed.
    """
    held = claim.held
    if not claim.owned or claim.boot_id != boot_id or (held is not None and held.by_admin):
        return ""
    if held is not None and held.unasked:
        return UNASKED
    users = claim.users
    if users.pods is None:
        return "nobody can say any more which pods used it"
    alive = [_alive(pod, found) for pod in users.pods if isinstance(found := presence[pod], Alive)]
    if alive:
        return "; ".join(alive)
    doubtful = [
        f"whether pod {pod} has ended cannot be told: {found.reason}"
        for pod in users.pods
        if isinstance(found := presence[pod], CannotTell)
    ]
    if doubtful:
        return "; ".join(doubtful)
    return "not all of its users are pods that the claim names" if users.unnamed else ""


def _alive(pod: PodUid, found: Alive) -> str:
    return f"pod {pod} still runs: {found.detail}"
