# SPDX-License-Identifier: Apache-2.0
"""What a prepared claim owns, and who used it."""

import pytest

from dra_driver.model.ids import DeviceKey
from dra_driver.model.state import (
    NOBODY_KNOWN,
    CallBegun,
    Phase,
    PreparedClaim,
    PreparedDevice,
    Users,
)
from dra_driver.testing.builders import A_POOL, a_ref

CALL, LATER = (CallBegun(version, frozenset()) for version in ("version-3", "version-4"))


def test_a_claim_owns_devices_and_shares_but_nothing_by_admin_access() -> None:
    devices = (
        PreparedDevice(("a",), A_POOL, "gpu-0", (), ""),
        PreparedDevice(("b",), A_POOL, "gpu-1", (), "", "s1"),
        PreparedDevice(("c",), A_POOL, "gpu-2", (), "", admin_access=True),
    )
    claim = PreparedClaim(a_ref(), Phase.STARTED, "boot-1", devices, "")
    assert claim.owned == (DeviceKey(A_POOL, "gpu-0"), DeviceKey(A_POOL, "gpu-1", "s1"))


@pytest.mark.parametrize(
    ("known", "told", "joined"),
    [
        (NOBODY_KNOWN, NOBODY_KNOWN, NOBODY_KNOWN),
        (NOBODY_KNOWN, Users(("a",), sole=True), Users(("a",), sole=True)),
        (Users(("a",)), NOBODY_KNOWN, Users(("a",))),
        (Users(("a", "b")), Users(("c", "a")), Users(("a", "b", "c"))),
        (Users(("a",), unnamed=True), Users(()), Users(("a",), unnamed=True)),
        (Users(("a",)), Users((), unnamed=True), Users(("a",), unnamed=True)),
        (Users(("a",)), Users((), call=CALL), Users(("a",), call=CALL)),
        (Users(("a",), call=CALL), NOBODY_KNOWN, Users(("a",), call=CALL)),
        (Users(("a",), call=CALL), Users(("b",)), Users(("a", "b"))),
        (Users(("a",), call=CALL), Users((), call=LATER), Users(("a",), call=LATER)),
    ],
)
def test_users_are_never_forgotten(known: Users, told: Users, joined: Users) -> None:
    assert known.joined(told) == joined


@pytest.mark.parametrize(
    ("users", "unknown"),
    [
        (NOBODY_KNOWN, True),
        (Users(()), False),
        (Users(("a",)), False),
        (Users(("a",), call=CALL), True),
        (Users(call=CALL), True),
    ],
)
def test_until_the_last_call_has_a_pod_somebody_is_unknown(users: Users, unknown: bool) -> None:
    assert users.has_unknown is unknown
