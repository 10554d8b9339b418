# SPDX-License-Identifier: Apache-2.0
"""Decisions about a claim, as values. `dra_driver.services.execute` carries out their steps in order.

The order of the steps is why a crash does no harm. Prepare first reserves the devices and stores their leases, then configures them.
Only then the text of the CDI file is known: the claim is marked Prepared with this text, and the file is written last. Unprepare first removes the CDI file, resets a device only after a proof that nothing uses it, and deletes the row at the
end. If the process dies between two steps, the state names everything that may exist on disk. So the next start can finish or
undo it.
"""

from msgspec import Struct

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceName
from dra_driver.model.lease import Lease
from dra_driver.model.state import NOBODY_KNOWN, Held, PreparedClaim, PreparedDevice, Users


class MarkStarted(Struct, frozen=True):
    """Reserve the claim's devices, and store the leases that the next steps will set up. Commits."""

    claim: PreparedClaim


class ConfigureDevice(Struct, frozen=True):
    """Let the backend set up a lease. It returns the container edits. It may take long and runs outside any transaction."""

    lease: Lease


class WriteCdiSpec(Struct, frozen=True):
    """Write the CDI file of the claim, and before it the metadata files that it mounts (`dra_driver.model.metadata`)."""

    claim_uid: ClaimUid
    text: str
    metadata: str = ""


class MarkPrepared(Struct, frozen=True):
    """Mark the claim Prepared: all devices are configured. Commits.

    `cdi_spec` is the text of the CDI file; "" leaves the text of the row as it is.
    """

    claim_uid: ClaimUid
    cdi_spec: str = ""
    metadata: str = ""


class RemoveCdiSpec(Struct, frozen=True):
    """Remove the CDI file of the claim, then its metadata files. A missing file is no error."""

    claim_uid: ClaimUid


class MarkHeld(Struct, frozen=True):
    """Mark the claim held: it is not needed any more, but its row still owns the devices. Commits.

    No prepare call is answered from a held row. `users` are pods of the claim that became known only now.
    """

    claim_uid: ClaimUid
    held: Held
    users: Users = NOBODY_KNOWN


class ShowUnused(Struct, frozen=True):
    """Prove that no pod that used the claim has a process left on this node. Without the proof the plan ends here."""

    claim: PreparedClaim


class ResetDevice(Struct, frozen=True):
    """Let the backend undo ConfigureDevice. A lease that was never set up is no error. With `by_admin` a missing backend is none either."""

    lease: Lease
    by_admin: bool = False


class MarkStartedAgain(Struct, frozen=True):
    """Set the claim back to Started. Used after a reboot, when nothing exists any more that was made for the claim. Commits."""

    claim_uid: ClaimUid


class Forget(Struct, frozen=True):
    """Delete the row of the claim, so that its devices are free. Commits."""

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


class Plan(Struct, frozen=True):
    """The steps for one claim, in order. `devices` is the answer to the kubelet after the last step.

    `pod_claim_name` is the name that a claim from a template has in its pod's spec.
    """

    claim: ClaimRef
    steps: tuple[Step, ...]
    devices: tuple[PreparedDevice, ...] = ()
    pod_claim_name: str = ""


class Refusal(Struct, frozen=True):
    """Why a claim is not prepared: a sentence for the Events of the pod."""

    reason: str


class OwnerConflict(Struct, frozen=True):
    """A device of the claim has another owner: another claim, which may have ended already, or an earlier allocation of this claim."""

    claim: ClaimRef
    owner: ClaimRef
    device: DeviceName


Decision = Plan | Refusal | OwnerConflict
