# SPDX-License-Identifier: Apache-2.0
"""Two API objects are the same when they mean the same, in every field that the API has."""

import pytest

from dra_driver.model.api.compare import canonical, differences, same
from dra_driver.model.api.meta import ApiValue
from dra_driver.model.api.resource_claim import CapacityRequirements
from dra_driver.model.api.resource_slice import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
)
from dra_driver.model.quantity import Quantity


@pytest.mark.parametrize(
    ("some", "other"),
    [
        (DeviceCapacity(value="1Gi"), DeviceCapacity(value="1073741824")),
        (DeviceCapacity(value="5"), DeviceCapacity(value=5)),
        (CapacityRequestPolicy(default="1k"), CapacityRequestPolicy(default="1000")),
        (CapacityRequestPolicy(valid_values=["1k"]), CapacityRequestPolicy(valid_values=["1000"])),
        (
            CapacityRequestPolicy(valid_range=CapacityRequestPolicyRange(step="1k")),
            CapacityRequestPolicy(valid_range=CapacityRequestPolicyRange(step="1000")),
        ),
        (
            DeviceCounterConsumption(counters={"a": Counter(value="1k")}),
            DeviceCounterConsumption(counters={"a": Counter(value="1000")}),
        ),
        (CapacityRequirements(requests={"a": "1k"}), CapacityRequirements(requests={"a": "1000"})),
        (Device(), Device(attributes={}, taints=[])),
        (DeviceCapacity(value="much"), DeviceCapacity(value="much")),
    ],
)
def test_what_means_the_same_is_the_same(some: ApiValue, other: ApiValue) -> None:
    assert same(some, other)
    assert differences(some, other) == ()


@pytest.mark.parametrize(
    ("some", "other", "field"),
    [
        (DeviceCapacity(value="1Gi"), DeviceCapacity(value="1G"), "value"),
        (DeviceCapacity(value="much"), DeviceCapacity(value="more"), "value"),
        # Only quantities are compared by value.
        (DeviceAttribute(string_value="1k"), DeviceAttribute(string_value="1000"), "string"),
        (Device(name="1k"), Device(name="1000"), "name"),
        (Device(all_nodes=False), Device(), "allNodes"),
        (
            Device(attributes={"a": DeviceAttribute(int_value=1)}),
            Device(attributes={"a": DeviceAttribute(bool_value=True)}),
            "attributes.a",
        ),
        (Device(capacity={"a": DeviceCapacity()}), Device(), "capacity.a"),
        (Device(), Device(capacity={"a": DeviceCapacity()}), "capacity.a"),
        (Device(binding_conditions=["a"]), Device(binding_conditions=["b"]), "bindingConditions"),
    ],
)
def test_what_means_something_else_is_named(some: ApiValue, other: ApiValue, field: str) -> None:
    assert not same(some, other)
    assert differences(some, other) == (field,)


def test_the_canonical_form_has_the_names_on_the_wire() -> None:
    device = Device(
        name="gpu-0",
        all_nodes=True,
        taints=[],
        capacity={"memory": DeviceCapacity(value="1Ki")},
    )
    assert canonical(device) == {
        "name": "gpu-0",
        "allNodes": True,
        "capacity": {"memory": {"value": Quantity.parse("1024")}},
    }
