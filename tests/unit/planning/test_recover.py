# SPDX-License-Identifier: Apache-2.0
"""What a start does with each row and its file."""

import pytest
from msgspec.structs import replace

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid
from dra_driver.model.lease import Lease
from dra_driver.model.plan import (
    Forget,
    MarkPrepared,
    MarkStartedAgain,
    Plan,
    RemoveCdiSpec,
    ResetDevice,
    ShowUnused,
    Step,
    WriteCdiSpec,
)
from dra_driver.model.state import (
    NOBODY_KNOWN,
    Held,
    Phase,
    PreparedClaim,
    PreparedDevice,
    Users,
)
from dra_driver.planning.recover import plan_recovery
from dra_driver.testing.builders import A_POOL, a_ref

REF = a_ref()
DEVICES = (
    PreparedDevice(("gpu",), A_POOL, "gpu-0", (), ""),
    PreparedDevice(("gpu",), A_POOL, "gpu-1", (), "", "share"),
)
HALF_DONE = PreparedClaim(REF, Phase.STARTED, "now", DEVICES, "good")
SHOW, RESETS = (
    ShowUnused(HALF_DONE),
    (
        ResetDevice(Lease(REF.uid, "", "gpu-1", 1, "share")),
        ResetDevice(Lease(REF.uid, "", "gpu-0")),
    ),
)
REMOVE, AGAIN = RemoveCdiSpec(REF.uid), MarkStartedAgain(REF.uid)


@pytest.mark.parametrize(
    ("phase", "boot", "file", "steps"),
    [
        (Phase.PREPARED, "now", "good", ()),
        (Phase.PREPARED, "now", "bad", (WriteCdiSpec(REF.uid, "good"),)),
        (Phase.PREPARED, "now", "", (WriteCdiSpec(REF.uid, "good"),)),
        (Phase.PREPARED, "now", None, (WriteCdiSpec(REF.uid, "good"),)),
        (Phase.STARTED, "now", "good", (MarkPrepared(REF.uid, "good"),)),
        (Phase.STARTED, "now", "bad", (REMOVE, SHOW, *RESETS)),
        (Phase.STARTED, "now", None, (REMOVE, SHOW, *RESETS)),
        (Phase.PREPARED, "before", "good", (REMOVE, AGAIN)),
        (Phase.PREPARED, "before", None, (AGAIN,)),
        (Phase.STARTED, "before", "good", (REMOVE,)),
        (Phase.STARTED, "before", "", (REMOVE,)),
        (Phase.STARTED, "before", None, ()),
    ],
)
def test_each_row_is_made_to_agree_with_its_file(
    phase: Phase, boot: str, file: str | None, steps: tuple[Step, ...]
) -> None:
    claim = PreparedClaim(REF, phase, boot, DEVICES, "good")
    files = {a_ref("somebody").uid: "x"} | ({} if file is None else {REF.uid: file})
    expected = (Plan(REF, steps, DEVICES),) if steps else ()
    assert plan_recovery([claim], files, boot_id="now") == expected


@pytest.mark.parametrize(
    ("phase", "row", "found", "steps"),
    [
        (Phase.PREPARED, "text", "text", ()),
        (Phase.PREPARED, "text", "other", (WriteCdiSpec(REF.uid, "good", "text"),)),
        (Phase.PREPARED, "text", "", (WriteCdiSpec(REF.uid, "good", "text"),)),
        (Phase.PREPARED, "", "text", ()),  # made from a CDI file
        (Phase.STARTED, "", "text", (MarkPrepared(REF.uid, "good", "text"),)),
    ],
)
def test_metadata_files_are_made_to_agree_with_their_row(
    phase: Phase, row: str, found: str, steps: tuple[Step, ...]
) -> None:
    claim = PreparedClaim(REF, phase, "now", DEVICES, "good", metadata=row)
    plans = plan_recovery([claim], {REF.uid: "good"}, {REF.uid: found}, boot_id="now")
    assert plans == ((Plan(REF, steps, DEVICES),) if steps else ())


@pytest.mark.parametrize("boot", ["now", "before"])
@pytest.mark.parametrize("file", ["good", "bad", None])
def test_what_is_held_loses_its_file_and_nothing_else(boot: str, file: str | None) -> None:
    """An unprepare that died after its first commit: its containers may run, whatever the file looks like."""
    held = replace(HALF_DONE, boot_id=boot, held=Held("the kubelet unprepared it", "now"))
    files = {} if file is None else {REF.uid: file}
    expected = () if file is None else (Plan(REF, (REMOVE,), DEVICES),)
    assert plan_recovery([held], files, boot_id="now") == expected


def test_plans_come_in_the_order_of_the_rows() -> None:
    rows = [PreparedClaim(a_ref(name), Phase.PREPARED, "now", (), "x") for name in ("b", "a")]
    assert [plan.claim.name for plan in plan_recovery(rows, {}, boot_id="now")] == ["b", "a"]


@pytest.mark.parametrize("file", ["good", "", None])
def test_what_is_only_reserved_is_left_alone(file: str | None) -> None:
    """Nobody knows what its containers were given, and they may run."""
    claim = replace(HALF_DONE, cdi_spec="")
    files = {} if file is None else {REF.uid: file}
    assert plan_recovery([claim], files, boot_id="now") == ()
    # After a boot nothing runs any more.
    after = plan_recovery([claim], files, boot_id="later")
    assert [plan.steps for plan in after] == ([] if file is None else [(REMOVE,)])


@pytest.mark.parametrize(
    ("file", "steps"), [("x", (REMOVE, Forget(REF.uid))), (None, (Forget(REF.uid),))]
)
def test_what_was_reserved_for_a_file_alone_ends_with_the_boot(
    file: str | None, steps: tuple[Step, ...]
) -> None:
    """Nobody can say whose claim it was, and no container of it outlived the boot."""
    ref = replace(REF, name="", namespace="")
    reserved = PreparedClaim(ref, Phase.STARTED, "before", DEVICES, "")
    files = {} if file is None else {ref.uid: file}
    assert plan_recovery([reserved], files, boot_id="now") == (Plan(ref, steps, DEVICES),)
    assert plan_recovery([reserved], files, boot_id="before") == ()


CALL = ClaimRef("device-plugin", "nvidia.com/gpu", ClaimUid("plugin-1"))
CALLS_LEASE = Lease(CALL.uid, "GPU-0", "gpu-0")


@pytest.mark.parametrize(
    ("users", "steps"),
    [
        # The kubelet got no answer: no container can start, and nothing is to be proved.
        (NOBODY_KNOWN, (RemoveCdiSpec(CALL.uid), ResetDevice(CALLS_LEASE), Forget(CALL.uid))),
        # The kubelet got its answer before a reboot: the devices are about to be set up again.
        (Users(("pod",), sole=True), ()),
    ],
)
def test_an_allocate_call_that_did_not_end_is_forgotten_if_no_pod_is_known(
    users: Users, steps: tuple[Step, ...]
) -> None:
    devices = (PreparedDevice(("GPU-0",), A_POOL, "gpu-0", (), ""),)
    row = PreparedClaim(CALL, Phase.STARTED, "now", devices, "", users, leases=(CALLS_LEASE,))
    expected = (Plan(CALL, steps, devices),) if steps else ()
    assert plan_recovery([row], {}, boot_id="now") == expected
