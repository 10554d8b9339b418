# SPDX-License-Identifier: Apache-2.0
"""Which of two devices has the value that is nearer to what a condition asks for?"""

import pytest

from dra_driver.cel.compile import compile_selector
from dra_driver.cel.reasons.conditions import FalseCondition
from dra_driver.cel.reasons.distances import ABSENT, FAR, distance
from dra_driver.cel.reasons.selector import ExplainedSelector
from dra_driver.cel.reasons.similar import MOST_LOOKED_UP
from dra_driver.model.api.resource_slice import DeviceAttribute, DeviceCapacity

A, C = 'device.attributes["a.b"]', 'device.capacity["a.b"]'


def far(condition: str, published: object, meant: str = "") -> float:
    selector = ExplainedSelector(compile_selector(condition))
    asked = selector.wanted(FalseCondition(condition, ""))
    assert asked is selector.wanted(FalseCondition(condition, ""))
    assert asked is not None
    return distance(asked, published, lambda path, text: meant)


def test_of_very_many_values_the_first_are_compared() -> None:
    others = ", ".join(f'"x{number}"' for number in range(MOST_LOOKED_UP - 1))
    published = DeviceAttribute(string_value="gpu")
    assert far(f'{A}.c in [{others}, "gpu", "y"]', published) < FAR
    assert far(f'{A}.c in [{others}, "y", "gpu"]', published) == FAR


def memory(text: str) -> DeviceCapacity:
    return DeviceCapacity(value=text)


def text(value: str) -> DeviceAttribute:
    return DeviceAttribute(string_value=value)


def number(value: int) -> DeviceAttribute:
    return DeviceAttribute(int_value=value)


def version(value: str) -> DeviceAttribute:
    return DeviceAttribute(version_value=value)


@pytest.mark.parametrize(
    ("condition", "nearer", "farther"),
    [
        (f'{C}.memory.compareTo(quantity("80Gi")) >= 0', memory("81559Mi"), memory("40960Mi")),
        (f'quantity("80Gi").compareTo({C}.memory) <= 0', memory("81559Mi"), memory("40960Mi")),
        (f'!({C}.memory.compareTo(quantity("80Gi")) < 0)', memory("81559Mi"), memory("40960Mi")),
        (f'{C}.memory.isLessThan(quantity("20Gi"))', memory("24Gi"), memory("40Gi")),
        (f'{C}.memory == quantity("40Gi")', memory("48Gi"), memory("16Gi")),
        (f"{A}.numa > 8", number(7), number(0)),
        (f"{A}.numa in [2, 8]", number(7), number(4)),
        (f"{A}.numa > 8.5", number(8), number(4)),
        (
            f'{A}.version.compareTo(semver("550.90.7")) >= 0',
            version("550.90.6"),
            version("550.54.15"),
        ),
        (
            f'{A}.version.isGreaterThan(semver("550.90.7"))',
            version("550.54.15"),
            version("535.0.0"),
        ),
        (f'{A}.model == "H100"', text("NVIDIA H100"), text("A100")),
        (f'{A}.model in ["L40S", "H100"]', text("NVIDIA H100"), text("A100")),
        (f"{A}.numa == 0", number(0), number(1)),
    ],
)
def test_a_value_is_nearer_if_it_differs_less(condition, nearer, farther):
    assert far(condition, nearer) < far(condition, farther) <= FAR < far(condition, None) == ABSENT


def test_an_amount_beyond_every_number_of_python_is_far():
    asked = f'{C}.memory.compareTo(quantity("1e3000000")) >= 0'
    assert far(asked, memory("40Gi")) == FAR
    assert far(f'{C}.memory.compareTo(quantity("1e999")) >= 0', memory("1e3000000")) == FAR
    assert far(f'{C}.memory.compareTo(quantity("1e999000")) >= 0', memory("40Gi")) == FAR


def test_the_value_that_was_most_likely_meant_is_near():
    asked = f'{A}.architecture == "Hoper"'
    assert far(asked, text("Hopper"), '"Hopper"') < far(asked, text("Hopper")) == FAR
    assert far(asked, text("Ampere"), '"Hopper"') == FAR


@pytest.mark.parametrize(
    ("condition", "published"),
    [
        (f"{A}.ecc == true", DeviceAttribute(bool_value=False)),
        (f"{A}.ecc == true", number(1)),
        (f"{A}.numa == {A}.other", number(1)),
        (f'{C}.memory == quantity("much")', memory("1")),
        (f'{A}.model == "1.0.0"', version("1.0.0")),
        ("device.allowMultipleAllocations == true", False),
    ],
)
def test_what_cannot_be_compared_is_far(condition, published):
    assert far(condition, published) == FAR


def test_what_a_device_must_have_is_far_if_it_is_absent():
    assert far(f"has({A}.model)", None) == ABSENT
    assert far(f"!has({A}.model)", text("A100")) == FAR


def test_a_driver_is_compared_as_a_text():
    assert far('device.driver == "gpu.example.com"', "gpu.example.org") <= FAR
    assert far('device.driver == "gpu"', "gpu.example.org") < FAR


@pytest.mark.parametrize("condition", ["1 == 2", f'{A}.model.startsWith("x")', f'"x" in {A}.kinds'])
def test_a_condition_that_compares_no_path_asks_for_no_value(condition):
    selector = ExplainedSelector(compile_selector(f"{A}.numa == 1 && {condition}"))
    assert selector.wanted(FalseCondition(condition, "")) is None


def test_the_difference_of_numbers_need_not_be_a_number() -> None:
    asked = f'{C}.memory.compareTo(quantity("-9e999999")) == 0'
    assert far(asked, memory("9e999999")) == FAR
