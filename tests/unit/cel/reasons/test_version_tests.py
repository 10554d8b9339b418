# SPDX-License-Identifier: Apache-2.0
"""Versions that are tested as if they were strings."""

import pytest

from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.reasons.failing import FailingCondition
from dra_driver.cel.reasons.selector import ExplainedSelector
from dra_driver.model.api.resource_slice import Device, DeviceAttribute

DRIVER = "gpu.example.com"
DEVICE = Device(
    name="gpu-0",
    attributes={
        "model": DeviceAttribute(string_value="550"),
        "version": DeviceAttribute(version_value="550.54.15"),
    },
)
A = f'device.attributes["{DRIVER}"]'
HAS = "has version as the version 550.54.15, and"


def failing(expression: str) -> tuple[ExplainedSelector, FailingCondition]:
    selector = ExplainedSelector(compile_selector(expression))
    (found,) = selector.failing_conditions(DRIVER, DEVICE, DeviceValue(DRIVER, DEVICE))
    return selector, found


@pytest.mark.parametrize(
    ("call", "right"),
    [
        ('startsWith("550")', "@.major() == 550"),
        ('startsWith("550.")', "@.major() == 550"),
        ('startsWith("v550")', "@.major() == 550"),
        ('startsWith("550.54.")', "@.major() == 550 && @.minor() == 54"),
        ('startsWith("550.054")', "@.major() == 550 && @.minor() == 54"),
        (r'matches("^550\\.54\\.15$")', '@ == semver("550.54.15")'),
        (r'matches("^550\\.54\\.015$")', '@ == semver("550.54.015", true)'),
        (r'matches("^550\\.54$")', "@.major() == 550 && @.minor() == 54"),
        ('matches("^550.*")', "@.major() == 550"),
    ],
)
def test_a_test_for_strings_becomes_one_for_the_numbers_of_the_version(call, right):
    selector, found = failing(f"{A}.version.{call}")
    right = right.replace("@", f"{A}.version")
    assert found.lacks == f"{HAS} {call.partition('(')[0]} is for strings: write {right}"
    text = selector.corrected({one.number: one.new for one in found.corrections})
    assert text == right
    assert compile_selector(text).matches(DeviceValue(DRIVER, DEVICE))


@pytest.mark.parametrize(
    "call",
    [
        'startsWith("newest")',
        'startsWith("55x")',
        'startsWith("5")',
        'startsWith("55")',
        'startsWith("550.5")',
        'startsWith("550.54")',
        'startsWith("550.54.15")',
        'startsWith("550.54.15-rc")',
        'matches("^550.54.15.*$")',
        'contains("550")',
        'matches("550")',
        'endsWith("15")',
        f"contains({A}.model)",
        'matches("^5[57]0")',
    ],
)
def test_what_is_no_beginning_of_a_version_is_told_but_not_corrected(call):
    _, found = failing(f"{A}.version.{call}")
    asks = "ask .major(), .minor() or .patch(), or compare it with semver(…)"
    assert found.lacks == f"{HAS} {call.partition('(')[0]} is for strings: {asks}"
    assert found.corrections == ()


@pytest.mark.parametrize(
    ("condition", "written"),
    [
        ('!@.startsWith("560")', "!(@.major() == 560)"),
        ('!@.startsWith("560.1.")', "!(@.major() == 560 && @.minor() == 1)"),
        ('@.startsWith("550.54.") == true', "(@.major() == 550 && @.minor() == 54) == true"),
        ('true == @.startsWith("550")', "true == (@.major() == 550)"),
        ('@.startsWith("550") || false', "@.major() == 550 || false"),
    ],
)
def test_the_right_test_can_be_written_in_the_place_of_the_wrong_one(condition, written):
    condition, written = (one.replace("@", f"{A}.version") for one in (condition, written))
    _, found = failing(condition)
    (right,) = found.corrections
    assert condition.replace(right.instead, right.write) == written
    assert found.lacks.endswith(f": write {right.write} instead of {right.instead}")
    assert compile_selector(written).matches(DeviceValue(DRIVER, DEVICE))


def test_a_string_is_tested_as_it_is():
    _, found = failing(f'{A}.model.startsWith("550") == ({A}.version.major() > {A}.model)')
    assert (found.lacks, found.corrections) == ("", ())


def test_all_that_a_version_is_taken_for_is_told_in_its_order_with_the_version_once():
    condition = '@.startsWith("550") || @ == "550" || @.startsWith("550") || int(@) == 550'
    condition = condition.replace("@", f"{A}.version")
    selector, found = failing(condition)
    right = f"{A}.version.major()"
    assert found.lacks == (
        f'{HAS} startsWith is for strings: write {right} == 550 instead of {A}.version.startsWith("550"); '
        f'write semver("550", true) instead of "550"; write {right} instead of int({A}.version)'
    )
    text = selector.corrected({one.number: one.new for one in found.corrections})
    assert text == (
        '@.major() == 550 || @ == semver("550", true) || @.major() == 550 || @.major() == 550'
    ).replace("@", f"{A}.version")
