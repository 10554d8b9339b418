# SPDX-License-Identifier: Apache-2.0
"""Which facts of a device an expression looks at."""

import pytest

from dra_driver.cel.reasons.paths import (
    DevicePath,
    children,
    domain_of,
    names,
    path_of,
    paths,
    value_at,
    version_in,
)
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.syntax.unparse import unparse
from dra_driver.cel.versions import Environment
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity

MODEL = DevicePath("attributes", "d", "model")


def root(expression: str):
    return parse(expression, Environment()).root


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("device.driver", DevicePath("driver")),
        ("device.allowMultipleAllocations", DevicePath("allowMultipleAllocations")),
        ("device.name", None),
        ('device.attributes["d"].model', MODEL),
        ('device.attributes["d"]["model"]', MODEL),
        ('device.attributes["d"].?model', MODEL),
        ("device.attributes.d.model", MODEL),
        ('device.capacity["d"].memory', DevicePath("capacity", "d", "memory")),
        ('device.other["d"].memory', None),
        ('device.attributes["d"]', None),
        ('x.attributes["d"].model', None),
        ("x", None),
        ("x.y", None),
        ("x[1]", None),
    ],
)
def test_a_path_is_recognised_however_it_is_written(
    expression: str, expected: DevicePath | None
) -> None:
    assert path_of(root(expression)) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.attributes["d"]', ("attributes", "d")),
        ('device.capacity["d"]', ("capacity", "d")),
        ('device.other["d"]', None),
        ('x.attributes["d"]', None),
        ("x", None),
    ],
)
def test_a_domain_is_recognised(expression: str, expected: tuple[str, str] | None) -> None:
    assert domain_of(root(expression)) == expected


def test_all_paths_of_an_expression_are_found() -> None:
    expression = (
        '[device.driver].exists(x, x == "a") && {"k": device.attributes["d"].model} == {} '
        '&& device.capacity["d"].memory.isLessThan(quantity("1")) && has(device.attributes["d"].a)'
    )
    assert paths(root(expression)) == {
        DevicePath("driver"),
        MODEL,
        DevicePath("capacity", "d", "memory"),
        DevicePath("attributes", "d", "a"),
    }


def test_whoever_uses_the_device_in_another_way_may_look_at_everything() -> None:
    assert paths(root('device.attributes["d"].size() > 0')) is None


def test_children_of_a_message_are_its_values() -> None:
    part = root("Some{a: 1, b: x}")
    parsed = parse("Some{a: 1, b: x}", Environment())
    assert [unparse(parsed, child) for child in children(part)] == ["1", "x"]


def test_names_and_values_follow_the_rule_of_domains() -> None:
    own, other = DeviceAttribute(string_value="A"), DeviceAttribute(int_value=1)
    memory = DeviceCapacity(value="1Gi")
    device = Device(
        name="n", attributes={"model": own, "o/numa": other}, capacity={"memory": memory}
    )
    assert names("attributes", "d", "d", device) == {"model": own}
    assert names("attributes", "o", "d", device) == {"numa": other}
    assert names("capacity", "d", "d", device) == {"memory": memory}
    assert names("capacity", "d", "d", Device(name="n")) == {}
    found = [
        value_at(path, "d", device)
        for path in (
            DevicePath("driver"),
            DevicePath("allowMultipleAllocations"),
            MODEL,
            DevicePath("attributes", "o", "numa"),
            DevicePath("attributes", "o", "model"),
            DevicePath("capacity", "d", "memory"),
        )
    ]
    assert found == ["d", False, own, other, None, memory]
    assert value_at(MODEL, "d", Device(name="n")) is None


def test_only_an_attribute_has_a_version() -> None:
    version = DeviceAttribute(version_value="1.2.3")
    others = (DeviceAttribute(string_value="1.2.3"), DeviceCapacity(value="1"), None)
    assert (version_in(version), *map(version_in, others)) == ("1.2.3", "", "", "")


def test_the_drivers_own_domain_is_not_said() -> None:
    shown = [
        path.shown("d")
        for path in (DevicePath("driver"), MODEL, DevicePath("attributes", "o", "n"))
    ]
    assert shown == ["driver", "model", "o/n"]
