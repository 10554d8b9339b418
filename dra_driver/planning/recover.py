# SPDX-License-Identifier: Apache-2.0
"""State and CDI files after a start: which steps make them agree.

Three things can have happened while nobody looked:

* a reboot (another boot id): device numbers, partitions and daemons of the old boot are gone, /var/run/cdi usually
  too. The claim goes back to Started, its file is dropped; it keeps its devices, and the kubelet's next prepare runs
  the whole plan. A row that was reserved for a CDI file alone goes: nobody can name its claim any more.
* a crash in the middle of a call (Started in this boot). The CDI file is the last thing that a prepare makes and the
  first that an unprepare takes away: where it stands whole, nothing else is missing, and the claim is Prepared. (It may even
  be in use: the write that said so can be lost with a damaged -wal.) Else no container can be started with the claim; what may be
  half done is undone if none runs from before, and it keeps its devices until the kubelet prepares or unprepares it.
* an unprepare took place, or began (held): the file goes, and the devices stay held until they are shown to be unused
  (`dra_driver.services.held`).
* somebody edited or removed a file of a Prepared claim: it is written again, byte for byte, from the state.

A file that no row knows is not decided here: whose claim it was has to be asked (`dra_driver.services.recover`).
"""

from collections.abc import Iterable, Mapping

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
from dra_driver.planning.unprepare import resets


def plan_recovery(
    claims: Iterable[PreparedClaim], files: Mapping[ClaimUid, str], *, boot_id: str
) -> tuple[Plan, ...]:
    """One plan for each claim that needs one, in the order given. `files` maps claim UIDs to their CDI files' text."""
    plans = [
        Plan(claim.ref, _steps(claim, files.get(claim.ref.uid), boot_id), claim.devices)
        for claim in claims
    ]
    return tuple(plan for plan in plans if plan.steps)


def _steps(claim: PreparedClaim, file: str | None, boot_id: str) -> tuple[Step, ...]:
    uid = claim.ref.uid
    if claim.held is not None:
        return (RemoveCdiSpec(uid),) if file is not None else ()
    if claim.boot_id != boot_id:
        return _steps_after_boot(claim, file)
    if not claim.cdi_spec:
        return ()  # only reserved (`dra_driver.planning.adopt.plan_reservation`): its devices may be in use
    if claim.phase is Phase.STARTED and file == claim.cdi_spec:
        return (MarkPrepared(uid),)
    if claim.phase is Phase.STARTED:
        return (RemoveCdiSpec(uid), ShowUnused(claim), *resets(claim))
    return () if file == claim.cdi_spec else (WriteCdiSpec(uid, claim.cdi_spec),)


def _steps_after_boot(claim: PreparedClaim, file: str | None) -> tuple[Step, ...]:
    uid = claim.ref.uid
    drop: tuple[Step, ...] = (RemoveCdiSpec(uid),) if file is not None else ()
    if not claim.ref.name:
        # Only reserved, for its CDI file alone. No container outlives a boot, and the kubelet, which knows the claim's name,
        # prepares anew. Without the file nobody would ever ask about this row, and its devices would be refused for ever.
        return (*drop, Forget(uid))
    return (*drop, MarkStartedAgain(uid)) if claim.phase is Phase.PREPARED else drop
