# SPDX-License-Identifier: Apache-2.0
"""What was published survives a restart, whole and with its types."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from dra_driver.model.device import Version
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import PublishedDevice, Taint
from dra_driver.node.memory import PublishedMemory
from dra_driver.node.published import load_published
from dra_driver.node.state import StateStore
from dra_driver.testing.builders import A_POOL

FIRST = PublishedDevice(
    DeviceName("gpu-0"),
    {"index": 1, "ecc": True, "productName": "ü", "driverVersion": Version("1.2.3"), "none": ""},
    {"memory": Quantity.parse("80Gi"), "cores": Quantity.parse("1500m")},
)
SECOND = PublishedDevice(
    DeviceName("gpu-1"),
    taints=(Taint("a.example.com/gone", "why", "NoExecute", "2026-01-02T03:04:05Z"),),
)


def opened(tmp_path: Path) -> closing[StateStore]:
    return closing(StateStore(tmp_path / "state.db", boot_id="boot-1"))


def test_nothing_was_published_yet(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        assert PublishedMemory(store, A_POOL).read() == ()


def test_the_last_publication_comes_back_after_a_restart_in_its_order(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        PublishedMemory(store, A_POOL).write([FIRST])
        PublishedMemory(store, A_POOL).write([SECOND, FIRST])
        PublishedMemory(store, PoolName("other")).write([SECOND])
    with opened(tmp_path) as store:
        found = PublishedMemory(store, A_POOL).read()
        assert found == (SECOND, FIRST)
        assert {name: type(value) for name, value in found[1].attributes.items()} == {
            "index": int,
            "ecc": bool,
            "productName": str,
            "driverVersion": Version,
            "none": str,
        }
        assert PublishedMemory(store, PoolName("other")).read() == (SECOND,)
        PublishedMemory(store, A_POOL).write([])
        assert PublishedMemory(store, A_POOL).read() == ()


@pytest.mark.parametrize(
    "taints", ["odd", None, [1, {"key": "a"}, {"key": "a", "value": "", "effect": "New"}]]
)
def test_taints_that_this_driver_does_not_know_are_passed_over(taints: object) -> None:
    text = json.dumps({"attributes": {}, "capacity": {}, "taints": taints})
    assert load_published(DeviceName("gpu-0"), text) == PublishedDevice(DeviceName("gpu-0"))
