# SPDX-License-Identifier: Apache-2.0
"""What this node has."""

import pytest

from dra_driver.model.inventory import Inventory
from dra_driver.testing.builders import a_device, an_inventory


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
