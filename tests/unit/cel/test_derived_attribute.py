# SPDX-License-Identifier: Apache-2.0
"""Results of expressions as attributes."""

import pytest

from dra_driver.cel.derived_attribute import device_attribute
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.library.quantity import parse_quantity
from dra_driver.cel.library.semver import parse_semver
from dra_driver.cel.syntax.ast import Uint
from dra_driver.cel.values import NONE, Optional, TypeValue
from dra_driver.model.api.resource_slice import DeviceAttribute


@pytest.mark.parametrize(
    ("value", "attribute"),
    [
        (True, DeviceAttribute(bool_value=True)),
        (7, DeviceAttribute(int_value=7)),
        ("a", DeviceAttribute(string_value="a")),
        (parse_semver("1.2.3"), DeviceAttribute(version_value="1.2.3")),
        (TypeValue("int"), DeviceAttribute(string_value="int")),
        (Optional(Optional(7)), DeviceAttribute(int_value=7)),
        ([], DeviceAttribute(string_values=[])),
        ([True, False], DeviceAttribute(bool_values=[True, False])),
        ([1, 2], DeviceAttribute(int_values=[1, 2])),
        (["a", Optional("b")], DeviceAttribute(string_values=["a", "b"])),
        ([parse_semver("1.2.3")], DeviceAttribute(version_values=["1.2.3"])),
    ],
)
def test_a_scalar_or_a_list_of_one_kind_is_an_attribute(
    value: object, attribute: DeviceAttribute
) -> None:
    assert device_attribute(value) == attribute


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1.5, "unsupported CEL return type: float64"),
        (Uint(1), "unsupported CEL return type: uint64"),
        (None, "unsupported CEL return type: structpb.NullValue"),
        (NONE, "unsupported CEL return type: <nil>"),
        (parse_quantity("1"), "unsupported CEL return type: *resource.Quantity"),
        ([1.5], "unsupported list element type: float64"),
        ([1, "a"], "expected list element at index 1 to be int, got string"),
        (["a", 1], "expected list element at index 1 to be string, got int64"),
        ([True, 1], "expected list element at index 1 to be bool, got int64"),
    ],
)
def test_other_values_are_refused_in_upstreams_words(value: object, message: str) -> None:
    with pytest.raises(EvaluationError) as raised:
        device_attribute(value)
    assert raised.value.message == message
