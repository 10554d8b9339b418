# SPDX-License-Identifier: Apache-2.0
"""Decisions about a claim, as values that `dra_driver.services.execute` carries out in order.

The order of the steps is the crash-safety argument. Prepare reserves before it acts and says Prepared last; unprepare
takes the CDI file away first, touches a device only when it is shown that nothing uses it, and forgets last. A process that dies
between two steps leaves a state that names everything that may exist on disk, so that the next start can finish or undo it.
"""

from dataclasses import dataclass

from dra_driver.model.claim import ClaimRef, DeviceConfig
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import NO_SHARE, ClaimUid, DeviceName, ShareId
from dra_driver.model.state import NOBODY_KNOWN, Held, PreparedClaim, PreparedDevice, Users


@dataclass(frozen=True, slots=True)
class MarkStarted:
    """Reserve the claim's devices and remember what is about to be made. Commits."""

    claim: PreparedClaim


@dataclass(frozen=True, slots=True)
class ConfigureDevice:
    """Let the backend set the device, or one share of it, up for this claim. May take long; runs outside any transaction."""

    device: AllocatableDevice
    config: DeviceConfig
    share_id: ShareId = NO_SHARE


@dataclass(frozen=True, slots=True)
class WriteCdiSpec:
    """Write the claim's CDI document."""

    claim_uid: ClaimUid
    text: str


@dataclass(frozen=True, slots=True)
class MarkPrepared:
    """Everything is in place. Commits."""

    claim_uid: ClaimUid


@dataclass(frozen=True, slots=True)
class RemoveCdiSpec:
    """Remove the claim's CDI document; a missing one is fine."""

    claim_uid: ClaimUid


@dataclass(frozen=True, slots=True)
class MarkHeld:
    """The claim is needed no more: nobody is answered from its row, which keeps its devices. Commits.

    `users` are pods that are known only now.
    """

    claim_uid: ClaimUid
    held: Held
    users: Users = NOBODY_KNOWN


@dataclass(frozen=True, slots=True)
class ShowUnused:
    """Show that no process of any pod that used the claim is left on this node; the plan ends here where that cannot be shown."""

    claim: PreparedClaim


@dataclass(frozen=True, slots=True)
class ResetDevice:
    """Let the backend undo what ConfigureDevice did; a device or share without any setting is fine."""

    device: DeviceName
    share_id: ShareId = NO_SHARE


@dataclass(frozen=True, slots=True)
class MarkStartedAgain:
    """Nothing of what was made for this claim exists any more (the node rebooted): back to Started. Commits."""

    claim_uid: ClaimUid


@dataclass(frozen=True, slots=True)
class Forget:
    """Release the claim's devices and its row. Commits."""

    claim_uid: ClaimUid


Step = (
    MarkStarted
    | ConfigureDevice
    | WriteCdiSpec
    | MarkPrepared
    | MarkHeld
    | RemoveCdiSpec
    | ShowUnused
    | ResetDevice
    | MarkStartedAgain
    | Forget
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do for one claim, in this order; `devices` is what the kubelet is then answered."""

    claim: ClaimRef
    steps: tuple[Step, ...]
    devices: tuple[PreparedDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a claim is not prepared: a sentence for the pod's events."""

    reason: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A device of the claim is owned by another one, which may or may not be gone; or by the claim's own earlier allocation."""

    claim: ClaimRef
    owner: ClaimRef
    device: DeviceName


Decision = Plan | Refusal | Conflict
