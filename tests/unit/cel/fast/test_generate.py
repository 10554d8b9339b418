# SPDX-License-Identifier: Apache-2.0
"""Generated functions: which expressions get one, what it answers, and when it leaves the answer to the exact evaluation.

That it never answers anything else is for tests/property/test_cel_generated.py.
"""

import pytest

from dra_driver.cel.cancellation import Check, never
from dra_driver.cel.checking.check import check
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.fast.generate import matcher
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.versions import Environment
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity

ENVIRONMENT = Environment()
OWN = 'device.attributes["gpu.example.com"]'
SIZES = 'device.capacity["gpu.example.com"]'
DEVICE = DeviceValue(
    "gpu.example.com",
    Device(
        attributes={
            "name": DeviceAttribute(string_value="fish"),
            "wide": DeviceAttribute(string_value="Ärger"),
            "index": DeviceAttribute(int_value=3),
            "most": DeviceAttribute(int_value=2**63 - 1),
            "healthy": DeviceAttribute(bool_value=True),
            "version": DeviceAttribute(version_value="1.2.3"),
            "beta": DeviceAttribute(version_value="1.2.3-beta"),
            "links": DeviceAttribute(string_values=["a", "b"]),
        },
        capacity={"memory": DeviceCapacity(value="40Gi"), "half": DeviceCapacity(value="500m")},
        allow_multiple_allocations=True,
    ),
)


class Left(Exception):
    """The exact evaluation is asked."""


def _leave(_device: DeviceValue, _cancelled: Check = never) -> bool:
    raise Left


def answer(expression: str) -> bool | None:
    """What the generated function says; None where it leaves it."""
    checked = check(parse(expression, ENVIRONMENT), ENVIRONMENT)
    try:
        return matcher(checked, _leave)(DEVICE)
    except Left:
        return None


def is_generated(expression: str) -> bool:
    checked = check(parse(expression, ENVIRONMENT), ENVIRONMENT)
    return matcher(checked, _leave) is not _leave


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("true", True),
        ('device.driver == "gpu.example.com"', True),
        ("device.allowMultipleAllocations", True),
        ("!device.allowMultipleAllocations", False),
        (f"{OWN}.healthy", True),
        (f'{OWN}.name == "fish"', True),
        (f'"bird" == {OWN}.name', False),
        (f'{OWN}.name != "fish"', False),
        (f'{OWN}.name == {OWN}["name"]', True),
        (f"{OWN}.index == 3 && {OWN}.index < 4 && 3 <= {OWN}.index", True),
        (f'{OWN}.index == "3"', False),
        (f'{OWN}.index != "3"', True),
        (f"{OWN}.index == 3u || {OWN}.index == 3.0", True),
        (f"{OWN}.name in ['fish', 'bird'] && {OWN}.index in [1, 3]", True),
        ("device.driver in ['a'] || 1 + 2 in [3]", True),
        (f'has({OWN}.name) && "index" in {OWN} && !("x" in device.attributes)', True),
        ('has(device.attributes["x"].name)', False),
        (f'{OWN}.version.isGreaterThan(semver("1.2.2"))', True),
        (f'{OWN}.version.compareTo(semver("1.2.3")) >= 0', True),
        (f'{OWN}.version == semver("1.2.3")', True),
        (f'{OWN}.version.compareTo(semver("1.2.3-a")) > 0', True),
        (f"{OWN}.version.major() == 1", True),
        (f'{SIZES}.memory.compareTo(quantity("40Gi")) == 0', True),
        (f'{SIZES}.memory.isLessThan(quantity("1Gi")) || {SIZES}.memory != quantity("1Gi")', True),
        (f"{SIZES}.memory.compareTo({SIZES}.half) == 1", True),
        (f"{SIZES}.memory.isGreaterThan({SIZES}.half)", True),
        (f'{OWN}.?name.orValue("") == "fish" && {OWN}.?other.orValue("x") == "x"', True),
        (f'{OWN}[?"name"].hasValue() && !{OWN}.?other.hasValue()', True),
        (f'cel.bind(own, {OWN}, own.name == "fish" && own.index == 3)', True),
        (f'{OWN}.name.startsWith("fi") && {OWN}.name.endsWith("sh")', True),
        (f'{OWN}.name.contains("is") && {OWN}.name.matches("^f.sh$")', True),
        (f'(device.driver + "{"x" * 49}").matches("x$")', True),
        (f'(device.driver + "{"x" * 50}").matches("x$")', True),
        (f'{OWN}.name.find("^f.") == "fi" && {OWN}.name.findAll(".", 2) == ["f", "i"]', True),
        (f"{OWN}.name.startsWith({OWN}.name)", True),
        (f'{OWN}.name.upperAscii() == "FISH" && {OWN}.name.lowerAscii() == "fish"', True),
        (f"{OWN}.name.size() == 4 && device.driver.size() == 15 && {OWN}.size() == 8", True),
        (f'{OWN}.name.substring(1) == "ish" && device.driver.indexOf("u") == 2', True),
        (f'{OWN}.links.exists(link, link == "b")', True),
        (f'{OWN}.links.all(link, link.startsWith("a"))', False),
        (f'{OWN}.exists_one(name, name == "name")', True),
        ("device.attributes.exists(domain, domain == device.driver)", True),
        ("['a', 'b'].exists(x, x == 'b') && [1, 2].all(x, x > 0)", True),
        (f"({OWN}.healthy ? {OWN}.index : 0) == 3", True),
        ('device.attributes[device.driver].name == "fish"', True),
        ('"a" + "b" == "ab" && 2 * 3 - 1 == 5 && 7 / 2 == 3', True),
        ('device.driver.substring(1) == "pu.example.com" && 1.5 * 2.0 == 3.0', True),
        (f'{OWN}.version != "1.2.3"', True),
        ("dyn(1) == 1 && -1 < 0 && null == null", True),
        ('b"a" + b"b" == b"ab"', True),
        ('quantity("1") == quantity("1000m") && duration("1h") > duration("1m")', True),
    ],
)  # fmt: skip
def test_the_usual_case_is_answered_by_the_generated_function(
    expression: str, expected: bool
) -> None:
    assert answer(expression) is expected


@pytest.mark.parametrize(
    "expression",
    [
        f"{OWN}.missing == 1",
        f"{OWN}.name || true",
        f"{OWN}.?index.orValue(true)",
        f"{OWN}.name",
        f'{OWN}.index in ["a"]',
        f"{OWN}.most + 1 > 0",
        f"{OWN}.index + 1 == 4",
        "9223372036854775807 + 1 > 0",
        f'{OWN}.name.isGreaterThan(semver("1.0.0"))',
        f'{OWN}.beta.isGreaterThan(semver("1.0.0"))',
        f'{SIZES}.half.compareTo(quantity("1")) == 0',
        f'{OWN}.index.startsWith("a")',
        f'{OWN}.index.matches("a")',
        f'{OWN}.index.find("a") == ""',
        f'{OWN}.wide.lowerAscii() == "ärger"',
        f'{OWN}.index.split(",").size() == 1',
        f'{OWN}.name.exists(x, x == "f")',
        "1 / 0 == 1",
    ],
)
def test_whatever_else_happens_is_left_to_the_exact_evaluation(expression: str) -> None:
    assert answer(expression) is None


@pytest.mark.parametrize(
    "expression",
    [
        'quantity("nonsense") == quantity("1")',
        "[1] + [2] == [1, 2]",
        "{'a': 1}.a == 1",
        "{'a': 1} == {'a': 1}",
        "[?optional.of(1)] == [1]",
        "device == device",
        "has(device.driver)",
        f"has({OWN}.name.length)",
        f"{OWN}.links[0] == 'a'",
        "optional.of(1).orValue(2) == 1",
        "device.attributes.?x.hasValue()",
        "cel.bind(all, device.attributes, all['x'].size() == 0)",
        "(device.allowMultipleAllocations ? device.attributes : device.attributes).size() > 0",
        "type(1) == int",
        "1 in [1, 2 + 3]",
        "1 in []",
        "[1.5].exists(x, x in [1.5])",
        "[].exists(x, x)",
        "cel.bind(x, 1, [1].exists(x, x == 1)) && [cel.bind(y, 1, y)].sum() == 1 && strings.quote('a') != ''",
        "-".join(["1"] * 60) + " > 0",
        "dyn(" * 60 + "true" + ")" * 60,
        f"{OWN}.name in {OWN}",
        " && ".join(["true || false"] * 1_000),
    ],
)
def test_what_cannot_be_written_is_not_generated(expression: str) -> None:
    assert not is_generated(expression)


def test_a_name_that_hides_the_accumulator_is_left_to_the_exact_evaluation() -> None:
    old = Environment(32)
    for expression in (
        "cel.bind(__result__, true, [1].all(x, __result__))",
        "[true].all(__result__, __result__)",
    ):
        checked = check(parse(expression, old), old)
        assert matcher(checked, _leave) is _leave


def test_an_attribute_that_cannot_be_converted_is_left_to_the_exact_evaluation() -> None:
    broken = DeviceValue("d", Device(attributes={"a": DeviceAttribute()}))
    checked = check(parse("true", ENVIRONMENT), ENVIRONMENT)
    with pytest.raises(Left):
        matcher(checked, _leave)(broken)


def test_text_of_the_expression_never_becomes_program_text() -> None:
    hostile = '"\'); raise SystemExit #"'
    assert answer(f"{hostile} == {hostile}") is True
    assert answer("cel.bind(exact, 1, cel.bind(attributes, 2, exact < attributes))") is True
    assert answer("[1].all(__import__, __import__ == 1)") is True
