# SPDX-License-Identifier: Apache-2.0
"""Releasing: first Prepared ends, then the file goes, the row last."""

from dra_driver.model.plan import Forget, MarkStartedAgain, Plan, RemoveCdiSpec, ResetDevice
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice
from dra_driver.planning.unprepare import plan_unprepare
from dra_driver.testing.builders import A_POOL, a_ref


def test_whole_devices_are_reset_and_shares_and_admin_access_are_not() -> None:
    ref = a_ref()
    devices = (
        PreparedDevice(("a",), A_POOL, "gpu-1", (), ""),
        PreparedDevice(("b",), A_POOL, "gpu-2", (), "", "share"),
        PreparedDevice(("c",), A_POOL, "gpu-3", (), "", admin_access=True),
        PreparedDevice(("d",), A_POOL, "gpu-0", (), ""),
    )
    claim = PreparedClaim(ref, Phase.PREPARED, "boot-1", devices, "")
    assert plan_unprepare(claim) == Plan(
        ref,
        (
            MarkStartedAgain(ref.uid),
            RemoveCdiSpec(ref.uid),
            ResetDevice("gpu-1"),
            ResetDevice("gpu-0"),
            Forget(ref.uid),
        ),
    )
