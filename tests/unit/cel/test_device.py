# SPDX-License-Identifier: Apache-2.0
"""What an expression sees of a device."""

import pytest

from dra_driver.cel.device import DeviceValue
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.library.quantity import parse_quantity
from dra_driver.cel.library.semver import parse_semver
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity

DRIVER = "gpu.example.com"


def attribute(**fields: object) -> DeviceValue:
    return DeviceValue(DRIVER, Device(attributes={"a": DeviceAttribute(**fields)}))  # type: ignore[arg-type]


def test_names_without_a_domain_are_filed_under_the_driver() -> None:
    device = DeviceValue(
        DRIVER,
        Device(
            attributes={
                "model": DeviceAttribute(string_value="H200"),
                "gpu.example.com/index": DeviceAttribute(int_value=3),
                "other.example.com/model": DeviceAttribute(string_value="B200"),
            },
            capacity={"memory": DeviceCapacity(value="1Gi"), "x/memory": DeviceCapacity(value=5)},
        ),
    )
    assert device.attributes == {
        DRIVER: {"model": "H200", "index": 3},
        "other.example.com": {"model": "B200"},
    }
    assert device.capacity == {
        DRIVER: {"memory": parse_quantity("1Gi")},
        "x": {"memory": parse_quantity("5")},
    }


def test_an_unknown_domain_is_empty_and_not_contained() -> None:
    device = DeviceValue(DRIVER)
    assert device.attributes["unknown"] == {}
    assert "unknown" not in device.attributes
    assert device.capacity[DRIVER] == {}


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({"string_value": "a"}, "a"),
        ({"int_value": 0}, 0),
        ({"bool_value": False}, False),
        ({"version_value": "1.2.3"}, parse_semver("1.2.3")),
        ({"string_values": ["a", "b"]}, ["a", "b"]),
        ({"int_values": []}, []),
        ({"bool_values": [True]}, [True]),
        ({"version_values": ["1.2.3"]}, [parse_semver("1.2.3")]),
        # several fields are no valid attribute, but what upstream makes of them is known
        ({"string_value": "a", "int_value": 1}, 1),
        ({"string_value": "a", "bool_value": True}, True),
        ({"string_value": "a", "version_values": []}, []),
        ({"string_value": "a", "string_values": ["b"]}, ["b"]),
        ({"string_value": "a", "int_values": [1], "bool_values": [True]}, [1]),
        ({"string_value": "a", "bool_values": [True], "string_values": ["b"]}, [True]),
    ],
)
def test_an_attribute_becomes_the_value_of_its_kind(
    fields: dict[str, object], value: object
) -> None:
    assert attribute(**fields).attributes == {DRIVER: {"a": value}}


def test_releases_without_lists_read_the_number_beside_a_list() -> None:
    both = {"a": DeviceAttribute(int_value=3, int_values=[1])}
    attributes = DeviceValue(DRIVER, Device(attributes=both), list_values=False).attributes
    assert attributes == {DRIVER: {"a": 3}}


def test_releases_without_lists_do_not_know_what_a_list_is() -> None:
    both = {"a": DeviceAttribute(string_value="b", string_values=["c"])}
    assert DeviceValue(DRIVER, Device(attributes=both), list_values=False).attributes == {
        DRIVER: {"a": "b"}
    }
    lists = {"a": DeviceAttribute(string_values=["b"])}
    with pytest.raises(EvaluationError, match=r"^attribute a: unsupported attribute value$"):
        DeviceValue(DRIVER, Device(attributes=lists), list_values=False).convert()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "attribute a: unsupported attribute value"),
        (
            {"version_value": "1.2"},
            "attribute a: parse semantic version: No Major.Minor.Patch elements found",
        ),
        (
            {"version_values": [""]},
            "attribute a: parse semantic version: Version string empty",
        ),
    ],
)
def test_an_attribute_that_cannot_be_converted_names_itself(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(EvaluationError) as raised:
        attribute(**fields).convert()
    assert raised.value.message == message


def test_the_maps_are_made_once() -> None:
    device = attribute(string_value="a")
    assert device.attributes is device.attributes
    assert device.capacity is device.capacity


def test_there_are_no_other_parts() -> None:
    with pytest.raises(AttributeError, match="name"):
        _ = DeviceValue(DRIVER).name  # type: ignore[attr-defined]


def test_as_a_map_it_has_the_four_keys() -> None:
    device = DeviceValue(DRIVER, Device(allow_multiple_allocations=True))
    assert device.as_map() == {
        "driver": DRIVER,
        "attributes": {},
        "capacity": {},
        "allowMultipleAllocations": True,
    }
