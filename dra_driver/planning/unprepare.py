# SPDX-License-Identifier: Apache-2.0
"""A prepared claim: how to release it. Needs nothing but the state; the claim object may be gone."""

from dra_driver.model.plan import Forget, Plan, RemoveCdiSpec, ResetDevice
from dra_driver.model.state import PreparedClaim


def plan_unprepare(claim: PreparedClaim) -> Plan:
    """The file goes first, the row last: after a crash in between, the row still says what is to be undone."""
    uid = claim.ref.uid
    resets = tuple(ResetDevice(device) for device in claim.whole_devices)
    return Plan(claim.ref, (RemoveCdiSpec(uid), *resets, Forget(uid)))
