# SPDX-License-Identifier: Apache-2.0
"""A backend's device of a wrong shape costs itself only, and is named."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from dra_driver.model.health import Health
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.model.slices import Problem
from dra_driver.planning.scanned import as_scanned
from dra_driver.planning.slices import plan_pool
from tests.support.api_values import found_device

WRONG: Any = 5  # what a type checker forbids and Python does not
GOOD = found_device(
    DeviceName("gpu-0"),
    "uuid-0",
    attributes={"index": 0},
    hardware=Hardware("GPU-1", ("slice-0",), "1g.10gb"),
    declares=frozenset({"hooks"}),
)
BAD = replace(GOOD, api=msgspec.structs.replace(GOOD.api, name="gpu-1"))


def api(**fields: Any) -> dict[str, Any]:
    return {"api": msgspec.structs.replace(BAD.api, **fields)}


def test_what_is_right_is_passed_on_as_it_is() -> None:
    inventory = Inventory((GOOD, BAD))
    assert as_scanned(inventory) is inventory


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"api": SimpleNamespace(name="gpu-1")},
            "api: namespace(name='gpu-1') is a SimpleNamespace",
        ),
        ({"uuid": None}, "uuid: None is a NoneType, it must be a str"),
        (api(name=WRONG), "name: 5 is a int, it must be a str"),
        (api(attributes=[WRONG]), "attributes: [5] is a list, it must be a Mapping"),
        (api(attributes={WRONG: 1}), "a name in attributes: 5 is a int"),
        (api(capacity=[WRONG]), "capacity: [5] is a list"),
        ({"health": "ok"}, "health: 'ok' is a str, it must be a Health"),
        ({"health": Health(WRONG)}, "health.status: 5 is a int, it must be a HealthStatus"),
        ({"binds": WRONG}, "binds: 5 is a int, it must be a bool"),
        ({"not_clean": WRONG}, "not_clean: 5 is a int, it must be a str"),
        ({"errors": WRONG}, "errors: 5 is a int, it must be a Mapping"),
        ({"errors": {WRONG: 1}}, "a name in errors: 5 is a int, it must be a str"),
        ({"errors": {"xid-31": "2"}}, "errors[xid-31]: '2' is a str, it must be a int"),
        ({"status_data": WRONG}, "status_data: 5 is a int, it must be a Mapping or NoneType"),
        ({"hardware": "GPU-1"}, "hardware: 'GPU-1' is a str, it must be a Hardware or NoneType"),
        ({"hardware": Hardware(WRONG)}, "hardware.parent: 5 is a int, it must be a str"),
        ({"hardware": Hardware("a", (), WRONG)}, "hardware.profile: 5 is a int"),
        ({"hardware": Hardware("a", WRONG)}, "hardware.parts: 5 is a int, it must be a tuple"),
        ({"hardware": Hardware("a", (WRONG,))}, "hardware.parts: 5 is a int, it must be a str"),
        ({"declares": WRONG}, "declares: 5 is a int"),
        ({"declares": frozenset({WRONG})}, "declares: 5 is a int, it must be a str"),
    ],
)
def test_a_device_of_a_wrong_shape_is_left_out_by_name(fields: Any, said: str) -> None:
    bad = replace(BAD, **fields)
    found = as_scanned(Inventory((GOOD, bad)))
    assert found.devices == (GOOD,)
    plan = plan_pool(found, kept=())
    assert list(plan.devices) == ["gpu-0"]
    (problem,) = map(str, plan.problems)
    assert problem.startswith(f"device {bad.name}: {said}")
    assert problem.endswith(
        "the device was left out, all others are published; correct it in the backend"
    )


def test_what_the_backend_left_out_itself_is_still_told() -> None:
    own = Problem(DeviceName("gpu-7"), "identity", "it does not answer", "look at it", "GPU")
    found = as_scanned(Inventory((GOOD, replace(BAD, uuid=WRONG)), left_out=(own,)))
    assert [problem.device for problem in found.left_out] == ["gpu-7", "gpu-1"]


def test_what_only_looks_like_a_device_is_left_out() -> None:
    alike = cast("Any", SimpleNamespace(name="gpu-1", uuid="uuid-1"))
    found = as_scanned(Inventory((GOOD, alike)))
    assert found.devices == (GOOD,)
    (problem,) = map(str, found.left_out)
    assert problem.startswith("device gpu-1: device: namespace(name='gpu-1'")


def test_a_node_may_have_wrong_devices_only() -> None:
    found = as_scanned(Inventory((replace(BAD, uuid=WRONG),)))
    assert (found.devices, found.scanned, len(found.left_out)) == ((), True, 1)


@pytest.mark.parametrize("found", [None, [GOOD]])
def test_what_is_no_inventory_is_refused(found: object) -> None:
    with pytest.raises(TypeError, match="must return an Inventory; it returned a"):
        as_scanned(found)
