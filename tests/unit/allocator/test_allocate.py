# SPDX-License-Identifier: Apache-2.0
"""The door of the allocator: a few plain allocations, and what an Allocator keeps.

Whether each answer is upstream's, tests/conformance says.
"""

from typing import Any

import msgspec
import pytest

from dra_driver.allocator import features
from dra_driver.allocator.allocate import NO_SHARE_ID, Allocator
from dra_driver.allocator.failures import AllocationCancelled, AllocationError, NodeAllocationError
from dra_driver.allocator.state import AllocatedState, DeviceID, SharedDeviceID
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import AllocationResult, DeviceClass, ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice

DRIVER = "gpu.example.com"
NODE = msgspec.convert({"metadata": {"name": "node-1"}}, Node)
GPU_CLASS = msgspec.convert({"metadata": {"name": "gpu"}}, DeviceClass)


def a_slice(*devices: dict[str, Any], name: str = "slice-1", **spec: Any) -> ResourceSlice:
    pool = {"name": "pool-1", "generation": 1, "resourceSliceCount": 1, **spec.pop("pool", {})}
    if not {"allNodes", "nodeSelector", "perDeviceNodeSelection"} & spec.keys():
        spec = {"nodeName": "node-1", **spec}
    return msgspec.convert(
        {
            "metadata": {"name": name},
            "spec": {"driver": DRIVER, "pool": pool, "devices": devices, **spec},
        },
        ResourceSlice,
    )


def gpus(count: int, **parts: Any) -> list[dict[str, Any]]:
    return [{"name": f"gpu-{index}", **parts} for index in range(count)]


def exactly(count: int = 1, **parts: Any) -> dict[str, Any]:
    return {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": count,
        **parts,
    }


ALL_GPUS = {"deviceClassName": "gpu", "allocationMode": "All"}


def a_claim(*requests: dict[str, Any], name: str = "claim", **devices: Any) -> ResourceClaim:
    named = [{"name": f"r{index}", **request} for index, request in enumerate(requests)]
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"devices": {"requests": named, **devices}},
        },
        ResourceClaim,
    )


def an_allocator(*slices: ResourceSlice, state: AllocatedState | None = None) -> Allocator:
    return Allocator(slices, [GPU_CLASS], state, features=features.ALL)


def names(results: list[AllocationResult] | None) -> list[list[str]] | None:
    if results is None:
        return None
    return [[one.device for one in result.devices.results or ()] for result in results]


def test_devices_are_given_in_order_and_once() -> None:
    allocator = an_allocator(a_slice(*gpus(3)))
    claims = [a_claim({"exactly": exactly()}), a_claim({"exactly": exactly(2)}, name="other")]
    assert names(allocator.allocate(NODE, claims)) == [["gpu-0"], ["gpu-1", "gpu-2"]]


def test_what_does_not_fit_is_none_and_an_empty_question_fits() -> None:
    allocator = an_allocator(a_slice(*gpus(3)))
    assert allocator.allocate(NODE, [a_claim({"exactly": exactly(4)})]) is None
    assert allocator.allocate(NODE, []) == []
    assert names(allocator.allocate(NODE, [a_claim()])) == [[]]


def test_what_others_hold_is_not_given_again() -> None:
    held = AllocatedState(allocated_devices={DeviceID(DRIVER, "pool-1", "gpu-0")})
    allocator = an_allocator(a_slice(*gpus(2)), state=held)
    claims = [a_claim({"exactly": exactly()})]
    assert names(allocator.allocate(NODE, claims)) == [["gpu-1"]]
    assert names(allocator.after(AllocatedState()).allocate(NODE, claims)) == [["gpu-0"]]
    assert names(allocator.allocate(NODE, claims)) == [["gpu-1"]]


def test_what_is_allocated_since_has_taken_its_counters() -> None:
    """Two devices of one card, and counters for one of them."""
    consumed = [{"counterSet": "card", "counters": {"slots": {"value": "1"}}}]
    one_slot = [{"name": "card", "counters": {"slots": {"value": "1"}}}]
    two = {"resourceSliceCount": 2}
    allocator = an_allocator(
        a_slice(*gpus(2, consumesCounters=consumed), pool=two),
        a_slice(name="slice-2", pool=two, sharedCounters=one_slot),
    )
    claims = [a_claim({"exactly": exactly()})]
    assert names(allocator.allocate(NODE, claims)) == [["gpu-0"]]
    first = AllocatedState(allocated_devices={DeviceID(DRIVER, "pool-1", "gpu-0")})
    assert allocator.after(first).allocate(NODE, claims) is None
    assert names(allocator.allocate(NODE, claims)) == [["gpu-0"]]


def test_a_share_says_who_it_is_and_what_it_takes() -> None:
    capacity = {"memory": {"value": "80Gi", "requestPolicy": {"default": "10Gi"}}}
    shared = a_slice(*gpus(1, allowMultipleAllocations=True, capacity=capacity))
    taken = AllocatedState(
        allocated_shared_device_ids={SharedDeviceID(DRIVER, "pool-1", "gpu-0", "earlier")},
        aggregated_capacity={DeviceID(DRIVER, "pool-1", "gpu-0"): {"memory": "60Gi"}},
    )
    allocator = an_allocator(shared, state=taken)
    results = allocator.allocate(NODE, [a_claim({"exactly": exactly()}, {"exactly": exactly()})])
    assert results is not None
    assert [
        (one.device, one.share_id, one.consumed_capacity)
        for one in results[0].devices.results or ()
    ] == [("gpu-0", NO_SHARE_ID, {"memory": "10Gi"})] * 2
    three = a_claim(*[{"exactly": exactly()}] * 3)
    assert allocator.allocate(NODE, [three]) is None


@pytest.mark.parametrize(
    ("policy", "requests", "problem"),
    [
        ({"validRange": {"min": "0", "step": "0"}}, None, "is not positive"),
        ({"validRange": {"step": "5"}}, {"memory": "3"}, "has a step and no minimum"),
        (None, {"memory": "-1"}, "capacity value is negative"),
    ],
)
def test_a_capacity_that_cannot_be_checked_names_the_request_and_the_device(
    policy: dict[str, Any] | None, requests: dict[str, str] | None, problem: str
) -> None:
    capacity = {"memory": {"value": "80", "requestPolicy": policy}}
    allocator = an_allocator(a_slice(*gpus(1, allowMultipleAllocations=True, capacity=capacity)))
    asked = a_claim({"exactly": exactly(capacity={"requests": requests})})
    with pytest.raises(AllocationError, match=problem) as caught:
        allocator.allocate(NODE, [asked])
    said = f"claim ns/claim, request r0: checking capacity for device {DRIVER}/pool-1/gpu-0: "
    assert str(caught.value).startswith(said)


def test_all_devices_are_those_of_the_node_that_is_asked_about() -> None:
    other = a_slice({"name": "gpu-9"}, name="slice-2", nodeName="node-2", pool={"name": "pool-2"})
    allocator = an_allocator(a_slice(*gpus(2)), other)
    claims = [a_claim({"exactly": ALL_GPUS})]
    assert names(allocator.allocate(NODE, claims)) == [["gpu-0", "gpu-1"]]
    node_2 = msgspec.convert({"metadata": {"name": "node-2"}}, Node)
    assert names(allocator.allocate(node_2, claims)) == [["gpu-9"]]
    node_3 = msgspec.convert({"metadata": {"name": "node-3"}}, Node)
    assert allocator.allocate(node_3, claims) is None


def test_the_same_claims_on_the_next_node_find_their_requests_made() -> None:
    other = a_slice({"name": "gpu-9"}, name="slice-2", nodeName="node-2", pool={"name": "pool-2"})
    allocator = an_allocator(a_slice(*gpus(2)), other)
    claims = [
        a_claim({"firstAvailable": [{"name": "two", **exactly(2)}, {"name": "one", **exactly()}]})
    ]
    assert names(allocator.allocate(NODE, claims)) == [["gpu-0", "gpu-1"]]
    node_2 = msgspec.convert({"metadata": {"name": "node-2"}}, Node)
    assert names(allocator.allocate(node_2, claims)) == [["gpu-9"]]
    assert names(allocator.allocate(NODE, claims)) == [["gpu-0", "gpu-1"]]


def test_a_changed_node_is_looked_at_again() -> None:
    west = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}
    allocator = an_allocator(a_slice(*gpus(1), nodeSelector=west))
    claims = [a_claim({"exactly": exactly()})]
    assert allocator.allocate(NODE, claims) is None
    labelled = {"metadata": {"name": "node-1", "labels": {"zone": "west"}}}
    assert names(allocator.allocate(msgspec.convert(labelled, Node), claims)) == [["gpu-0"]]


def test_an_invalid_pool_rules_the_node_out_if_nothing_else_fits() -> None:
    twice = a_slice({"name": "gpu-0"}, {"name": "gpu-0"})
    good = a_slice({"name": "gpu-1"}, name="slice-2", pool={"name": "pool-2"})
    claims = [a_claim({"exactly": exactly()})]
    with pytest.raises(NodeAllocationError, match=r"^invalid resource pools were encountered$"):
        an_allocator(twice).allocate(NODE, claims)
    assert names(an_allocator(twice, good).allocate(NODE, claims)) == [["gpu-1"]]
    with pytest.raises(
        AllocationError, match=r"resource pool gpu.example.com/pool-1 is currently invalid"
    ):
        an_allocator(twice).allocate(NODE, [a_claim({"exactly": ALL_GPUS})])


def test_an_incomplete_pool_gives_nothing() -> None:
    half = a_slice(*gpus(2), pool={"resourceSliceCount": 2})
    assert an_allocator(half).allocate(NODE, [a_claim({"exactly": exactly()})]) is None
    with pytest.raises(AllocationError, match=r"is currently being updated$"):
        an_allocator(half).allocate(NODE, [a_claim({"exactly": ALL_GPUS})])


def test_a_claim_cannot_have_more_than_32_devices() -> None:
    allocator = an_allocator(a_slice(*gpus(40)))
    assert (
        len((names(allocator.allocate(NODE, [a_claim({"exactly": exactly(32)})])) or [[]])[0]) == 32
    )
    with pytest.raises(AllocationError) as caught:
        allocator.allocate(NODE, [a_claim({"exactly": exactly(30)}, {"exactly": exactly(3)})])
    assert str(caught.value) == (
        "claim ns/claim, request r1: adding 3 devices exceeds the claim limit of 32,"
        " with 30 already accounted for"
    )


def test_who_gives_up_gets_an_error() -> None:
    allocator = an_allocator(a_slice(*gpus(2)))
    with pytest.raises(AllocationCancelled, match=r"^filter operation aborted"):
        allocator.allocate(NODE, [a_claim({"exactly": exactly()})], cancelled=lambda: True)


LONG = "lists.range(200000).all(x, x >= 0)"
"""A condition that nobody knows the answer of before a thousand questions whether to go on."""


class Waiting:
    """Waits until it was asked so often."""

    def __init__(self, patience: int) -> None:
        self.asked = 0
        self._patience = patience

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked >= self._patience


@pytest.mark.parametrize(
    "wanted",
    [
        {"exactly": exactly(selectors=[{"cel": {"expression": LONG}}])},
        {"exactly": {**ALL_GPUS, "selectors": [{"cel": {"expression": LONG}}]}},
        {"exactly": exactly(derivedAttributes=[{"name": "a.example/b", "expression": LONG}])},
    ],
)
def test_who_gives_up_while_one_expression_is_evaluated_gets_the_same_error(
    wanted: dict[str, Any],
) -> None:
    claim = a_claim(wanted, constraints=[{"matchAttribute": "a.example/b"}])
    waiting = Waiting(50)
    with pytest.raises(AllocationCancelled, match=r"^filter operation aborted"):
        an_allocator(a_slice(*gpus(1))).allocate(NODE, [claim], cancelled=waiting)
    assert waiting.asked == 50


DOUBLED = "optional.of(true)" + ".optMap(x, x)" * 7 + ".value()"
"""A condition that is short to read and long to compile."""


@pytest.mark.parametrize(
    "wanted",
    [
        {"exactly": exactly(selectors=[{"cel": {"expression": DOUBLED}}])},
        {"exactly": exactly(derivedAttributes=[{"name": "a.example/b", "expression": DOUBLED}])},
    ],
)
def test_who_gives_up_while_one_expression_is_compiled_gets_the_same_error(
    wanted: dict[str, Any],
) -> None:
    claim = a_claim(wanted, constraints=[{"matchAttribute": "a.example/b"}])
    waiting = Waiting(5)
    with pytest.raises(AllocationCancelled, match=r"^filter operation aborted"):
        an_allocator(a_slice(*gpus(1))).allocate(NODE, [claim], cancelled=waiting)
    assert waiting.asked == 5


def test_who_gives_up_between_two_expressions_gets_the_same_error() -> None:
    selectors = [{"cel": {"expression": "device.driver != ''"}}]
    claim = a_claim({"exactly": {**ALL_GPUS, "selectors": selectors}})
    waiting = Waiting(4)  # it is asked when the expression is compiled, too
    with pytest.raises(AllocationCancelled):
        an_allocator(a_slice(*gpus(9))).allocate(NODE, [claim], cancelled=waiting)
    assert waiting.asked == 4


def test_the_first_class_of_a_name_counts() -> None:
    refusing = {
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": "false"}}]},
    }
    classes = [GPU_CLASS, msgspec.convert(refusing, DeviceClass)]
    allocator = Allocator([a_slice(*gpus(1))], classes)
    assert names(allocator.allocate(NODE, [a_claim({"exactly": exactly()})])) == [["gpu-0"]]
