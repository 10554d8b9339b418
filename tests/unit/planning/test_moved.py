# SPDX-License-Identifier: Apache-2.0
"""A claim's device is judged by its UUID, where both sides know one."""

import dataclasses

import pytest
from msgspec.structs import replace

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Lease
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice
from dra_driver.planning.moved import is_another, known_hardware, moved, moved_devices, without
from dra_driver.testing.builders import A_BOOT, A_POOL, a_ref
from tests.support.api_values import found_device

GPU_0, GPU_1 = DeviceName("gpu-0"), DeviceName("gpu-1")


def has(device: str, uuid: str, *, admin: bool = False) -> PreparedDevice:
    return PreparedDevice(("gpu",), A_POOL, DeviceName(device), (), uuid, admin_access=admin)


def found(**uuids: str) -> Inventory:
    devices = tuple(found_device(name.replace("_", "-"), uuid) for name, uuid in uuids.items())
    return Inventory(devices, had={GPU_0: "acme", GPU_1: "acme"})


ANOTHER = "gpu-0 is another device now (UUID y); the one that the claim was prepared with (UUID x)"


@pytest.mark.parametrize(
    ("uuid", "inventory", "said"),
    [
        ("x", found(gpu_0="x"), ""),
        ("x", found(gpu_0="y"), f"{ANOTHER} is not found any more"),
        ("x", found(gpu_0="y", gpu_1="x"), f"{ANOTHER} is called gpu-1"),
        ("x", found(gpu_1="x"), "the device with UUID x is called gpu-1 now"),
        ("x", found(gpu_1="y"), ""),
        ("", found(gpu_0="y"), ""),
        ("", found(gpu_1=""), ""),
        ("x", found(gpu_0=""), ""),
        ("x", Inventory(scanned=False), ""),
        ("x", dataclasses.replace(found(gpu_1="x"), unanswered=("acme",)), ""),
    ],
)
def test_it_says_what_has_the_name_and_which_name_the_device_has(
    uuid: str, inventory: Inventory, said: str
) -> None:
    device = has("gpu-0", uuid)
    assert moved(device, inventory, A_POOL) == said
    assert is_another(device, inventory, A_POOL) == said.startswith(ANOTHER)
    # Another pool: the node has another name now, and simulated hardware other UUIDs.
    renamed = PoolName("a-new-name")
    assert not moved(device, inventory, renamed)
    assert not is_another(device, inventory, renamed)


def test_it_counts_for_the_owners_of_this_boot() -> None:
    row = PreparedClaim(a_ref(), Phase.PREPARED, A_BOOT, (has("gpu-0", "x"),), "{}")
    inventory, said = found(gpu_0="y"), {GPU_0: f"{ANOTHER} is not found any more"}

    def of(*rows: PreparedClaim) -> object:
        return moved_devices(rows, inventory, A_POOL, A_BOOT)

    assert of(row) == said
    # Another share of the device may have been prepared later.
    assert of(row, replace(row, devices=(has("gpu-0", "y"),))) == said
    assert of(replace(row, phase=Phase.STARTED)) == {}
    assert of(replace(row, boot_id="an earlier boot")) == {}
    assert of(replace(row, devices=(has("gpu-0", "x", admin=True),))) == {}
    assert of(replace(row, ref=ClaimRef("device-plugin", "gpu", ClaimUid("plugin-1")))) == {}
    elsewhere = dataclasses.replace(has("gpu-0", "x"), pool="another")
    assert of(replace(row, devices=(elsewhere,))) == {}


def test_an_inventory_without_devices_keeps_the_others() -> None:
    inventory = found(gpu_0="x", gpu_1="y")
    assert without(inventory, [DeviceName("gpu-7")]) is inventory
    assert without(inventory, [GPU_0]).by_name.keys() == {GPU_1}


def test_the_uuids_of_this_boot_and_this_node_are_known() -> None:
    elsewhere = dataclasses.replace(has("gpu-2", "z"), pool=PoolName("another"))
    claim = PreparedClaim(
        a_ref("a"), Phase.PREPARED, A_BOOT, (has("gpu-0", "x"), has("gpu-1", ""), elsewhere), "{}"
    )
    before = replace(claim, boot_id="another", devices=(has("gpu-3", "y"),))
    assert known_hardware((claim, before), A_POOL, A_BOOT) == {"gpu-0": "x"}


def of_unit(uuid: str, *devices: PreparedDevice, parent: str = "") -> PreparedClaim:
    """A fixed row, with a lease on hardware with this name."""
    ref = ClaimRef("device-plugin", "acme.com/gpu", ClaimUid(f"plugin-{uuid}"))
    lease = Lease(ref.uid, "gpu", devices[0].device, 0, parent=parent)
    named = tuple(dataclasses.replace(device, request_names=(uuid,)) for device in devices)
    return PreparedClaim(ref, Phase.PREPARED, A_BOOT, named, "{}", leases=(lease,))


@pytest.mark.parametrize(
    ("rows", "known"),
    [
        ((of_unit("x", has("gpu-0", "x"), parent="x"),), {"gpu-0": "x"}),
        ((of_unit("x", has("gpu-0", "x"), parent="pci"),), {"gpu-0": ""}),
        ((of_unit("x", has("gpu-0", ""), parent="y"),), {}),
        (
            (of_unit("x", has("gpu-0", "x"), has("gpu-1", "x"), parent="y"),),
            {"gpu-0": "", "gpu-1": "x"},
        ),
        (
            (
                of_unit("x", has("gpu-0", "x"), parent="y"),
                of_unit("y", has("gpu-1", "y"), parent="x"),
            ),
            {"gpu-0": "", "gpu-1": ""},
        ),
    ],
    ids=["as it was", "nothing shows it", "no UUID", "and a spare device", "exchanged"],
)
def test_a_fixed_row_says_no_uuid_that_may_be_another_devices(
    rows: tuple[PreparedClaim, ...], known: dict[str, str]
) -> None:
    assert known_hardware(rows, A_POOL, A_BOOT) == known
    # A claim that was prepared in this boot says what the device is.
    claims = tuple(replace(row, ref=a_ref(str(row.ref.uid))) for row in rows)
    assert known_hardware(claims, A_POOL, A_BOOT) == {
        device.device: device.uuid for row in rows for device in row.devices if device.uuid
    }


def test_what_a_claim_says_of_a_device_counts_beside_a_fixed_row() -> None:
    fixed = of_unit("x", has("gpu-0", "x"), parent="y")
    admin = PreparedClaim(
        a_ref("a"), Phase.PREPARED, A_BOOT, (has("gpu-0", "y", admin=True),), "{}"
    )
    for rows in ((fixed, admin), (admin, fixed)):
        assert known_hardware(rows, A_POOL, A_BOOT) == {"gpu-0": "y"}
