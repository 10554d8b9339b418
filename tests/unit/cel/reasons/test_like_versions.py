# SPDX-License-Identifier: Apache-2.0
"""Versions that are taken for texts or numbers."""

import pytest

from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.reasons.failing import FailingCondition
from dra_driver.cel.reasons.paths import DevicePath
from dra_driver.cel.reasons.selector import ExplainedSelector
from dra_driver.model.api.resource_slice import Device, DeviceAttribute

DRIVER = "gpu.example.com"
DEVICE = Device(
    name="gpu-0",
    attributes={
        "model": DeviceAttribute(string_value="550"),
        "version": DeviceAttribute(version_value="550.54.15"),
        "major": DeviceAttribute(version_value="9.0.0"),
    },
)
A = f'device.attributes["{DRIVER}"]'
VERSION, MAJOR = f"{A}.version", f"{A}.major"


def is_published(path: DevicePath, version: str) -> bool:
    return (path.name, version) in (("major", "9.0.0"), ("version", "550.54.15"))


def failing(expression: str) -> tuple[FailingCondition, str]:
    """The failing condition, and the expression with its corrections."""
    selector = ExplainedSelector(compile_selector(expression))
    seen = (DRIVER, DEVICE, DeviceValue(DRIVER, DEVICE))
    (found,) = selector.failing_conditions(*seen, is_published=is_published)
    return found, selector.corrected({one.number: one.new for one in found.corrections})


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ('@ == "550"', "@.major() == 550"),
        ("@ == 550", "@.major() == 550"),
        ("@ == 550.54", "@.major() == 550 && @.minor() == 54"),
        ('@ == "v550.54"', "@.major() == 550 && @.minor() == 54"),
        ('@ == "550.54.x"', "@.major() == 550 && @.minor() == 54"),
        ('@ == "550.*"', "@.major() == 550"),
        ('@ in ["550", "570.86.15"]', '(@.major() == 550 || @ == semver("570.86.15"))'),
        ('string(@) == "550.54.15"', '@ == semver("550.54.15")'),
        ('"550.54.15" == string(@)', '@ == semver("550.54.15")'),
        ('string(@).startsWith("550")', "@.major() == 550"),
        ("double(@) >= 550.54", '@.compareTo(semver("550.54", true)) >= 0'),
        ("int(@) > 500", "@.major() > 500"),
        ("int(string(@)) > 500", "@.major() > 500"),
        ("semver(string(@)).major() > 500", "@.major() > 500"),
        ('semver(@) == semver("550.54.15")', '@ == semver("550.54.15")'),
        ('semver(@, true) == semver("550.54.15")', '@ == semver("550.54.15")'),
    ],
)
def test_what_is_meant_of_a_version_is_told(wrong: str, right: str) -> None:
    wrong, right = wrong.replace("@", VERSION), right.replace("@", VERSION)
    found, text = failing(wrong)
    assert text == (right[1:-1] if right.startswith("(") else right)
    assert compile_selector(text).matches(DeviceValue(DRIVER, DEVICE))
    (one,) = found.corrections
    assert found.lacks.startswith("has version as the version 550.54.15")
    assert f"write {one.write}" in found.lacks
    assert (f" instead of {one.instead}" in found.lacks) == (one.instead != found.part)


def test_alternatives_are_written_one_after_the_other() -> None:
    """A tree that is as deep as a list is long would be too deep to be written."""
    numbers = range(550, 1550)
    listed = ", ".join(f'"{number}.1.2"' for number in numbers)
    _, text = failing(f'{VERSION} in [{listed}, "2"]')
    tests = [f'{VERSION} == semver("{number}.1.2")' for number in numbers]
    assert text == " || ".join([*tests, f"{VERSION}.major() == 2"])


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ('@ in ["550", "570", "550.x"]', "@.major() in [550, 570]"),
        ('!(@ in ["535", "570"])', "!(@.major() in [535, 570])"),
        ('(@ in ["535", "570"]) == false', "@.major() in [535, 570] == false"),
        ('false == (@ in ["535", "570"])', "false == (@.major() in [535, 570])"),
        ('@ in ["550", "550", "v550"]', "@.major() == 550"),
        (
            '@ in ["550.54", "570", "550.54.x"]',
            "@.major() == 550 && @.minor() == 54 || @.major() == 570",
        ),
    ],
)
def test_first_numbers_are_a_list_and_none_is_there_twice(wrong: str, right: str) -> None:
    _, text = failing(wrong.replace("@", VERSION))
    assert text == right.replace("@", VERSION)
    assert compile_selector(text).matches(DeviceValue(DRIVER, DEVICE))


def test_the_negation_of_a_beginning_is_told() -> None:
    found, text = failing(f'({VERSION} == true) == ({VERSION} != "550.54")')
    begins = f"{VERSION}.major() == 550 && {VERSION}.minor() == 54"
    assert [one.write for one in found.corrections] == [f"!({begins})"]
    assert text.endswith(f"== !({begins})")
    found, _ = failing(f'({VERSION} == true) == ({VERSION} != "550")')
    assert [one.write for one in found.corrections] == [f"({VERSION}.major() != 550)"]


def test_alternatives_are_told_in_their_order_and_what_each_device_has_once() -> None:
    parts = [f'{one} == "550"' for one in (VERSION, MAJOR)] + [f'{VERSION} == "570.1.2"']
    found, text = failing(" || ".join(parts))
    assert found.lacks == (
        f"has version as the version 550.54.15: write {VERSION}.major() == 550 instead of {parts[0]}; "
        'write semver("570.1.2") instead of "570.1.2"; '
        f"has major as the version 9.0.0: write {MAJOR}.major() == 550 instead of {parts[1]}"
    )
    assert [one.instead for one in found.corrections] == [*parts[:2], '"570.1.2"']
    assert text == (
        f'{VERSION}.major() == 550 || {MAJOR}.major() == 550 || {VERSION} == semver("570.1.2")'
    )


def test_a_version_that_a_device_has_is_compared_as_a_whole() -> None:
    _, text = failing(f'{MAJOR} == "9.0"')
    assert text == f'{MAJOR} == semver("9.0", true)'
    _, text = failing(f"{MAJOR} == 9.0")
    assert text == f'{MAJOR} == semver("9.0", true)'
    _, text = failing(f'{MAJOR} == "8"')
    assert text == f"{MAJOR}.major() == 8"


@pytest.mark.parametrize(
    "condition",
    [
        f'{VERSION} == "newest"',
        f"{VERSION} == true",
        f"{VERSION} == {A}.model",
        f'string({VERSION}) == "x" + "y"',
        f"double({VERSION}) + 1.0 > 2.0",
        f'int(semver({A}.model + "x").major()) == 1',
    ],
)
def test_what_is_no_version_is_not_corrected(condition: str) -> None:
    found, _ = failing(condition)
    assert found.corrections == ()


@pytest.mark.parametrize("text", ["99999999999999999999", "1.0.99999999999999999999"])
def test_no_version_has_a_number_that_is_too_large_for_one(text: str) -> None:
    found, _ = failing(f'{VERSION} == "{text}"')
    assert found.corrections == ()
