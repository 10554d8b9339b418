# SPDX-License-Identifier: Apache-2.0
"""Which steps make the state and the CDI files agree after a start?

These things may have happened while the driver was down:

* A reboot (the boot ID differs): device numbers, partitions and daemons of the old boot are gone, and usually /var/run/cdi too.
  The claim goes back to Started and keeps its devices, and its CDI file is removed. The kubelet's next prepare call runs the whole
  plan. A row without a claim name, which was reserved only because of a CDI file, is removed.
* A crash during a call (Started in this boot). A preparation writes the CDI file last, after the commit that makes the claim
  Prepared, and an unpreparation removes the file first. So without a file no container can start with the claim. Then the driver undoes
  what its leases say if no pod of the claim runs, and the claim keeps its devices until the kubelet calls again. With a whole file the
  commit was lost with a damaged -wal: the claim may be in use, and becomes Prepared again with the text of the file. An older driver
  wrote the file before the commit, and its row has the text; that is the same case.
* An unpreparation began (held): the CDI file is removed. The devices stay held until it is proved that no process uses them
  (`dra_driver.services.held`).
* Another program changed or removed the CDI file or a metadata file of a Prepared claim: the driver writes the same texts again, from
  the state.

For a CDI file without a row this module makes no plan: `dra_driver.services.adopt` finds out about its claim.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from dra_driver.model.ids import ClaimUid
from dra_driver.model.plan import (
    Forget,
    MarkPrepared,
    MarkStartedAgain,
    Plan,
    RemoveCdiSpec,
    ShowUnused,
    Step,
    WriteCdiSpec,
)
from dra_driver.model.state import Phase, PreparedClaim
from dra_driver.planning.finish import is_file_of
from dra_driver.planning.unprepare import plan_unanswered, resets


def plan_recovery(
    claims: Iterable[PreparedClaim],
    files: Mapping[ClaimUid, str],
    metadata: Mapping[ClaimUid, str] = MappingProxyType({}),
    *,
    boot_id: str,
) -> tuple[Plan, ...]:
    """Return one plan for each claim that needs one, in the given order. `files` has the text of the CDI files by claim UID, `metadata`
    that of the metadata files.
    """
    plans = [
        Plan(
            claim.ref,
            _steps(claim, files.get(claim.ref.uid), metadata.get(claim.ref.uid, ""), boot_id),
            claim.devices,
        )
        for claim in claims
    ]
    return tuple(plan for plan in plans if plan.steps)


def _steps(claim: PreparedClaim, file: str | None, metadata: str, boot_id: str) -> tuple[Step, ...]:
    uid = claim.ref.uid
    if claim.held is not None:
        return (RemoveCdiSpec(uid),) if file is not None else ()
    if claim.boot_id != boot_id:
        return _steps_after_boot(claim, file)
    if not claim.cdi_spec and claim.leases is None:
        return ()  # only reserved (dra_driver.planning.adopt): its devices may be in use
    if claim.phase is Phase.STARTED:
        if file is not None and _vouches(file, claim):
            return (MarkPrepared(uid, file, metadata),)
        return _steps_of_started(claim)
    # A row that was made from a CDI file does not know its metadata files; they stay as they are.
    agree = file == claim.cdi_spec and claim.metadata in ("", metadata)
    return () if agree else (WriteCdiSpec(uid, claim.cdi_spec, claim.metadata),)


def _steps_of_started(claim: PreparedClaim) -> tuple[Step, ...]:
    if not claim.ref.of_plugin:
        return (RemoveCdiSpec(claim.ref.uid), ShowUnused(claim), *resets(claim))
    # An Allocate call that did not end. The kubelet got no answer, so no container can start with its devices. If the pod is known, the
    # kubelet had its answer before a reboot: `dra_driver.services.plugin` sets its devices up again.
    return () if claim.users.pods is not None else plan_unanswered(claim).steps


def _vouches(file: str, claim: PreparedClaim) -> bool:
    """Whether the claim's CDI file shows that its preparation was finished."""
    return file == claim.cdi_spec if claim.cdi_spec else is_file_of(claim, file)


def _steps_after_boot(claim: PreparedClaim, file: str | None) -> tuple[Step, ...]:
    uid = claim.ref.uid
    drop: tuple[Step, ...] = (RemoveCdiSpec(uid),) if file is not None else ()
    if not claim.ref.name:
        # This row was reserved only because of a CDI file. No container survives a reboot, and the kubelet prepares the claim again.
        # Without this step the row would stay, and no other claim would ever get its devices.
        return (*drop, Forget(uid))
    return (*drop, MarkStartedAgain(uid)) if claim.phase is Phase.PREPARED else drop
