# SPDX-License-Identifier: Apache-2.0
"""What a prepared claim owns."""

from dra_driver.model.ids import DeviceKey
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice
from dra_driver.testing.builders import A_POOL, a_ref


def test_a_claim_owns_devices_and_shares_but_nothing_by_admin_access() -> None:
    devices = (
        PreparedDevice(("a",), A_POOL, "gpu-0", (), ""),
        PreparedDevice(("b",), A_POOL, "gpu-1", (), "", "s1"),
        PreparedDevice(("c",), A_POOL, "gpu-2", (), "", admin_access=True),
    )
    claim = PreparedClaim(a_ref(), Phase.STARTED, "boot-1", devices, "")
    assert claim.owned == (DeviceKey(A_POOL, "gpu-0"), DeviceKey(A_POOL, "gpu-1", "s1"))
    assert claim.whole_devices == ("gpu-0",)
