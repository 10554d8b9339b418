# SPDX-License-Identifier: Apache-2.0
"""A claim's device is judged by its UUID, where both sides know one."""

import dataclasses

import pytest
from msgspec.structs import replace

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceName, PoolName
from dra_driver.model.inventory import Inventory
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice
from dra_driver.planning.moved import is_another, moved, moved_devices, without
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
