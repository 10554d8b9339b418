# SPDX-License-Identifier: Apache-2.0
"""Which names do the rows of an earlier boot get, and which must leave theirs?"""

import dataclasses
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceKey, DeviceName, PodUid, PoolName, ShareId
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware, Lease
from dra_driver.model.plan import Forget, MarkStarted, Refusal
from dra_driver.model.state import Held, Phase, PreparedClaim, PreparedDevice, Users
from dra_driver.planning.plugin.located import (
    Renamed,
    also_reserved,
    located,
    plan_renamed,
    stayed,
)
from dra_driver.testing.builders import A_POOL, a_device, a_ref

SHARE = ShareId("replica-0")


def devices(**uuids: str) -> Inventory:
    """The devices of now, by their names, with `_` for `-`."""
    return Inventory(
        tuple(replace(a_device(name.replace("_", "-")), uuid=uuid) for name, uuid in uuids.items())
    )


def a_row(uid: str, *names: str, share: str = "", by_name: bool = True, **fields) -> PreparedClaim:
    """A row of an earlier boot, with the units of gpu-0, gpu-1, … whose UUIDs were GPU-0, GPU-1, …"""
    prepared = tuple(
        PreparedDevice(
            (f"{name.upper()}::0" if share else name.upper(),),
            A_POOL,
            DeviceName(name),
            (f"k={uid}-{name}",),
            name.upper(),
            ShareId(share),
            by_name=by_name,
        )
        for name in names
    )
    ref = ClaimRef("device-plugin", "nvidia.com/gpu", ClaimUid(f"plugin-{uid}"))
    row = PreparedClaim(ref, Phase.PREPARED, "before", prepared, "text", Users((PodUid("pod"),)))
    return replace(row, **fields)


def names(renamed: Renamed) -> dict[str, list[str]]:
    return {
        uid.removeprefix("plugin-"): [device.device for device in row.devices]
        for uid, row in renamed.rows.items()
    }


def renamed(rows: Sequence[PreparedClaim], inventory: Inventory) -> Renamed:
    return plan_renamed(rows, inventory, pool=A_POOL, boot_id="now")


SWAPPED = devices(gpu_0="GPU-1", gpu_1="GPU-0")


@pytest.mark.parametrize("order", [1, -1])
def test_two_rows_exchange_their_names_at_once(order: int) -> None:
    rows = [a_row("a", "gpu-0"), a_row("b", "gpu-1")][::order]
    found = renamed(rows, SWAPPED)
    assert names(found) == {"a": ["gpu-1"], "b": ["gpu-0"]}
    assert found.steps[:2] == (Forget(ClaimUid("plugin-a")), Forget(ClaimUid("plugin-b")))
    assert found.steps[2:] == tuple(map(MarkStarted, found.rows.values()))
    row = found.rows[ClaimUid("plugin-a")]
    assert (row.phase, row.boot_id, row.cdi_spec) == (Phase.STARTED, "before", "")
    assert (row.users, row.devices[0].uuid) == (rows[0].users, "GPU-0")


@pytest.mark.parametrize(
    "row",
    [
        a_row("a", "gpu-0", boot_id="now"),
        a_row("a", "gpu-0", held=Held("a test", "now")),
        a_row("a", "gpu-0", ref=a_ref()),
        a_row("a", "gpu-0", ref=ClaimRef("device-plugin", "", ClaimUid("plugin-a"))),
        a_row("a", "gpu-2"),
        a_row("a", "gpu-0", by_name=False),
        a_row("a", "gpu-3", by_name=False),
    ],
    ids=[
        "of this boot",
        "held",
        "a claim",
        "of a file alone",
        "the same name",
        "fixed",
        "fixed, gone",
    ],
)
def test_other_rows_stay(row: PreparedClaim) -> None:
    found = renamed([row], devices(gpu_0="GPU-1", gpu_1="GPU-0", gpu_2="GPU-2", gpu_3="new"))
    assert (found.uids, found.steps) == (frozenset(), ())


@pytest.mark.parametrize(
    ("key", "share", "moves"),
    [
        (DeviceKey(A_POOL, DeviceName("gpu-1")), "", False),
        (DeviceKey(A_POOL, DeviceName("gpu-1")), SHARE, False),
        (DeviceKey(A_POOL, DeviceName("gpu-1"), SHARE), "", False),
        (DeviceKey(A_POOL, DeviceName("gpu-1"), SHARE), SHARE, False),
        (DeviceKey(A_POOL, DeviceName("gpu-1"), ShareId("replica-1")), SHARE, True),
        (DeviceKey(PoolName("old"), DeviceName("gpu-1")), "", True),
        (DeviceKey(A_POOL, DeviceName("gpu-2")), "", True),
        (DeviceKey(A_POOL, DeviceName("gpu-9")), "", True),
        (DeviceKey(A_POOL, DeviceName("gpu-1-part")), "", False),
    ],
)
def test_a_name_that_a_claim_has_is_not_taken(key: DeviceKey, share: str, *, moves: bool) -> None:
    owned = PreparedDevice(("main",), key.pool, key.device, ("k=c",), "", key.share)
    claim = PreparedClaim(a_ref(), Phase.PREPARED, "now", (owned,), "text")
    part = replace(a_device("gpu-1-part"), uuid="PART", hardware=Hardware("GPU-0", ("slice-0",)))
    now = devices(gpu_0="GPU-1", gpu_1="GPU-0", gpu_2="GPU-2")
    inventory = dataclasses.replace(now, devices=(*now.devices, part))
    found = renamed([a_row("a", "gpu-0", share=share), claim], inventory)
    assert names(found) == ({"a": ["gpu-1"]} if moves else {})


@pytest.mark.parametrize("other", [{"ref": a_ref()}, {"by_name": False}], ids=["claim", "fixed"])
def test_a_row_that_must_stay_keeps_its_name_from_the_others(other) -> None:
    rows = [a_row("a", "gpu-0"), a_row("b", "gpu-1"), a_row("c", "gpu-3")]
    claim = a_row("d", "gpu-2", **other)
    # b needs the name of the other's device, and a that of b; c has nothing to do with them.
    inventory = devices(gpu_1="GPU-0", gpu_2="GPU-1", gpu_4="GPU-3")
    assert names(renamed([*rows, claim], inventory)) == {"c": ["gpu-4"]}


def test_a_row_without_its_device_leaves_a_name_that_is_another_device_now() -> None:
    rows = [a_row("a", "gpu-0"), a_row("b", "gpu-1")]
    found = renamed(rows, devices(gpu_0="GPU-1"))
    assert names(found) == {"b": ["gpu-0"]}
    (reason,) = found.let_go.values()
    assert "gpu-0 is another device now (GPU-1)" in reason
    assert found.steps[:2] == (Forget(ClaimUid("plugin-a")), Forget(ClaimUid("plugin-b")))


def test_a_row_without_its_device_keeps_a_name_that_nothing_has() -> None:
    assert renamed([a_row("a", "gpu-0")], devices(gpu_1="GPU-1")).uids == frozenset()
    # Of another pool: the name says nothing.
    (device,) = a_row("a", "gpu-0").devices
    old = dataclasses.replace(device, pool=PoolName("old"))
    assert renamed([a_row("a", devices=(old,))], devices(gpu_0="GPU-1")).uids == frozenset()
    # Two devices have its UUID now, so none can be meant by it alone.
    twice = devices(gpu_0="GPU-0", gpu_1="GPU-0")
    assert renamed([a_row("a", "gpu-0")], twice).uids == frozenset()


@pytest.mark.parametrize("inventory", [Inventory(scanned=False), Inventory(unanswered=("nvidia",))])
def test_before_the_hardware_is_known_nothing_is_missing(inventory: Inventory) -> None:
    row = a_row("a", "gpu-0")
    assert renamed([row], inventory).uids == frozenset()
    assert located(row, inventory) == Refusal(
        "unit GPU-0 of resource nvidia.com/gpu is not known yet: the hardware has not been read completely since the driver started; it is "
        "tried again"
    )


def test_the_pods_of_a_missing_device_may_not_be_known() -> None:
    found = located(a_row("a", "gpu-0", users=Users()), devices(gpu_1="GPU-1"))
    assert isinstance(found, Refusal)
    assert "which was called gpu-0, is not found any more; `dra-driver devices`" in found.reason
    assert "delete the pod (UID not known)" in found.reason


def test_a_lease_gets_the_hardware_of_now() -> None:
    lease = Lease(
        ClaimUid("plugin-a"), "PART", DeviceName("old"), backend="old", parent="GPU-0", profile="p"
    )
    (device,) = a_row("a", "old").devices
    named = dataclasses.replace(device, request_names=("PART",), uuid="PART")
    part = replace(
        a_device("new"), uuid="PART", backend="nvidia", hardware=Hardware("GPU-1", ("3",), "q")
    )
    found = located(a_row("a", devices=(named,), leases=(lease,)), Inventory((part,)))
    assert isinstance(found, PreparedClaim)
    assert found.leases == (
        dataclasses.replace(
            lease,
            device=DeviceName("new"),
            backend="nvidia",
            parent="GPU-1",
            parts=("3",),
            profile="q",
        ),
    )


def test_a_fixed_row_keeps_its_names_and_is_set_up_on_what_has_them() -> None:
    lease = Lease(ClaimUid("plugin-a"), "GPU-0", DeviceName("gpu-0"), parent="GPU-0")
    row = a_row("a", "gpu-0", by_name=False, leases=(lease,))
    found = stayed(row, SWAPPED)
    assert found == replace(row, leases=(dataclasses.replace(lease, parent="GPU-1"),))
    assert isinstance(found, PreparedClaim)
    assert found.devices[0].uuid == "GPU-0"
    assert stayed(replace(row, leases=None), SWAPPED) == replace(row, leases=None)
    # Its device is gone, and another one has the name.
    assert stayed(row, devices(gpu_0="new")) == replace(
        row, leases=(dataclasses.replace(lease, parent="new"),)
    )


def test_a_fixed_row_whose_names_have_come_back_is_as_at_first() -> None:
    row = a_row("a", "gpu-0", by_name=False)
    before = replace(row, devices=(*row.devices, *also_reserved(row, SWAPPED, ())))
    assert [device.device for device in before.devices] == ["gpu-0", "gpu-1"]
    assert stayed(before, devices(gpu_0="GPU-0", gpu_1="GPU-1")) == row
    assert stayed(before, SWAPPED) == row


def test_a_fixed_row_whose_name_nothing_has_waits() -> None:
    row = a_row("a", "gpu-0", by_name=False)
    moved = stayed(row, devices(gpu_1="GPU-0"))
    assert isinstance(moved, Refusal)
    assert "may have kept the device file of gpu-0, and no device has this name" in moved.reason
    assert "delete the pod (UID pod)" in moved.reason
    unnamed = stayed(replace(row, users=Users()), devices(gpu_1="GPU-0"))
    assert isinstance(unnamed, Refusal)
    assert "delete the pod (UID not known)" in unnamed.reason
    gone = stayed(row, devices(gpu_1="GPU-1"))
    assert isinstance(gone, Refusal)
    assert "its device, which was called gpu-0, is not found any more" in gone.reason


def test_a_row_of_a_file_alone_stays_as_it_is() -> None:
    row = a_row("a", "gpu-0", by_name=False, ref=ClaimRef("device-plugin", "", ClaimUid("a")))
    assert stayed(row, SWAPPED) is row


def test_the_devices_of_a_fixed_rows_units_are_reserved_if_nobody_has_them() -> None:
    row = a_row("a", "gpu-0", by_name=False)
    (spare,) = also_reserved(row, SWAPPED, ())
    assert (spare.device, spare.uuid, spare.cdi_ids) == ("gpu-1", "GPU-0", ())
    assert spare.request_names == ("GPU-0",)
    assert also_reserved(row, SWAPPED, [a_row("b", "gpu-1")]) == ()
    assert also_reserved(row, devices(gpu_0="new"), ()) == ()
    assert also_reserved(row, devices(gpu_0="GPU-0"), ()) == ()
    both = a_row("a", "gpu-0", "gpu-1", by_name=False)
    assert also_reserved(both, SWAPPED, ()) == ()
