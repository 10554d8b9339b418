# SPDX-License-Identifier: Apache-2.0
"""What this node has."""

import msgspec
import pytest

from dra_driver.model.api.resource_slice import Device
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.inventory import Inventory
from dra_driver.testing.builders import a_device, an_inventory


class Mode(msgspec.Struct, frozen=True):
    mode: str = "safe"


def test_devices_are_found_by_name_and_keep_their_order() -> None:
    inventory = Inventory((a_device("gpu-1"), a_device("gpu-0")))
    assert list(inventory.by_name) == ["gpu-1", "gpu-0"]
    assert inventory.by_name["gpu-0"] == a_device("gpu-0")


def test_inventories_of_the_same_devices_are_equal() -> None:
    assert an_inventory(3) == an_inventory(3)
    assert an_inventory(3) != an_inventory(2)


def test_two_devices_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"found twice: a, b$"):
        Inventory(tuple(a_device(name) for name in ("b", "a", "b", "a", "c")))


def test_a_device_may_exist_while_its_backend_has_not_answered() -> None:
    kind = ConfigKind("a.example.com/v1", "Mode", Mode)
    here = AllocatableDevice(Device(name="a-0"), "u0", config_kinds=(kind,))
    other = AllocatableDevice(Device(name="a-1"), "u1", config_kinds=(kind, kind))
    inventory = Inventory(
        (here, other), unanswered=("acme",), had={"a-0": "acme", "b": "acme", "c": "done", "d": ""}
    )
    assert [inventory.may_exist(name) for name in ("a-0", "b", "c", "d", "e")] == [
        False,
        True,
        False,
        True,
        True,
    ]
    assert inventory.awaited() == ("b", "d")
    assert inventory.missing() == ("c",)
    taken_away = Inventory((here,), had={"a-0": "acme", "b": "acme", "d": ""})
    assert taken_away.missing() == ("b",)
    assert not Inventory((here,)).may_exist("b")
    assert inventory.config_kinds() == (kind,)
    assert (str(kind), kind.config(1)) == (
        "a.example.com/v1 Mode",
        DeviceConfig("a.example.com/v1", "Mode", 1),
    )
