# SPDX-License-Identifier: Apache-2.0
"""partitionTypeAttribute and skipNodeOperations: where they are written, and what the API server refuses of them."""

from typing import Any

import pytest

from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.slices import Problem
from dra_driver.planning.slices import PoolPlan, plan_pool
from tests.support.counters import counter_set, part, uses

LEFT_OUT = "the slices were written without it, with all devices; correct it in the backend"
SETS = (counter_set("gpu-0", memory="80"),)
USES = uses("gpu-0", memory="1")


def plan_of(*devices: AllocatableDevice, **fields: Any) -> PoolPlan:
    inventory = Inventory(devices, counter_sets=SETS, **fields)
    return plan_pool(inventory, kept=(), driver="gpu.example.com")


@pytest.mark.parametrize(
    ("given", "written"),
    [("profile", "gpu.example.com/profile"), ("other.example.com/type", "other.example.com/type")],
)
def test_the_type_of_partitions_is_named_with_its_domain(given: str, written: str):
    device = part("a", USES, profile="1g.10gb", **{"other.example.com/type": "1g"})
    plan = plan_of(device, part("whole"), partition_type_attribute=given)
    assert plan.problems == ()
    assert [one.partition_type_attribute for one in plan.slices] == [written, None]


def test_a_slice_without_consumers_has_no_type():
    """It may only be set on a slice which declares devices that consume counters."""
    devices = [part("a", USES, profile="1g"), *(part(f"p{at}") for at in range(64))]
    plan = plan_of(*devices, partition_type_attribute="profile")
    assert [one.partition_type_attribute for one in plan.slices] == [
        "gpu.example.com/profile",
        None,
        None,
    ]


@pytest.mark.parametrize("said", [{}, {"profile": 1}])
def test_a_consumer_without_the_attribute_as_a_string_costs_the_type_of_its_slice(
    said: dict[str, int],
):
    plan = plan_of(part("a", USES, **said), partition_type_attribute="profile")
    assert plan.slices[0].partition_type_attribute is None
    found = "the device consumes counters and has no string attribute gpu.example.com/profile"
    assert plan.problems == (Problem(DeviceName("a"), "partitionTypeAttribute", found, LEFT_OUT),)
    assert list(plan.devices) == ["a"]


def test_an_attribute_of_the_drivers_domain_is_not_the_one_of_another_domain():
    """lookupQualifiedAttribute: a name without a domain is in the driver's. The API server would refuse the whole slice."""
    device = part("a", USES, profile="1g")
    plan = plan_of(device, partition_type_attribute="other.example.com/profile")
    assert plan.slices[0].partition_type_attribute is None
    found = "the device consumes counters and has no string attribute other.example.com/profile"
    assert plan.problems == (Problem(DeviceName("a"), "partitionTypeAttribute", found, LEFT_OUT),)
    named = part("a", USES, **{"gpu.example.com/profile": "1g"})
    plan = plan_of(named, partition_type_attribute="profile")
    assert plan.slices[0].partition_type_attribute == "gpu.example.com/profile"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("has-dash", "the name 'has-dash' is no identifier of at most 32 characters"),
        ("A.com/x", "the domain 'A.com' is no lower-case DNS name of at most 63 characters"),
        (5, "a int is no name of an attribute"),
    ],
)
def test_a_type_that_is_no_name_is_left_out(given: Any, found: str):
    plan = plan_of(part("a", USES), partition_type_attribute=given)
    assert plan.problems == (
        Problem(DeviceName("partitionTypeAttribute"), "value", found, LEFT_OUT, "field"),
    )
    assert list(plan.devices) == ["a"]


@pytest.mark.parametrize(
    "given",
    [
        ("*",),
        ("NodeUnprepareResources",),
        ("NodePrepareResources", "NodeUnprepareResources"),
        ("NodePrepareResources", "*"),
    ],
)
def test_skipped_operations_are_in_each_slice_with_devices(given: tuple[str, ...]):
    devices = [part("a", USES), *(part(f"p{at}") for at in range(64))]
    plan = plan_of(*devices, skip_node_operations=given)
    assert plan.problems == ()
    assert [one.skip_node_operations for one in plan.slices] == [[*given], [*given], None]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (("Watch",), "'Watch' is none of NodePrepareResources, NodeUnprepareResources, *"),
        (("*", "*"), "'*' is there twice"),
        (("NodePrepareResources",), "NodePrepareResources needs NodeUnprepareResources or * beside it"),
        ("*", "a str is no tuple of operations"),
    ],
)  # fmt: skip
def test_skipped_operations_that_the_api_server_refuses_are_left_out(given: Any, found: str):
    plan = plan_of(part("a"), skip_node_operations=given)
    assert plan.problems == (
        Problem(DeviceName("skipNodeOperations"), "value", found, LEFT_OUT, "field"),
    )
    assert [one.skip_node_operations for one in plan.slices] == [None]
