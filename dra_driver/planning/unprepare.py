# SPDX-License-Identifier: Apache-2.0
"""A prepared claim: how to release it. Needs nothing but the state; the claim object may be gone."""

from dra_driver.model.plan import Forget, MarkStartedAgain, Plan, RemoveCdiSpec, ResetDevice
from dra_driver.model.state import PreparedClaim


def plan_unprepare(claim: PreparedClaim) -> Plan:
    """First the row stops saying Prepared, then the file goes, the row last.

    After a crash in between, the row still says what is to be undone, and nobody is answered from it: a device that was
    reset would reach a container without its configuration.
    """
    uid = claim.ref.uid
    resets = tuple(ResetDevice(device) for device in claim.whole_devices)
    return Plan(claim.ref, (MarkStartedAgain(uid), RemoveCdiSpec(uid), *resets, Forget(uid)))
