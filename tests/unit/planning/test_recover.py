# SPDX-License-Identifier: Apache-2.0
"""What a start does with each row and its file."""

import pytest

from dra_driver.model.plan import (
    MarkPrepared,
    MarkStartedAgain,
    Plan,
    RemoveCdiSpec,
    ResetDevice,
    Step,
    WriteCdiSpec,
)
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice
from dra_driver.planning.recover import plan_recovery
from dra_driver.testing.builders import A_POOL, a_ref

REF = a_ref()
DEVICES = (
    PreparedDevice(("gpu",), A_POOL, "gpu-0", (), ""),
    PreparedDevice(("gpu",), A_POOL, "gpu-1", (), "", "share"),
)
REMOVE, AGAIN = RemoveCdiSpec(REF.uid), MarkStartedAgain(REF.uid)


@pytest.mark.parametrize(
    ("phase", "boot", "file", "steps"),
    [
        (Phase.PREPARED, "now", "good", ()),
        (Phase.PREPARED, "now", "bad", (WriteCdiSpec(REF.uid, "good"),)),
        (Phase.PREPARED, "now", "", (WriteCdiSpec(REF.uid, "good"),)),
        (Phase.PREPARED, "now", None, (WriteCdiSpec(REF.uid, "good"),)),
        (Phase.STARTED, "now", "good", (MarkPrepared(REF.uid),)),
        (Phase.STARTED, "now", "bad", (REMOVE, ResetDevice("gpu-0"))),
        (Phase.STARTED, "now", None, (REMOVE, ResetDevice("gpu-0"))),
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


def test_plans_come_in_the_order_of_the_rows() -> None:
    rows = [PreparedClaim(a_ref(name), Phase.PREPARED, "now", (), "x") for name in ("b", "a")]
    assert [plan.claim.name for plan in plan_recovery(rows, {}, boot_id="now")] == ["b", "a"]
