# SPDX-License-Identifier: Apache-2.0
"""Where leaving devices out would change the answer, nothing is left out.

Each problem has alike devices, of which one fails first; the answer is found, or the error met, with the other.
"""

from typing import Any

import msgspec

from dra_driver.allocator import features
from dra_driver.allocator.allocate import Allocator
from dra_driver.allocator.failures import AllocationError
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import DeviceClass, ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice

Json = dict[str, Any]
DRIVER = "gpu.example.com"
CLASSES = msgspec.convert([{"metadata": {"name": "gpu"}}], list[DeviceClass])
NODE = msgspec.convert({"metadata": {"name": "node-1"}}, Node)
ONLY_X = f"has(device.attributes['{DRIVER}'].x)"
ROOT = "example.com/root"


def request(count: int, expression: str | None = None, **parts: Any) -> Json:
    selectors = [{"cel": {"expression": expression}}] if expression else None
    exact = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    return {**exact, "selectors": selectors, **parts}


def found(
    devices: list[Json],
    requests: list[Json],
    constraint: Json | None = None,
    *,
    on: frozenset[str] = features.ALL,
    slots: str = "",
) -> object:
    """The answer, which must be the same whether or not something may be left out."""
    counters = [{"name": "gpu", "counters": {"slots": {"value": slots}}}]
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 2 if slots else 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "node-1"}
    slices: list[Json] = [{"metadata": {"name": "devices"}, "spec": {**spec, "devices": devices}}]
    if slots:
        slices.append(
            {"metadata": {"name": "counters"}, "spec": {**spec, "sharedCounters": counters}}
        )
    asked = [{"name": f"r{index}", "exactly": one} for index, one in enumerate(requests)]
    constraints = [constraint] if constraint else None
    claim = {
        "metadata": {"name": "claim"},
        "spec": {"devices": {"requests": asked, "constraints": constraints}},
    }
    allocator = Allocator(msgspec.convert(slices, list[ResourceSlice]), CLASSES, features=on)
    answers: list[object] = []
    for prune in (False, True):
        try:
            results = allocator.allocate(NODE, [msgspec.convert(claim, ResourceClaim)], prune=prune)
        except AllocationError as error:
            answers.append(str(error))
        else:
            given = results[0].devices.results or () if results is not None else None
            answers.append(None if given is None else [one.device for one in given])
    assert answers[0] == answers[1]
    return answers[0]


def named(name: str, **attributes: Json) -> Json:
    return {"name": name, "attributes": {f"{key}": value for key, value in attributes.items()}}


def test_an_error_of_all_under_a_constraint_is_met() -> None:
    everything = {"deviceClassName": "gpu", "allocationMode": "All"}
    constraint = {"requests": ["r1"], "matchAttribute": ROOT}
    devices = [named("a"), named("b")]
    assert found(devices, [request(1), everything], constraint) == (
        "claim claim, request r1: cannot add device gpu.example.com/pool/a"
        " because a claim constraint would not be satisfied"
    )


def test_a_device_that_makes_room_for_others_is_used() -> None:
    def consumer(name: str, slots: str) -> Json:
        counters = {"slots": {"value": slots}}
        return {"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": counters}]}

    devices = [
        named("x", x={"bool": True}),
        consumer("a0", "5"),
        consumer("gives", "-5"),
        consumer("a1", "5"),
    ]
    assert found(devices, [request(2), request(1, ONLY_X)], slots="4") == ["gives", "a1", "x"]


def test_a_list_may_come_first_where_single_values_are_wanted() -> None:
    devices = [
        named("x", x={"bool": True}, root={"int": 9}),
        named("s0", root={"int": 1}),
        named("list", root={"ints": [1]}),
        named("s1", root={"int": 1}),
    ]
    constraint = {"requests": ["r0"], "distinctAttribute": f"{DRIVER}/root"}
    answer = found(
        devices, [request(2), request(1, ONLY_X)], constraint, on=features.ENABLED_BY_DEFAULT
    )
    assert answer == ["list", "s1", "x"]


def test_an_error_of_a_computed_attribute_is_met() -> None:
    derived = [{"name": ROOT, "expression": f"device.attributes['{DRIVER}'].model"}]
    devices = [named("without"), named("with", model={"string": "a"})]
    constraint = {"requests": ["r1"], "matchAttribute": ROOT}
    answer = found(devices, [request(1), request(3, derivedAttributes=derived)], constraint)
    assert answer == (
        "evaluate derived attribute example.com/root on device gpu.example.com/pool/without"
        " failed: no such key: model"
    )


def test_without_list_attributes_a_computed_attribute_may_be_a_list() -> None:
    derived = [{"name": ROOT, "expression": "['a']"}]
    on = features.ALL - {features.LIST_ATTRIBUTES}
    devices = [named("a"), named("b"), named("c")]
    constraint = {"requests": ["r0"], "matchAttribute": ROOT}
    requests = [request(1, derivedAttributes=derived), request(1, "false")]
    assert found(devices, requests, constraint, on=on) is None


def test_a_selector_that_fails_makes_a_device_like_no_other() -> None:
    model = f"device.attributes['{DRIVER}'].model == 'a'"
    devices = [named("a", model={"string": "b"}), named("b", model={"string": "b"}), named("c")]
    answer = found(devices, [request(2), request(1, model)])
    assert isinstance(answer, str)
    assert "on device gpu.example.com/pool/c: CEL runtime error" in answer
    assert found(devices, [request(1), request(1), request(2), request(1, model)]) is None


def test_shares_and_admin_access_are_part_of_what_makes_devices_alike() -> None:
    capacity = {"memory": {"value": "8", "requestPolicy": {"default": "4"}}}
    devices = [
        {"name": name, "allowMultipleAllocations": True, "capacity": capacity}
        for name in ("a", "b")
    ]
    three = [request(1) for _ in range(5)]
    assert found(devices, three) is None
    assert found(devices, three[:4]) == ["a", "a", "b", "b"]
    monitor = request(2, adminAccess=True)
    assert found([named("a"), named("b")], [request(1), monitor]) is None


def test_a_device_is_left_out_only_if_none_of_its_values_is_carried_by_enough_others() -> None:
    constraint = {"matchAttribute": f"{DRIVER}/root"}
    roots = {"x": [9], "y": [9], "a": [1, 2], "b": [1], "c": [2, 3], "d": [4], "e": [3, 2]}
    devices = [named(name, root={"ints": values}) for name, values in roots.items()]
    assert found([*devices, named("without")], [request(3)], constraint) == ["a", "c", "e"]
    assert found(devices, [request(4)], constraint) is None
