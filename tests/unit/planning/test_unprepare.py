# SPDX-License-Identifier: Apache-2.0
"""Releasing: first Prepared ends, then the file goes, then it is shown that nothing uses the devices, the row last."""

import pytest
from msgspec.structs import replace

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, PodUid
from dra_driver.model.lease import Lease
from dra_driver.model.plan import (
    Forget,
    MarkHeld,
    Plan,
    RemoveCdiSpec,
    ResetDevice,
    ShowUnused,
)
from dra_driver.model.presence import Alive, CannotTell, Gone
from dra_driver.model.state import (
    NOBODY_KNOWN,
    CallBegun,
    Held,
    Phase,
    PreparedClaim,
    PreparedDevice,
    Users,
)
from dra_driver.planning.unprepare import (
    plan_unanswered,
    plan_unprepare,
    resets,
    still_used,
)
from dra_driver.testing.builders import A_POOL, a_ref

HELD = Held("the kubelet unprepared it", "2027-01-15T08:00:00Z")
OWNED = PreparedDevice(("a",), A_POOL, "gpu-1", (), "")
WATCHED = PreparedDevice(("a",), A_POOL, "gpu-1", (), "", admin_access=True)


FIXED = PreparedClaim(
    ClaimRef("device-plugin", "nvidia.com/gpu", ClaimUid("plugin-1")),
    Phase.PREPARED,
    "before",
    (OWNED,),
    "",
    Users((PodUid("a"),)),
)


def a_row(users: Users = NOBODY_KNOWN, *, held: Held | None = HELD, device=OWNED) -> PreparedClaim:
    return PreparedClaim(a_ref(), Phase.STARTED, "now", (device,), "", users, held)


def test_what_is_owned_is_reset_whole_or_by_share_and_admin_access_is_not() -> None:
    ref = a_ref()
    devices = (
        PreparedDevice(("a",), A_POOL, "gpu-1", (), ""),
        PreparedDevice(("b",), A_POOL, "gpu-2", (), "", "share"),
        PreparedDevice(("c",), A_POOL, "gpu-3", (), "", admin_access=True),
        PreparedDevice(("d",), A_POOL, "gpu-0", (), ""),
    )
    claim = PreparedClaim(ref, Phase.PREPARED, "boot-1", devices, "")
    assert plan_unprepare(claim, HELD, Users(("pod",))) == Plan(
        ref,
        (
            MarkHeld(ref.uid, HELD, Users(("pod",))),
            RemoveCdiSpec(ref.uid),
            ShowUnused(claim),
            ResetDevice(Lease(ref.uid, "", "gpu-0", 2)),
            ResetDevice(Lease(ref.uid, "", "gpu-2", 1, "share")),
            ResetDevice(Lease(ref.uid, "", "gpu-1")),
            Forget(ref.uid),
        ),
    )


def test_leases_are_undone_in_the_reverse_order_of_their_set_up() -> None:
    ref = a_ref()
    first = Lease(ref.uid, "a", "gpu-1", parent="GPU-1")
    watched = Lease(ref.uid, "b", "gpu-2", 1, admin_access=True)
    last = Lease(ref.uid, "c", "gpu-3", 2, "share")
    row = replace(a_row(), leases=(first, watched, last))
    assert resets(row) == (ResetDevice(last), ResetDevice(first))
    assert resets(replace(row, leases=())) == ()


def test_what_nobody_was_told_of_is_undone_without_a_proof() -> None:
    ref = a_ref()
    first, last = Lease(ref.uid, "a", "gpu-1"), Lease(ref.uid, "b", "gpu-2", 1)
    row = replace(a_row(held=None), leases=(first, last))
    assert plan_unanswered(row) == Plan(
        ref, (RemoveCdiSpec(ref.uid), ResetDevice(last), ResetDevice(first), Forget(ref.uid))
    )


PODS = Users(("one", "two"))
CALL = CallBegun("version-3", frozenset())
GONE = {"one": Gone(), "two": Gone()}


@pytest.mark.parametrize(
    ("row", "presence", "reason"),
    [
        (a_row(PODS), GONE, ""),
        (a_row(PODS, held=None), GONE, ""),
        (a_row(Users((), sole=True)), {}, ""),
        (a_row(PODS), GONE | {"two": Alive("3 processes")}, "pod two still runs: 3 processes"),
        (
            a_row(PODS),
            {"one": Alive("a"), "two": Alive("b")},
            "pod one still runs: a; pod two still runs: b",
        ),
        # Who runs is more than who cannot be told of.
        (a_row(PODS), {"one": CannotTell("x"), "two": Alive("b")}, "pod two still runs: b"),
        (
            a_row(PODS),
            GONE | {"one": CannotTell("no cgroups")},
            "whether pod one has ended is not known: no cgroups",
        ),
        (a_row(), {}, "which pods used it is not known any more"),
        (a_row(replace(PODS, call=CALL)), GONE, "which pods used it is not known any more"),
        (
            a_row(replace(PODS, unnamed=True)),
            GONE,
            "not all of its users are pods that the claim names",
        ),
        (
            a_row(PODS, held=replace(HELD, unasked=True)),
            GONE,
            "the API server has not said yet which pods used it",
        ),
        (a_row(held=replace(HELD, by_admin=True, unasked=True)), {}, ""),
        (a_row(device=WATCHED), {}, ""),
        (replace(a_row(), boot_id="before"), {}, ""),
        (FIXED, {"a": Gone()}, ""),
        (FIXED, {"a": CannotTell("no cgroups")}, ""),
        (FIXED, {"a": Alive("2 processes")}, "pod a still runs: 2 processes"),
        (replace(FIXED, users=NOBODY_KNOWN), {}, ""),
    ],
)
def test_devices_are_free_only_if_every_pod_is_shown_to_be_gone(row, presence, reason: str) -> None:
    assert still_used(row, presence, boot_id="now") == reason
