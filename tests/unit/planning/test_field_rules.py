# SPDX-License-Identifier: Apache-2.0
"""Fields that the API server refuses, by the rules of validation.go of Kubernetes 1.37."""

from typing import Any

import pytest

from dra_driver.model.api.core import NodeSelector
from dra_driver.model.api.resource_slice import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    Device,
    DeviceCapacity,
    DeviceCounterConsumption,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
)
from dra_driver.planning.field_rules import wrong_field, wrong_policy

OWN_NODE = "the slice is for this node already, so its devices may not name nodes"
ASCEND = "requestPolicy.validValues: the values must ascend, with different whole numbers"
RANGE = "requestPolicy.validRange: min, default and max must ascend"
STEP = "requestPolicy.validRange.step: "
LIMITS = f"{STEP}all limits must be from 0 to 2^63-1"
FRACTIONS = "requestPolicy.validRange: limits with fractions must be multiples of 1m, and less than 2^63 of them"
WHOLE_STEPS = f"{STEP}default and max must be whole steps from min"

ONE_OF = "[cpu].mapping: exactly one of capacityKey and deviceMultiplier must be set"


def needs(resource: str = "cpu", **fields: Any) -> dict[str, Any]:
    return {"node_allocatable_resources": {resource: NodeAllocatableResource(**fields)}}


def mapped(**fields: Any) -> dict[str, Any]:
    return needs(mapping=NodeAllocatableMapping(**fields))


def beside(**fields: Any) -> dict[str, Any]:
    return needs(overhead=NodeAllocatableOverhead(**fields))


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"binding_conditions": ["a.b/C"], "binding_failure_conditions": ["D"]}, ""),
        ({"binding_conditions": ["x y"], "binding_failure_conditions": ["D"]}, "'x y' is no label key"),
        ({"binding_conditions": list("abcde"), "binding_failure_conditions": ["D"]}, "more than 4 conditions"),
        ({"binding_conditions": ["a", "a"], "binding_failure_conditions": ["D"]}, "'a' is there twice"),
        ({"binding_conditions": ["a"]}, "bindingFailureConditions must be set too"),
        ({"binding_failure_conditions": ["a"]}, "bindingConditions must be set too"),
        ({"binding_failure_conditions": ["a"], "binding_conditions": ["a"]}, "'a' is one of the bindingConditions too"),
        ({"binding_failure_conditions": ["x y"], "binding_conditions": ["a"]}, "'x y' is no label key"),
        ({"node_name": "node-1"}, OWN_NODE),
        ({"node_selector": NodeSelector()}, OWN_NODE),
        ({"all_nodes": True}, OWN_NODE),
        ({"consumes_counters": [DeviceCounterConsumption(counter_set="s", counters={"c": Counter(value="1")})]}, ""),
        ({"allow_multiple_allocations": True}, ""),
        (needs(), "[cpu].mapping or overhead must be set"),
        (needs("gpu"), "'gpu' is none of cpu, memory and hugepages-<size>"),
        (needs("hugepages-2Mi", overhead=NodeAllocatableOverhead(per_pod="1")), ""),
        (mapped(capacity_key="slots", capacity_multiplier="2"), ""),
        (mapped(device_multiplier="2"), ""),
        (mapped(capacity_key="slots"), "[cpu].mapping: capacityKey and capacityMultiplier must be set together"),
        (mapped(capacity_multiplier="1", device_multiplier="1"), "[cpu].mapping: capacityKey and capacityMultiplier must be set together"),
        (mapped(), ONE_OF),
        (mapped(capacity_key="slots", capacity_multiplier="1", device_multiplier="1"), ONE_OF),
        (mapped(capacity_key="other", capacity_multiplier="1"), "[cpu].mapping.capacityKey: the device publishes no capacity 'other'"),
        (mapped(capacity_key="slots", capacity_multiplier="0"), "[cpu].mapping.capacityMultiplier: 0 is not positive"),
        (mapped(device_multiplier="-1"), "[cpu].mapping.deviceMultiplier: -1 is not positive"),
        (mapped(device_multiplier="many"), "[cpu]: 'many' is no quantity; write for example 80Gi, 500m or 1e3"),
        (beside(), "[cpu].overhead: perPod or perContainer must be set"),
        (beside(per_pod="0"), ""),
        (beside(per_container="-1"), "[cpu].overhead.perContainer: -1 is negative"),
    ],
)  # fmt: skip
def test_what_the_api_server_refuses_of_a_device(fields: dict[str, Any], found: str):
    device = Device(name="gpu-0", **fields)
    wrong = (wrong_field(name, device, ("slots",)) for name in fields)
    assert next(filter(None, wrong), "") == found


def within(default: Any = "1", size: str = "8", **fields: Any) -> tuple[str, CapacityRequestPolicy]:
    limits = CapacityRequestPolicyRange(**fields)
    return size, CapacityRequestPolicy(default=default, valid_range=limits)


def of(*values: str, default: str | None = "1") -> tuple[str, CapacityRequestPolicy]:
    return "8", CapacityRequestPolicy(default=default, valid_values=list(values))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (("8", CapacityRequestPolicy()), ""),
        (("8", CapacityRequestPolicy(default="8")), ""),
        (("8", CapacityRequestPolicy(default="9")), "requestPolicy.default is larger than the capacity: a claim that names no amount would never get the device"),
        (("8", CapacityRequestPolicy(default="abc")), "requestPolicy: 'abc' is no quantity; write for example 80Gi, 500m or 1e3"),
        (("8", CapacityRequestPolicy(default="1", valid_values=["1"], valid_range=CapacityRequestPolicyRange(min="1"))), "requestPolicy: only one of validValues and validRange may be set"),
        (of("1", "2"), ""),
        (of("1", "8"), ""),  # as large as the capacity
        (of("1", default=None), "requestPolicy.default must be set"),
        (of(*map(str, range(1, 9)), "8500m", "9", "10"), "requestPolicy.validValues: more than 10 values"),
        (of("2", "1"), ASCEND),
        (of("1", "1"), ASCEND),
        (of("1", "1100m", "1200m"), ASCEND),
        (of("1", "9"), "requestPolicy.validValues: a value is larger than the capacity"),
        (of("2", "3"), "requestPolicy.validValues: the default is not among the values"),
        (within(min="1"), ""),
        (within(default=None, min="1"), "requestPolicy.default must be set"),
        (within(max="1"), "requestPolicy.validRange.min must be set"),
        (within(min="1", max="8", step="1"), ""),
        (within(min="0", max=8, step=1), ""),
        (within("8", min="8", max="8"), ""),
        (within(min="1", max="8", step="7"), ""),  # min and one step are as large as the capacity
        (within(min="2"), RANGE),
        (within("9", min="1"), ""),  # never allocated, but not refused
        (within("9", min="9"), "requestPolicy.validRange.min: it is larger than the capacity"),
        (within("3", min="1", max="2"), RANGE),
        (within(min="1", max="9"), "requestPolicy.validRange.max: it is larger than the capacity"),
        (within(min="1", step="0"), f"{STEP}it is not positive"),
        (within(min="1", step="8"), f"{STEP}min and one step are larger than the capacity"),
        (within(min="1", step="1u"), FRACTIONS),
        (within("1500m", min="1u"), FRACTIONS),
        (within("9223372036854775808", min="100m"), FRACTIONS),
        (within("-1", min="-1", step="1"), LIMITS),
        (within("18446744073709551616", "36893488147419103232", min="0", step="18446744073709551616"), LIMITS),
        (within("2", min="1", step="2"), WHOLE_STEPS),
        (within("1", min="1", max="4", step="2"), WHOLE_STEPS),
        (within("500m", min="0", max="1", step="500m"), ""),
        (within("2500m", min="0", step="1250m"), WHOLE_STEPS),
    ],
)  # fmt: skip
def test_what_the_api_server_refuses_of_a_request_policy(
    given: tuple[str, CapacityRequestPolicy], found: str
):
    size, policy = given
    assert wrong_policy(DeviceCapacity(value=size, request_policy=policy), shared=True) == found


def test_only_a_device_that_is_shared_has_a_request_policy():
    size = DeviceCapacity(value="8", request_policy=CapacityRequestPolicy(default="1"))
    assert wrong_policy(DeviceCapacity(value="8"), shared=False) == ""
    assert (
        wrong_policy(size, shared=False)
        == "requestPolicy: only a device with allowMultipleAllocations may have one"
    )
