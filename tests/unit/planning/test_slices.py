# SPDX-License-Identifier: Apache-2.0
"""An inventory becomes slices within the API's limits; what is beyond them costs only itself."""

from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from dra_driver.model.api.resource_slice import (
    CapacityRequestPolicy,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
)
from dra_driver.model.device import AllocatableDevice, Version
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import Problem
from dra_driver.planning.slices import PoolPlan, plan_pool, with_times
from tests.support.api_values import content, device_taint, found_device, pool_plan, published

LEFT_OUT = "it was left out of the slice, everything else is published; correct it in the backend"
DEVICE_LEFT_OUT = "the device was left out, all others are published; correct it in the backend"
GIB = Quantity.parse("1Gi")


def device(name: str, **fields: Any) -> AllocatableDevice:
    return found_device(DeviceName(name), f"uuid-of-{name}", **fields)


def plan_of(*devices: AllocatableDevice, kept: tuple[Device, ...] = ()) -> PoolPlan:
    return plan_pool(Inventory(devices), kept=kept)


def problem(subject: str, found: str) -> Problem:
    return Problem(DeviceName("gpu-0"), subject, found, LEFT_OUT)


def test_devices_are_published_in_the_backends_order_with_all_that_is_valid():
    attributes = {
        "productName": "NVIDIA H100 80GB HBM3",
        "driverVersion": Version("550.54.15"),
        "index": 3,
        "healthy": True,
        "resource.kubernetes.io/pcieRoot": "pci0000:15",
    }
    plan = plan_of(
        device("gpu-1", attributes=attributes, capacity={"memory": GIB}), device("gpu-0")
    )
    assert plan == pool_plan(
        slices=(
            (
                published("gpu-1", attributes=attributes, capacity={"memory": GIB}),
                published("gpu-0"),
            ),
        ),
        problems=(),
    )


def test_a_node_without_devices_has_one_empty_slice():
    assert plan_of() == pool_plan(slices=((),), problems=())


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [1]), (64, [64]), (65, [64, 1]), (128, [64, 64]), (129, [64, 64, 1])]
)
def test_slices_are_cut_at_64_devices(count: int, sizes: list[int]):
    plan = plan_of(*(device(f"gpu-{index}") for index in range(count)))
    assert [len(one.devices or ()) for one in plan.slices] == sizes
    assert list(plan.devices) == [f"gpu-{index}" for index in range(count)]


def test_kept_devices_come_last_and_never_twice():
    kept = (published("gpu-9", attributes={"index": 9}), published("gpu-0", attributes={"old": 1}))
    assert plan_of(device("gpu-0"), kept=kept).slices == (content(published("gpu-0"), kept[0]),)


@pytest.mark.parametrize("name", ["GPU-0", "gpu_0", "-gpu", "gpu-", "", "g" * 64, "gpu.0", "gpu\n"])
def test_a_device_whose_name_is_no_dns_label_is_left_out(name: str):
    plan = plan_of(device(name), device("gpu-1"))
    assert plan == pool_plan(
        slices=((published("gpu-1"),),),
        problems=(
            Problem(DeviceName(name), "name", "no DNS label of at most 63 characters", LEFT_OUT),
        ),
    )


def test_a_device_name_of_63_characters_is_published():
    assert plan_of(device("g" * 63)).slices == (content(published("g" * 63)),)


IDENTIFIER = "is no identifier of at most 32 characters"
DOMAIN = "is no lower-case DNS name of at most 63 characters"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("has-dash", f"the name 'has-dash' {IDENTIFIER}"),
        ("1st", f"the name '1st' {IDENTIFIER}"),
        ("", f"the name '' {IDENTIFIER}"),
        ("a" * 33, f"the name '{'a' * 33}' {IDENTIFIER}"),
        ("naïve", f"the name 'naïve' {IDENTIFIER}"),
        ("x\n", f"the name 'x\\n' {IDENTIFIER}"),
        ("/x", f"the domain '' {DOMAIN}"),
        ("Example.com/x", f"the domain 'Example.com' {DOMAIN}"),
        ("a/b/c", f"the domain 'a/b' {DOMAIN}"),
        ("d" * 64 + "/x", f"the domain '{'d' * 64}' {DOMAIN}"),
    ],
)
def test_a_bad_name_costs_one_attribute_or_capacity(name: str, found: str):
    one = device("gpu-0", attributes={name: 1, "ok": 2}, capacity={"memory": GIB})
    other = device("gpu-0", attributes={"ok": 2}, capacity={name: GIB, "memory": GIB})
    whole = ((published("gpu-0", attributes={"ok": 2}, capacity={"memory": GIB}),),)
    assert plan_of(one) == pool_plan(whole, (problem(f"attribute {name}", found),))
    assert plan_of(other) == pool_plan(whole, (problem(f"capacity {name}", found),))


@pytest.mark.parametrize("name", ["a" * 32, "_x", "A9_", "d" * 63 + "/x", "gpu.example.com/x"])
def test_the_longest_and_oddest_allowed_names_are_published(name: str):
    plan = plan_of(device("gpu-0", attributes={name: 1}, capacity={name: GIB}))
    assert plan == pool_plan(
        ((published("gpu-0", attributes={name: 1}, capacity={name: GIB}),),), ()
    )


NOT_SEMVER = "is no version of semver.org 2.0.0 (three numbers, no leading v)"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("x" * 65, f"'{'x' * 65}' is longer than 64 bytes"),
        ("ü" * 33, f"'{'ü' * 33}' is longer than 64 bytes"),
        ("\ud800", "'\\ud800' is no text that can be encoded as UTF-8"),
        (2**63, "9223372036854775808 does not fit into 64 bits"),
        (-(2**63) - 1, "-9223372036854775809 does not fit into 64 bits"),
        (Version("v1.2.3"), f"'v1.2.3' {NOT_SEMVER}"),
        (Version("1.2"), f"'1.2' {NOT_SEMVER}"),
        (Version("1.02.3"), f"'1.02.3' {NOT_SEMVER}"),
        (Version("1.2.3.4"), f"'1.2.3.4' {NOT_SEMVER}"),
        (Version("1.2.3-01"), f"'1.2.3-01' {NOT_SEMVER}"),
        (Version("1.2.3\n"), f"'1.2.3\\n' {NOT_SEMVER}"),
        (Version("\u0661.2.3"), f"'\u0661.2.3' {NOT_SEMVER}"),
        (Version(""), f"'' {NOT_SEMVER}"),
        (Version("1.0.0-" + "a" * 59), f"'1.0.0-{'a' * 59}' is longer than 64 bytes"),
        (1.5, "a float is neither bool, int, str nor Version"),
        (None, "exactly one value must be set"),
    ],
)
def test_a_bad_value_costs_one_attribute(value: Any, found: str):
    plan = plan_of(device("gpu-0", attributes={"bad": value, "good": "yes"}))
    assert plan == pool_plan(
        ((published("gpu-0", attributes={"good": "yes"}),),), (problem("attribute bad", found),)
    )


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x" * 64,
        "ü" * 32,
        2**63 - 1,
        -(2**63),
        True,
        False,
        Version("0.0.0"),
        Version("1.2.3-rc.1+build.007"),
        Version("1.0.0-0a"),
        Version("1.0.0-" + "a" * 58),
    ],
)
def test_values_at_the_limits_are_published(value: Any):
    plan = plan_of(device("gpu-0", attributes={"it": value}))
    assert plan == pool_plan(((published("gpu-0", attributes={"it": value}),),), ())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (80, "a int is no DeviceCapacity"),
        (DeviceCapacity(value=cast("Any", None)), "Expected `int | float | str`, got `null` - at `$.value`"),
        (
            DeviceCapacity(value="much"),
            "'much' is no quantity; write for example 80Gi, 500m or 1e3",
        ),
        (
            DeviceCapacity(value="1", request_policy=cast("Any", 5)),
            "Expected `object | null`, got `int` - at `$.requestPolicy`",
        ),
    ],
)  # fmt: skip
def test_a_capacity_that_is_no_quantity_is_left_out(value: Any, said: str):
    assert plan_of(device("gpu-0", capacity={"memory": value, "compute": GIB})) == pool_plan(
        ((published("gpu-0", capacity={"compute": GIB}),),), (problem("capacity memory", said),)
    )


def test_of_more_than_32_attributes_and_capacities_the_last_attributes_go():
    attributes = {f"a{index}": index for index in range(31)}
    plan = plan_of(device("gpu-0", attributes=attributes, capacity={"memory": GIB, "compute": GIB}))
    kept = {f"a{index}": index for index in range(30)}
    assert plan == pool_plan(
        ((published("gpu-0", attributes=kept, capacity={"memory": GIB, "compute": GIB}),),),
        (problem("attribute a30", "more than 32 attributes and capacities"),),
    )


def test_32_attributes_and_capacities_are_published():
    attributes = {f"a{index}": index for index in range(31)}
    plan = plan_of(device("gpu-0", attributes=attributes, capacity={"memory": GIB}))
    assert plan == pool_plan(
        ((published("gpu-0", attributes=attributes, capacity={"memory": GIB}),),), ()
    )


def test_of_more_than_32_capacities_the_last_go_and_no_attribute_stays():
    capacity = {f"c{index}": GIB for index in range(33)}
    plan = plan_of(device("gpu-0", attributes={"index": 0}, capacity=capacity))
    assert plan == pool_plan(
        ((published("gpu-0", capacity={f"c{index}": GIB for index in range(32)}),),),
        (
            problem("capacity c32", "more than 32 capacities"),
            problem("attribute index", "more than 32 attributes and capacities"),
        ),
    )


def test_each_taint_gets_a_time():
    old = device_taint("a.example.com/old", "", "NoSchedule", "")
    new = device_taint("a.example.com/new", "", "NoExecute", "")
    plan = pool_plan(((published("gpu-0", taints=(old, new)), published("gpu-1")),), ())
    times = {("gpu-0", "a.example.com/old", "", "NoSchedule"): "2026-01-02T03:04:05Z"}
    dated = (
        replace(old, time_added="2026-01-02T03:04:05Z"),
        replace(new, time_added="2026-05-05T05:05:05Z"),
    )
    assert with_times(plan, times, "2026-05-05T05:05:05Z") == pool_plan(
        ((published("gpu-0", taints=dated), published("gpu-1")),), ()
    )


def test_slices_without_a_taint_are_not_written_anew():
    plan = plan_of(device("gpu-0"))
    assert with_times(plan, {}, "2026-05-05T05:05:05Z").slices[0] is plan.slices[0]


def test_a_capacity_is_published_in_canonical_text():
    size = DeviceCapacity(value="81920Mi")
    plan = plan_of(device("gpu-0", capacity={"memory": size}))
    assert plan.slices == (
        content(published("gpu-0", capacity={"memory": Quantity.parse("80Gi")})),
    )


def of(attributes: Any = None, **fields: Any) -> PoolPlan:
    """The plan for one device with exactly these fields."""
    return plan_of(AllocatableDevice(Device(name="gpu-0", attributes=attributes, **fields), "uuid"))


@pytest.mark.parametrize(
    "attribute",
    [
        DeviceAttribute(int_values=[1, -(2**63)]),
        DeviceAttribute(bool_values=[True]),
        DeviceAttribute(string_values=["a", "x" * 64]),
        DeviceAttribute(version_values=["1.2.3"]),
    ],
)
def test_a_list_of_values_is_published(attribute: DeviceAttribute):
    assert of({"it": attribute}) == pool_plan(
        ((Device(name="gpu-0", attributes={"it": attribute}),),), ()
    )


@pytest.mark.parametrize(
    ("attribute", "found"),
    [
        ("plain", "a str is no DeviceAttribute"),
        (DeviceAttribute(), "exactly one value must be set"),
        (DeviceAttribute(int_value=1, string_value="1"), "exactly one value must be set"),
        (DeviceAttribute(int_values=[]), "a list of values must have some"),
        (DeviceAttribute(int_values=cast("Any", 5)), "a list of values must have some"),
        (DeviceAttribute(int_values=[1, 2**63]), "9223372036854775808 does not fit into 64 bits"),
        (DeviceAttribute(version_values=["1.2"]), f"'1.2' {NOT_SEMVER}"),
        (DeviceAttribute(int_value=True), "a bool is neither bool, int, str nor Version"),
    ],
)
def test_a_bad_attribute_of_the_api_costs_itself_only(attribute: Any, found: str):
    assert of({"bad": attribute}) == pool_plan(
        ((Device(name="gpu-0"),),), (problem("attribute bad", found),)
    )


def test_of_more_than_48_values_of_attributes_the_last_attributes_go():
    first, second = (DeviceAttribute(int_values=[0] * count) for count in (40, 9))
    plan = of({"a": first, "b": second, "c": DeviceAttribute(int_value=1)})
    assert plan == pool_plan(
        ((Device(name="gpu-0", attributes={"a": first, "c": DeviceAttribute(int_value=1)}),),),
        (problem("attribute b", "more than 48 values of attributes"),),
    )


def test_every_other_field_of_the_api_is_published_as_it_is():
    fields: dict[str, Any] = {
        "allow_multiple_allocations": True,
        "binding_conditions": ["ready"],
        "binding_failure_conditions": ["failed"],
        "binds_to_node": True,
        "node_allocatable_resources": {
            "cpu": NodeAllocatableResource(overhead=NodeAllocatableOverhead(per_pod="1"))
        },
        "taints": [device_taint("a.example.com/x", "", "NoSchedule", "2026-01-02T03:04:05Z")],
    }
    assert of(**fields).slices == (content(Device(name="gpu-0", **fields)),)


@pytest.mark.parametrize(
    ("fields", "subject", "found"),
    [
        (
            {"binding_conditions": "ready"},
            "bindingConditions",
            "Expected `array | null`, got `str`",
        ),
        ({"all_nodes": 1}, "allNodes", "Expected `bool | null`, got `int`"),
        ({"node_name": object()}, "nodeName", "Encoding objects of type object is unsupported"),
        ({"taints": [1]}, "taints", "Expected `object`, got `int` - at `$[0]`"),
    ],
)
def test_a_field_of_a_wrong_type_costs_its_device_only(fields: Any, subject: str, found: str):
    """Without the field, which may be a taint, the device could be given to whom it must not be given."""
    bad = AllocatableDevice(Device(name="gpu-0", **fields), "uuid")
    assert plan_of(bad, device("gpu-1")) == pool_plan(
        ((Device(name="gpu-1"),),),
        (Problem(DeviceName("gpu-0"), subject, found, DEVICE_LEFT_OUT),),
    )


@pytest.mark.parametrize(
    ("fields", "subject", "found"),
    [
        (
            {"taints": [DeviceTaint(key="bad key!", effect="NoExecute")]},
            "taints",
            "[0].key: 'bad key!' is no label key",
        ),
        (
            {"taints": [{"key": "bad key!", "effect": "NoExecute"}]},
            "taints",
            "[0].key: 'bad key!' is no label key",
        ),
        (
            {"binding_conditions": ["a"]},
            "bindingConditions",
            "bindingFailureConditions must be set too",
        ),
        (
            {"node_name": "node-2"},
            "nodeName",
            "the slice is for this node already, so its devices may not name nodes",
        ),
    ],
)
def test_a_field_that_the_api_server_refuses_costs_its_device_only(
    fields: Any, subject: str, found: str
):
    bad = AllocatableDevice(Device(name="gpu-0", **fields), "uuid")
    assert plan_of(bad, device("gpu-1")) == pool_plan(
        ((Device(name="gpu-1"),),),
        (Problem(DeviceName("gpu-0"), subject, found, DEVICE_LEFT_OUT),),
    )
    kept = plan_of(kept=(bad.api,))
    assert kept == pool_plan(((Device(name="gpu-0"),),), ())


def test_a_request_policy_that_the_api_server_refuses_costs_its_capacity():
    sizes = {
        "slots": DeviceCapacity(value="8", request_policy=CapacityRequestPolicy(default="1")),
        "memory": DeviceCapacity(value="1Gi"),
    }
    found = "requestPolicy: only a device with allowMultipleAllocations may have one"
    assert of(capacity=sizes) == pool_plan(
        ((Device(name="gpu-0", capacity={"memory": sizes["memory"]}),),),
        (problem("capacity slots", found),),
    )


def test_a_shared_device_is_left_out_with_any_of_its_capacities():
    """Nothing would limit who gets a share of it."""
    policy = CapacityRequestPolicy(default="1", valid_values=["2"])
    size = DeviceCapacity(value="8", request_policy=policy)
    plan = of(capacity={"slots": size}, allow_multiple_allocations=True)
    why = "a device with allowMultipleAllocations needs all of its capacities"
    assert plan == pool_plan(
        ((),),
        (
            problem(
                "capacity slots",
                "requestPolicy.validValues: the default is not among the values",
            ),
            Problem(DeviceName("gpu-0"), "capacity", why, DEVICE_LEFT_OUT),
        ),
    )
    good = {"slots": DeviceCapacity(value="8", request_policy=CapacityRequestPolicy(default="1"))}
    assert of(capacity=good, allow_multiple_allocations=True).problems == ()


def test_of_a_kept_device_what_this_driver_cannot_write_is_left_out_without_a_word():
    newer = Device(
        name="gpu-9",
        attributes={"new": DeviceAttribute(), "index": DeviceAttribute(int_value=9)},
    )
    assert plan_of(kept=(newer,)) == pool_plan(((published("gpu-9", {"index": 9}),),), ())


class Number(int):
    """As an IntEnum or numpy's are: an int that msgspec does not write."""


class Text(str):
    __slots__ = ()


def test_a_subclass_of_a_value_is_published_as_the_value() -> None:
    """msgspec would refuse to write it, and with it the whole pool."""
    attributes = {
        "text": DeviceAttribute(string_value=Text("a")),
        "number": DeviceAttribute(int_value=Number(2**63 - 1)),
        "too_large": DeviceAttribute(int_value=Number(2**63)),
        "texts": DeviceAttribute(string_values=[Text("a"), "b"]),
    }
    made = AllocatableDevice(Device(Text("gpu-0"), attributes=attributes), uuid="u")
    (found,) = plan_of(made).slices[0].devices or ()
    written = {
        "name": "gpu-0",
        "attributes": {
            "text": {"string": "a"},
            "number": {"int": 2**63 - 1},
            "texts": {"strings": ["a", "b"]},
        },
    }
    assert msgspec.to_builtins(found) == written


@pytest.mark.parametrize(
    ("conditions", "failures"),
    [(["no label key"], ["a/b"]), (["a/b"], ["no label key"]), (["a/b"], ["a/b"])],
)
def test_a_kept_device_loses_both_lists_of_binding_conditions_if_one_is_bad(
    conditions: list[str], failures: list[str]
) -> None:
    kept = msgspec.structs.replace(
        published("gpu-9"), binding_conditions=conditions, binding_failure_conditions=failures
    )
    assert plan_of(kept=(kept,)).slices == (content(published("gpu-9")),)
