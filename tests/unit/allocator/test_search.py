# SPDX-License-Identifier: Apache-2.0
"""The search where it has to go back, gets large, or leaves something out.

Problems are small versions of what fleets have; that each answer is upstream's, tests/conformance says.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dra_driver.allocator import features
from dra_driver.allocator.allocate import Allocator
from dra_driver.allocator.failures import AllocationError
from dra_driver.allocator.features import Implementation
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import AllocationResult, DeviceClass, ResourceClaim
from dra_driver.model.api.resource_slice import ResourceSlice

Json = dict[str, Any]
DRIVER = "gpu.example.com"
NODE = msgspec.convert({"metadata": {"name": "node-1"}}, Node)
CLASSES = msgspec.convert([{"metadata": {"name": "gpu"}}], list[DeviceClass])


def a_fleet(devices: list[Json], **spec: Any) -> list[ResourceSlice]:
    pool = {"name": "pool-1", "generation": 1, "resourceSliceCount": 1}
    slices = [{"driver": DRIVER, "pool": pool, "nodeName": "node-1", "devices": devices, **spec}]
    if "sharedCounters" in spec:
        counters = spec.pop("sharedCounters")
        pool["resourceSliceCount"] = 2
        slices = [{**slices[0]}, {**slices[0], "devices": [], "sharedCounters": counters}]
        slices[0].pop("sharedCounters")
    return msgspec.convert(
        [{"metadata": {"name": f"slice-{index}"}, "spec": one} for index, one in enumerate(slices)],
        list[ResourceSlice],
    )


def wanting(count: int, expression: str | None = None, **parts: Any) -> Json:
    selectors = [{"cel": {"expression": expression}}] if expression else None
    return {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": count,
        "selectors": selectors,
        **parts,
    }


def claims_of(*claims: list[Json], constraints: list[Json] | None = None) -> list[ResourceClaim]:
    return msgspec.convert(
        [
            {
                "metadata": {"name": f"claim-{number}"},
                "spec": {
                    "devices": {
                        "requests": [
                            {"name": f"r{index}", **request}
                            for index, request in enumerate(requests)
                        ],
                        "constraints": constraints,
                    }
                },
            }
            for number, requests in enumerate(claims)
        ],
        list[ResourceClaim],
    )


class Steps:
    """Counts, and stops what would take too long."""

    def __init__(self, most: int = 100_000) -> None:
        self.taken = 0
        self.most = most

    def __call__(self) -> bool:
        self.taken += 1
        return self.taken > self.most


def answer(
    slices: list[ResourceSlice],
    claims: list[ResourceClaim],
    *,
    prune: bool = True,
    cancelled: Callable[[], bool] = lambda: False,
    implementation: Implementation = "experimental",
) -> list[AllocationResult] | str | None:
    on = features.SUPPORTED[implementation]
    allocator = Allocator(slices, CLASSES, features=on, implementation=implementation)
    try:
        return allocator.allocate(NODE, claims, prune=prune, cancelled=cancelled)
    except AllocationError as error:
        return str(error)


def given(result: list[AllocationResult] | str | None) -> list[list[str]]:
    assert isinstance(result, list)
    return [[one.device for one in each.devices.results or ()] for each in result]


def numbered(count: int, **parts: Any) -> list[Json]:
    """Devices that differ in what nobody asks for."""
    return [
        {"name": f"gpu-{index}", "attributes": {"uuid": {"string": f"u{index}"}}, **parts}
        for index in range(count)
    ]


MODEL_A = 'device.attributes["gpu.example.com"].model == "a"'


def test_a_request_takes_back_what_a_later_one_needs() -> None:
    devices = [
        {"name": "gpu-0", "attributes": {"model": {"string": "a"}}},
        {"name": "gpu-1", "attributes": {"model": {"string": "b"}}},
    ]
    claims = claims_of([{"exactly": wanting(1)}, {"exactly": wanting(1, MODEL_A)}])
    assert given(answer(a_fleet(devices), claims)) == [["gpu-1", "gpu-0"]]


def test_a_hopeless_claim_on_many_devices_is_told_quickly() -> None:
    steps = Steps(2000)
    claims = claims_of([{"exactly": wanting(20)}, {"exactly": wanting(1, "false")}])
    assert answer(a_fleet(numbered(128)), claims, cancelled=steps) is None
    assert steps.taken < 200


def test_too_few_partitions_are_told_quickly() -> None:
    counters = [{"name": "gpu", "counters": {"slots": {"value": "7"}}}]
    consumes = [{"counterSet": "gpu", "counters": {"slots": {"value": "1"}}}]
    partitions = [
        {**one, "consumesCounters": consumes, "attributes": {"slot": {"int": index}}}
        for index, one in enumerate(numbered(28))
    ]
    fleet = a_fleet(partitions, sharedCounters=counters)
    one_each = [{"distinctAttribute": "gpu.example.com/slot"}]
    steps = Steps()
    assert given(answer(fleet, claims_of([{"exactly": wanting(7)}], constraints=one_each)))
    # No two partitions are alike under this constraint, and all are eligible.
    assert (
        answer(fleet, claims_of([{"exactly": wanting(30)}], constraints=one_each), cancelled=steps)
        is None
    )
    assert steps.taken < 100


def test_many_claims_do_not_exhaust_the_stack() -> None:
    claims = claims_of(*[[{"exactly": wanting(1)}]] * 1200)
    assert len(given(answer(a_fleet(numbered(1200)), claims))) == 1200
    assert len(given(answer([], claims_of(*[[]] * 1200)))) == 1200
    assert given(answer([], claims_of([{"exactly": wanting(0)}] * 1200))) == [[]]


def test_an_alternative_with_too_many_devices_is_passed_over() -> None:
    alternatives = [{"name": "many", **wanting(31)}, {"name": "few", **wanting(1)}]
    claims = claims_of([{"firstAvailable": alternatives}, {"firstAvailable": alternatives}])
    result = answer(a_fleet(numbered(40)), claims)
    assert [len(one) for one in given(result)] == [32]


def test_what_exceeds_the_limit_later_is_taken_back_to_a_smaller_alternative() -> None:
    alternatives = [{"name": "many", **wanting(31)}, {"name": "few", **wanting(1)}]
    claims = claims_of([{"firstAvailable": alternatives}, {"exactly": wanting(2)}])
    assert given(answer(a_fleet(numbered(40)), claims)) == [["gpu-0", "gpu-1", "gpu-2"]]


def test_nothing_fits_if_every_way_has_too_many_devices_or_fails() -> None:
    alternatives = [{"name": "many", **wanting(31)}, {"name": "none", **wanting(1, "false")}]
    claims = claims_of([{"exactly": wanting(2)}, {"firstAvailable": alternatives}])
    assert answer(a_fleet(numbered(40)), claims) is None


def test_an_error_is_raised_only_where_the_search_comes_to_it() -> None:
    devices: list[Json] = [
        {"name": "gpu-0"},
        {"name": "gpu-1", "attributes": {"model": {"string": "a"}}},
    ]
    claims = claims_of(
        [
            {"exactly": wanting(1, f"!has(device.attributes['{DRIVER}'].model)")},
            {"exactly": wanting(1, MODEL_A)},
        ]
    )
    assert given(answer(a_fleet(devices), claims)) == [["gpu-0", "gpu-1"]]
    first = claims_of([{"exactly": wanting(2, MODEL_A)}])
    assert answer(a_fleet(devices), first) == (
        "claim claim-0: selector #0 on device gpu.example.com/pool-1/gpu-0: CEL runtime error:"
        " no such key: model. consider using CEL optional chaining (.? followed by orValue())"
        " or guarding the check with has() for optional fields"
    )


def test_a_selector_that_fails_on_some_device_keeps_the_search_complete() -> None:
    devices: list[Json] = [
        {"name": f"gpu-{index}", "attributes": {"model": {"string": model}} if model else {}}
        for index, model in enumerate(("a", "b", "b", ""))
    ]
    # gpu-3 makes the second request's selector fail, and the search comes to it after going back.
    claims = claims_of([{"exactly": wanting(1)}, {"exactly": wanting(2, MODEL_A)}])
    whole, pruned = (answer(a_fleet(devices), claims, prune=prune) for prune in (False, True))
    assert whole == pruned
    assert isinstance(pruned, str)


def test_with_all_a_violated_constraint_is_an_error() -> None:
    devices = [
        {"name": f"gpu-{index}", "attributes": {"root": {"int": index}}} for index in range(2)
    ]
    everything = {"deviceClassName": "gpu", "allocationMode": "All"}
    claims = claims_of(
        [{"exactly": everything}], constraints=[{"matchAttribute": "gpu.example.com/root"}]
    )
    assert answer(a_fleet(devices), claims) == (
        "claim claim-0, request r0: cannot add device gpu.example.com/pool-1/gpu-1"
        " because a claim constraint would not be satisfied"
    )


ATTRIBUTES: list[Json] = [
    {},
    {"root": {"int": 1}, "model": {"string": "a"}},
    {"root": {"int": 2}, "model": {"string": "a"}},
    {"root": {"ints": [1, 2]}, "model": {"string": "b"}},
    {"root": {"string": "x"}, "model": {"string": "b"}},
]
EXPRESSIONS = [None, MODEL_A, f"device.attributes['{DRIVER}'].?model.orValue('') == 'b'", "false"]
DERIVED = [{"name": "example.com/root", "expression": f"device.attributes['{DRIVER}'].model"}]


def a_random_request(chance: random.Random) -> Json:
    def one() -> Json:
        parts: Json = wanting(chance.choice((1, 1, 2, 3)), chance.choice(EXPRESSIONS))
        if chance.random() < 0.1:
            parts |= {"allocationMode": "All", "count": 0}
        if chance.random() < 0.2:
            parts["capacity"] = {"requests": {"memory": chance.choice(("1", "4"))}}
        if chance.random() < 0.1:
            parts["derivedAttributes"] = DERIVED
        return parts

    if chance.random() < 0.3:
        return {"firstAvailable": [{"name": f"s{number}", **one()} for number in range(2)]}
    return {"exactly": one() | ({"adminAccess": True} if chance.random() < 0.1 else {})}


def a_random_fleet(chance: random.Random, *, groups_known: bool) -> list[ResourceSlice]:
    devices = []
    for index in range(chance.randint(1, 9)):
        device: Json = {
            "name": f"gpu-{index}",
            "attributes": chance.choice(ATTRIBUTES),
            "capacity": {"memory": {"value": "8", "requestPolicy": {"default": "2"}}},
            "allowMultipleAllocations": chance.random() < 0.3,
        }
        if chance.random() < 0.5:
            groups = chance.choice(([], ["x"], ["x", "y"])) if groups_known else []
            slots = chance.choice(("1", "2", "-1" if chance.random() < 0.1 else "3"))
            device["consumesCounters"] = [
                {
                    "counterSet": "gpu",
                    "counters": {"slots": {"value": slots}},
                    "compatibilityGroups": groups,
                }
            ]
        devices.append(device)
    counters = [{"name": "gpu", "counters": {"slots": {"value": chance.choice(("-1", "4", "6"))}}}]
    return a_fleet(devices, sharedCounters=counters)


def stable_claims(chance: random.Random) -> list[ResourceClaim]:
    requests = [
        {"exactly": wanting(chance.choice((1, 2, 3)), chance.choice(EXPRESSIONS[2:]))}
        for _ in range(2)
    ]
    match = [{"matchAttribute": "gpu.example.com/model"}]
    return claims_of(requests, requests[:1], constraints=match if chance.random() < 0.5 else None)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("implementation", ["stable", "incubating", "experimental"])
def test_what_is_left_out_changes_no_answer(seed: int, implementation: Implementation) -> None:
    chance = random.Random(f"{seed} {implementation}")
    compared = 0
    for _ in range(40):
        fleet = a_random_fleet(chance, groups_known=implementation == "experimental")
        claims = (
            stable_claims(chance)
            if implementation == "stable"
            else claims_of(
                *[
                    [a_random_request(chance) for _ in range(chance.randint(1, 3))]
                    for _ in range(chance.choice((1, 1, 2)))
                ],
                constraints=chance.choice(
                    (
                        None,
                        [
                            {
                                chance.choice(
                                    ("matchAttribute", "distinctAttribute")
                                ): chance.choice(("gpu.example.com/root", "example.com/root"))
                            }
                        ],
                    )
                ),
            )
        )
        steps = Steps(3000)
        whole = answer(fleet, claims, prune=False, cancelled=steps, implementation=implementation)
        if steps.taken <= steps.most:
            assert answer(fleet, claims, implementation=implementation) == whole
            compared += 1
    assert compared > 20
