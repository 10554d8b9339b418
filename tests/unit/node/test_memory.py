# SPDX-License-Identifier: Apache-2.0
"""What was published survives a restart, whole and with its types."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from dra_driver.model.api.resource_slice import (
    CapacityRequestPolicy,
    Device,
    DeviceAttribute,
    DeviceCapacity,
)
from dra_driver.model.device import Version
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.quantity import Quantity
from dra_driver.node.memory import PublishedMemory
from dra_driver.node.published import dump_published, load_backend_name, load_published
from dra_driver.node.state import StateStore
from dra_driver.testing.builders import A_POOL
from tests.support.api_values import device_taint, published

FIRST = published(
    DeviceName("gpu-0"),
    {"index": 1, "ecc": True, "productName": "ü", "driverVersion": Version("1.2.3"), "none": ""},
    {"memory": Quantity.parse("80Gi"), "cores": Quantity.parse("1500m")},
)
SECOND = published(
    DeviceName("gpu-1"),
    taints=(device_taint("a.example.com/gone", "why", "NoExecute", "2026-01-02T03:04:05Z"),),
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
        assert PublishedMemory(store, PoolName("other")).read() == (SECOND,)
        PublishedMemory(store, A_POOL).write([])
        assert PublishedMemory(store, A_POOL).read() == ()


def test_the_record_has_the_backend_of_each_device(tmp_path: Path) -> None:
    backends = {FIRST.name: "acme"}

    def backend_of(device: DeviceName) -> str:
        return backends.get(device, "")

    with opened(tmp_path) as store:
        PublishedMemory(store, A_POOL).write([FIRST, SECOND])
        memory = PublishedMemory(store, A_POOL, backend_of=backend_of)
        assert memory.backends() == {FIRST.name: "", SECOND.name: ""}
        assert not memory.is_complete()
        memory.write([FIRST, SECOND])
        assert memory.backends() == {FIRST.name: "acme", SECOND.name: ""}
        assert memory.is_complete()
        assert memory.read() == (FIRST, SECOND)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"backend": 5}'])
def test_a_record_without_a_backend_has_none(text: str) -> None:
    assert load_backend_name(text) == ""


@pytest.mark.parametrize(
    "taints", ["odd", None, [1, {"key": "a"}, {"key": "a", "value": "", "effect": "New"}]]
)
def test_taints_that_this_driver_does_not_know_are_passed_over(taints: object) -> None:
    text = json.dumps({"attributes": {}, "capacity": {}, "taints": taints})
    assert load_published("gpu-0", text) == published("gpu-0")


EVERYTHING = Device(
    name="gpu-0",
    attributes={
        "index": DeviceAttribute(int_value=1),
        "ready": DeviceAttribute(bool_value=False),
        "driverVersion": DeviceAttribute(version_value="1.2.3"),
        "links": DeviceAttribute(string_values=["a"]),
    },
    capacity={
        "memory": DeviceCapacity(value="80Gi", request_policy=CapacityRequestPolicy(default="1Gi"))
    },
    taints=[device_taint("a.example.com/gone", "why", "NoSchedule", "2026-01-02T03:04:05Z")],
    binding_conditions=["ready"],
    all_nodes=False,
)


def test_every_field_of_the_api_is_remembered(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        PublishedMemory(store, A_POOL).write([EVERYTHING])
    with opened(tmp_path) as store:
        assert PublishedMemory(store, A_POOL).read() == (EVERYTHING,)


def test_beside_it_stands_what_drivers_up_to_0_1_read() -> None:
    """They take these keys and no others, and pass over an attribute that is a list."""
    content = json.loads(dump_published(EVERYTHING))
    assert {key: content[key] for key in ("attributes", "capacity", "taints")} == {
        "attributes": {
            "index": 1,
            "ready": False,
            "driverVersion": {"version": "1.2.3"},
            "links": ["a"],
        },
        "capacity": {"memory": "80Gi"},
        "taints": [
            {
                "key": "a.example.com/gone",
                "value": "why",
                "effect": "NoSchedule",
                "time_added": "2026-01-02T03:04:05Z",
            }
        ],
    }
    assert json.loads(dump_published(Device(name="gpu-1"))).keys() == {
        "attributes",
        "capacity",
        "device",
    }


def test_what_a_driver_up_to_0_1_wrote_is_read() -> None:
    text = """{"attributes": {"index": 1, "ready": false, "driverVersion": {"version": "1.2.3"}, "productName": "\\u00fc"},
        "capacity": {"memory": "80Gi", "cores": "1500m"},
        "taints": [{"key": "a.example.com/gone", "value": "why", "effect": "NoSchedule", "time_added": "2026-01-02T03:04:05Z"}]}"""
    assert load_published("gpu-0", text) == published(
        "gpu-0",
        {"index": 1, "ready": False, "driverVersion": Version("1.2.3"), "productName": "ü"},
        {"memory": Quantity.parse("80Gi"), "cores": Quantity.parse("1500m")},
        [device_taint("a.example.com/gone", "why", "NoSchedule", "2026-01-02T03:04:05Z")],
    )


@pytest.mark.parametrize("text", ["[]", '"device"', '{"device": 1}', '{"device": {"name": 1}}'])
def test_what_cannot_be_understood_is_passed_over(text: str) -> None:
    assert load_published("gpu-0", text) is None


def test_the_older_form_tells_what_a_newer_drivers_form_does_not() -> None:
    """A newer driver may give a field another type; what drivers up to 0.1 read stands beside it."""
    content = json.loads(dump_published(FIRST))
    content["device"]["bindsToNode"] = {"new": "type"}
    assert load_published("gpu-0", json.dumps(content)) == FIRST
