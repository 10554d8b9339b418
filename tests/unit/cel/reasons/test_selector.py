# SPDX-License-Identifier: Apache-2.0
"""Which part of a selector says no, and with which values."""

import pytest

from dra_driver.cel.checking import check
from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.reasons.conditions import FalseCondition, shown
from dra_driver.cel.reasons.failing import FailingCondition
from dra_driver.cel.reasons.paths import DevicePath
from dra_driver.cel.reasons.selector import ExplainedSelector
from dra_driver.cel.reasons.similar import MOST_LOOKED_UP
from dra_driver.cel.syntax import parser
from dra_driver.cel.versions import Environment
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity

DRIVER = "gpu.example.com"
DEVICE = Device(
    name="gpu-0",
    attributes={
        "model": DeviceAttribute(string_value="A100"),
        "numa": DeviceAttribute(int_value=1),
        "ecc": DeviceAttribute(bool_value=False),
        "mig": DeviceAttribute(bool_value=True),
        "driverVersion": DeviceAttribute(version_value="1.2.0"),
        "kinds": DeviceAttribute(string_values=["a", "b"]),
        "other.example.com/link": DeviceAttribute(int_value=2),
    },
    capacity={"memory": DeviceCapacity(value="40Gi")},
)
A, C = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'
HAS = "it has: model, numa, ecc, mig, driverVersion, kinds"


def explained(expression: str) -> ExplainedSelector:
    return ExplainedSelector(compile_selector(expression))


def value(device: Device = DEVICE) -> DeviceValue:
    return DeviceValue(DRIVER, device)


def nothing_meant(_path: DevicePath, _text: str) -> str:
    return ""


def is_published(_path: DevicePath, version: str) -> bool:
    return not version


def false_conditions(expression: str, device: Device = DEVICE) -> tuple[FalseCondition, ...]:
    return explained(expression).false_conditions(
        DRIVER, device, value(device), nothing_meant, is_published=is_published
    )


FOUND = [
    (f'{C}.memory.compareTo(quantity("80Gi")) >= 0', "memory 40Gi < 80Gi"),
    (f'{C}.memory.isGreaterThan(quantity("80Gi"))', "memory 40Gi <= 80Gi"),
    (f'{C}.memory.isLessThan(quantity("1Gi"))', "memory 40Gi >= 1Gi"),
    (f'quantity("80Gi").compareTo({C}.memory) <= 0', "memory 40Gi < 80Gi"),
    (f'{A}.model == "H100"', 'model "A100" is not "H100"'),
    (f'"H100" == {A}.model', 'model "A100" is not "H100"'),
    (f'{A}.model != "A100"', 'model is "A100"'),
    (f"{A}.numa > 1", "numa 1 <= 1"),
    (f"2 <= {A}.numa", "numa 1 < 2"),
    (f"{A}.numa < 1", "numa 1 >= 1"),
    (f'{A}.driverVersion.compareTo(semver("2.0.0")) >= 0', "driverVersion 1.2.0 < 2.0.0"),
    ('device.driver == "x"', 'of another driver than "x"'),
    ('device.driver != "gpu.example.com"', 'driver is "gpu.example.com"'),
    ("device.allowMultipleAllocations", "allowMultipleAllocations is false"),
    (f'{A}.model in ["H100", "H200"]', 'model "A100" is not in ["H100", "H200"]'),
    (f"has({A}.modle)", f"has no attribute modle, {HAS}"),
    (f'"modle" in {A}', f"has no attribute modle, {HAS}"),
    (f'"mem" in {C}', "has no capacity mem, it has: memory"),
    (
        'has(device.attributes["nobody"].x)',
        "has no attribute x, it has none of domain nobody, only of: gpu.example.com, other.example.com",
    ),
    (f'{A}.model.startsWith("H")', 'model "A100" does not start with "H"'),
    (f'{A}.model.endsWith("1")', 'model "A100" does not end with "1"'),
    (f'{A}.model.contains("x")', 'model "A100" does not contain "x"'),
    (f'{A}.model.matches("^H")', 'model "A100" does not match "^H"'),
    (f"!{A}.mig", "mig is true"),
    (f"{A}.ecc", "ecc is false"),
    (f"!has({A}.mig)", "has mig"),
    (f'!({A}.model == "A100")', 'model is "A100"'),
    (f'{A}.model == "H" || {A}.numa == 0', 'model "A100" is not "H", and numa 1 is not 0'),
    (
        f"{A}.numa == 5 || {A}.numa == 6 || {A}.numa == 7",
        "numa 1 is not 5, and numa 1 is not 6, and numa 1 is not 7",
    ),
    (f"{A}.?numa.orValue(3) == 4", "numa 1 is not 4"),
    (f"{A}.?none.orValue(3) == 4", "none (not set: 3) is not 4"),
    (f"{A}.model.size() == 3", f'{A}.model.size() == 3 is false with model "A100"'),
    (
        f'{A}.model.lowerAscii().startsWith("b")',
        f'{A}.model.lowerAscii().startsWith("b") is false with model "A100"',
    ),
    (f"optional.of(3).orValue(2) == {A}.numa", "numa 1 is not optional.of(3).orValue(2)"),
    ("1 == 2", "1 == 2 is false"),
    ("!(1 == 1)", "!(1 == 1) is false"),
    ("1 in [2]", "1 in [2] is false"),
    (
        f'{A}.model == "x" ? true : false',
        f'{A}.model == "x" ? true : false is false with model "A100"',
    ),
    ('device.attributes["other.example.com"].link == 3', "other.example.com/link 2 is not 3"),
    (f"{A}.numa == {A}.model.size()", f"numa 1 is not {A}.model.size()"),
    (f"cel.bind(a, {A}, a.numa == 3)", f"cel.bind(a, {A}, a.numa == 3) is false"),
    (f"!(cel.bind(a, {A}, has(a.numa)))", f"!cel.bind(a, {A}, has(a.numa)) is false"),
    (f'!{A}.model.startsWith("A")', f'!{A}.model.startsWith("A") is false with model "A100"'),
]


@pytest.mark.parametrize(("expression", "found"), FOUND)
def test_a_condition_is_told_with_what_it_found(expression: str, found: str) -> None:
    assert [part.found for part in false_conditions(expression)] == [found]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("1.2.0", 'semver("1.2.0") instead of "1.2.0"'),
        ("1", f"{A}.driverVersion.major() == 1"),
        ("newest", ""),
    ],
)
def test_a_text_that_never_equals_a_version_is_told(text: str, right: str) -> None:
    """With the text first, CEL says false; with the version first the evaluation ends with an error."""
    (told,) = false_conditions(f'"{text}" == {A}.driverVersion')
    assert told.hint == (f"driverVersion is a version: write {right}" if right else "")
    assert (told.wanted, told.relaxed) == ((), "")


@pytest.mark.parametrize(
    ("condition", "right"),
    [
        ('!("2" != @)', '(@.major() != 2) instead of "2" != @'),
        (f'"2" == @ || {A}.numa == 99', '@.major() == 2 instead of "2" == @'),
        (f'{A}.numa == 99 || "2.0.0" == @', 'semver("2.0.0") instead of "2.0.0"'),
        (
            '"3.0.0" == @ || "2" == @ || "3.0.0" == @',
            'semver("3.0.0") instead of "3.0.0"; write @.major() == 2 instead of "2" == @',
        ),
    ],
)
def test_what_to_write_for_a_part_of_a_condition_says_instead_of_what(condition, right):
    version = f"{A}.driverVersion"
    (told,) = false_conditions(condition.replace("@", version))
    assert told.hint == f"driverVersion is a version: write {right.replace('@', version)}"


def test_a_false_condition_is_corrected_where_any_device_has_a_version() -> None:
    """In a fleet with many values a false condition is known by its text only, and none of its devices may have the version."""
    parts = (f"{A}.numa == 1", f'"1.3.0" == {A}.driverVersion', f'"1" == {A}.model')
    selector = explained(" && ".join(parts))
    (_, *false) = [FalseCondition(part, "") for part in parts]
    corrections = [
        one
        for part in false
        for one in selector.version_corrections(
            part, lambda path: path.name == "driverVersion", is_published
        )
    ]
    assert selector.corrected({one.number: one.new for one in corrections}) == (
        f'{parts[0]} && semver("1.3.0") == {A}.driverVersion && {parts[2]}'
    )


RELAXED = [
    (
        f'{C}.memory.compareTo(quantity("80Gi")) >= 0',
        f'{C}.memory.compareTo(quantity("40Gi")) >= 0',
    ),
    (f'{A}.model == "H100"', f'{A}.model == "A100"'),
    (f"{A}.numa >= 3", f"{A}.numa >= 1"),
    (f"{A}.numa > 3", ""),
    (f'{A}.model in ["H100"]', f'{A}.model in ["H100", "A100"]'),
    (f'{A}.model in ["a1oo", "H100"]', f'{A}.model in ["A100", "H100"]'),
    (f'{A}.model in ["H100", "a100", "A1OO"]', f'{A}.model in ["H100", "A100"]'),
    (f'{A}.numa in ["1"]', f"{A}.numa in [1]"),
    (f"{A}.numa in [2, 3]", f"{A}.numa in [2, 3, 1]"),
    (f'{A}.model in [{A}.model + "x"][0:1]' if False else f"{A}.model in {A}.kinds", ""),
    (f"{A}.numa == {A}.model.size()", ""),
    (f'{A}.driverVersion == semver("2.0.0")', f'{A}.driverVersion == semver("1.2.0")'),
    (f"has({A}.none)", ""),
]


@pytest.mark.parametrize(("expression", "relaxed"), RELAXED)
def test_a_condition_is_relaxed_to_what_the_device_has(expression: str, relaxed: str) -> None:
    (part,) = false_conditions(expression)
    assert part.relaxed == relaxed
    if relaxed:
        assert explained(relaxed).selector.matches(value())


def test_every_false_condition_is_told_and_the_rest_is_kept() -> None:
    expression = f'{A}.model == "H" && (has({A}.numa) || has({A}.x)) && {A}.numa > 3'
    selector = explained(expression)
    parts = selector.false_conditions(DRIVER, DEVICE, value(), nothing_meant)
    assert [part.found for part in parts] == ['model "A100" is not "H"', "numa 1 <= 3"]
    kept = selector.without(parts)
    assert kept == f'{A}.model == "A100" && (has({A}.numa) || has({A}.x))'
    assert explained(kept).selector.matches(value())


def test_a_selector_of_one_condition_can_be_left_out() -> None:
    selector = explained(f"{A}.numa > 3")
    assert selector.without(selector.false_conditions(DRIVER, DEVICE, value())) == ""


def test_in_brief_no_values_are_told() -> None:
    expression = f'{A}.model == "H" && 1 == 2'
    twice = [explained(expression).false_conditions_in_brief(value()) for _ in range(2)]
    path = DevicePath("attributes", DRIVER, "model")
    brief = (
        FalseCondition(f'{A}.model == "H"', f'{A}.model == "H" is false', path=path),
        FalseCondition("1 == 2", "1 == 2 is false"),
    )
    assert twice == [brief, brief]
    selector = explained(f"{A}.ecc && {A}.ecc")
    assert selector.false_conditions_in_brief(value()) == selector.false_conditions_in_brief(
        value()
    )


def test_an_error_that_another_condition_absorbs_is_not_told() -> None:
    parts = false_conditions(f"{A}.none == 1 && {A}.numa == 2")
    assert [part.found for part in parts] == ["numa 1 is not 2"]


def test_the_condition_with_the_error_is_named() -> None:
    selector = explained(f'{A}.numa == 1 && {A}.none == "x"')
    missing = (DevicePath("attributes", DRIVER, "none"),)
    failing = FailingCondition(f'{A}.none == "x"', missing, f"has no attribute none, {HAS}")
    assert selector.failing_conditions(DRIVER, DEVICE, value()) == (failing,)


def test_an_error_that_no_condition_has_alone_belongs_to_all() -> None:
    selector = explained(f"{A}.numa == 1")
    assert selector.failing_conditions(DRIVER, DEVICE, value()) == (
        FailingCondition(f"{A}.numa == 1"),
    )


def test_a_comparison_with_a_missing_attribute_says_so() -> None:
    parts = false_conditions(
        f"{A}.?nuna.orValue(0) == 1 && {A}.?modle.or(optional.of(1)).hasValue() == false"
    )
    assert parts[0].found == "nuna (not set: 0) is not 1"
    absent = Device(name="n")
    parts = false_conditions('has(device.capacity["x"].y)', absent)
    assert parts[0].found == "has no capacity y, it has none of domain x"


def test_a_mistyped_name_gets_a_hint() -> None:
    (part,) = false_conditions(f"has({A}.modle)")
    assert part.hint == "did you mean model?"
    (part,) = false_conditions(f"has({A}.modle) || {A}.numa == 7")
    assert part.hint == "did you mean model?"


def test_values_are_shown_as_they_were_published() -> None:
    published = [
        "text",
        7,
        DeviceCapacity(value="1Gi"),
        DeviceAttribute(version_value="1.0.0"),
        DeviceAttribute(int_values=[1, 2]),
        DeviceAttribute(bool_values=[True]),
        DeviceAttribute(version_values=["1.0.0"]),
        DeviceAttribute(),
        None,
    ]
    assert [shown(one) for one in published] == [
        '"text"',
        "7",
        "1Gi",
        "1.0.0",
        "[1, 2]",
        "[true]",
        '["1.0.0"]',
        "[]",
        "",
    ]


def test_many_names_are_cut() -> None:
    attributes = {f"a{number}": DeviceAttribute(int_value=1) for number in range(10)}
    device = Device(name="n", attributes=attributes)
    (part,) = false_conditions(f"has({A}.zzz)", device)
    assert part.found.endswith("a6, a7, … (10 in all)")


def test_a_part_that_does_not_compile_alone_is_told_as_a_whole() -> None:
    older = compile_selector(f"dyn({A}.numa == 2) && {A}.numa == 3", Environment(minor=34))
    selector = ExplainedSelector(older)
    parts = selector.false_conditions(DRIVER, DEVICE, value())
    assert [part.found for part in parts] == ["numa 1 is not 3"]
    assert [one.part for one in selector.failing_conditions(DRIVER, DEVICE, value())] == [
        f"dyn({A}.numa == 2) && {A}.numa == 3"
    ]


def test_an_optional_that_is_not_there_is_told() -> None:
    (part,) = false_conditions(f"{A}.?nuna == optional.of(1)")
    assert (part.found, part.hint) == (f"has no attribute nuna, {HAS}", "did you mean numa?")


def test_what_a_guard_makes_sure_of_is_left_out_with_it() -> None:
    selector = explained(f'has({A}.modle) && {A}.numa == 1 && {A}.modle == "x"')
    (part,) = selector.false_conditions(DRIVER, DEVICE, value(), nothing_meant)
    assert part.typo == (DevicePath("attributes", DRIVER, "modle"), "model")
    both = selector.with_dependent([part])
    assert [one.part for one in both] == [f"has({A}.modle)", f'{A}.modle == "x"']
    assert selector.without(both) == f"{A}.numa == 1"
    assert selector.renamed(dict([part.typo])) == (
        f'has({A}.model) && {A}.numa == 1 && {A}.model == "x"'
    )
    relaxed = explained(f'has({A}.model) && {A}.model == "H" && cel.bind(d, device, true)')
    parts = relaxed.false_conditions(DRIVER, DEVICE, value(), nothing_meant)
    assert relaxed.with_dependent(parts) == parts
    unguarded = explained(f'"y" in {A} && ({A}.y == 1 || {A}.y == 2) && cel.bind(d, device, true)')
    parts = unguarded.false_conditions(DRIVER, DEVICE, value(), nothing_meant)
    assert len(unguarded.with_dependent(parts)) == 2


def test_conditions_that_fail_are_guarded() -> None:
    selector = explained(f'{A}.modle == "x" && ({A}.numa == 1 || {A}.none == 2) && {A}.none == 3')
    failing = selector.failing_conditions(DRIVER, DEVICE, value())
    none, modle = (DevicePath("attributes", DRIVER, name) for name in ("none", "modle"))
    assert [(one.missing, one.typos) for one in failing] == [
        ((modle,), ((modle, "model"),)),
        ((none,), ()),
    ]
    guarded = selector.guarded({one.part: one.missing for one in failing})
    assert guarded == (
        f'has({A}.modle) && {A}.modle == "x" && ({A}.numa == 1 || {A}.none == 2) '
        f"&& has({A}.none) && {A}.none == 3"
    )
    assert not explained(guarded).selector.matches(value())
    whole = explained(f"{A}.none == 3 ? true : false")
    (failed,) = whole.failing_conditions(DRIVER, DEVICE, value())
    assert whole.guarded({failed.part: failed.missing}) == (
        f"has({A}.none) && ({A}.none == 3 ? true : false)"
    )


def test_the_conditions_of_a_selector_are_neither_parsed_nor_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = compile_selector(f"{A}.numa == 1 && cel.bind(x, {A}.numa, x == 3)")
    monkeypatch.setattr(parser, "parse", None)
    monkeypatch.setattr(check, "check", None)
    (part,) = ExplainedSelector(compiled).false_conditions(DRIVER, DEVICE, value())
    assert part.part == f"cel.bind(x, {A}.numa, x == 3)"


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (f'{A}.model == "H100"', ('"H100"',)),
        (f'{A}.model in ["H100", "H200"]', ('"H100"', '"H200"')),
        (f"dyn({A}.model) == {A}.kinds", ()),
        (f"{A}.numa == 2", ()),
        (f'{C}.memory == quantity("80Gi")', ()),
        (f"{A}.numa == {A}.model", ('"A100"',)),
        (f"{A}.model == device.driver", (f'"{DRIVER}"',)),
        (f'{A}.model == {A}.?zzz.orValue("x")', ()),
        (f"{A}.model in {['x'] * MOST_LOOKED_UP + ['y']}", ('"x"',) * MOST_LOOKED_UP),
    ],
)
def test_only_wanted_texts_are_told_and_the_first_of_very_many(
    condition: str, wanted: tuple[str, ...]
) -> None:
    """Only a text can be mistyped."""
    (part,) = false_conditions(condition)
    assert part.wanted == wanted


@pytest.mark.parametrize(
    ("text", "condition", "call"),
    [
        ("570.1.0", '@.isGreaterThan(semver("560.0.0"))', "semver(…)"),
        ("570.01.05", 'semver("560.0.0").isLessThan(@)', "semver(…, true)"),
        ("80Gi", '@.compareTo(quantity("40Gi")) > 0', "quantity(…)"),
        ("newest", '@.isGreaterThan(semver("560.0.0"))', ""),
        ("570.1.0", "@.isGreaterThan(@)", ""),
    ],
)
def test_a_text_that_has_to_be_parsed_is_told_with_the_call(
    text: str, condition: str, call: str
) -> None:
    driver = DevicePath("attributes", DRIVER, "driver")
    device = Device(name="a", attributes={"driver": DeviceAttribute(string_value=text)})
    written = f"{A}.driver"
    selector = explained(condition.replace("@", written))
    (failing,) = selector.failing_conditions(DRIVER, device, value(device))
    assert failing.parsers == (((driver, call),) if call else ())
    told = f"has driver as the string {text}: wrap it, {call.replace('…', 'driver')}"
    assert failing.lacks == (told if call else "")
    if call:
        assert call.replace("…", written) in selector.wrapped(dict(failing.parsers))


@pytest.mark.parametrize(
    ("condition", "found", "new"),
    [
        ("@ == '1.0.0'", ["1.0.0"], '@ == semver("1.0.0")'),
        ("@ != '1.0'", ["1.0"], '@ != semver("1.0", true)'),
        (
            "@ in ['1.0.0', '2.0.0']",
            ["1.0.0", "2.0.0"],
            '@ in [semver("1.0.0"), semver("2.0.0")]',
        ),
        ("@ in ['1.0.0', 'x']", [], '@ in ["1.0.0", "x"]'),
        ("@ in ['1.0.0', string(3)]", [], '@ in ["1.0.0", string(3)]'),
        ("@ in [['1.0.0']]", [], '@ in [["1.0.0"]]'),
        (
            "['1.0.0'].exists(v, v == '1.0.0' && @ == '1.0.0')",
            ["1.0.0"],
            'exists(v, v == "1.0.0" && @ == semver("1.0.0"))',
        ),
        ("@ == 'x'", [], '@ == "x"'),
        ("@ == true", [], "@ == true"),
    ],
)
def test_a_text_beside_a_version_is_told_with_the_call(
    condition: str, found: list[str], new: str
) -> None:
    attributes = {
        "driver": DeviceAttribute(version_value="3.0.0"),
        "model": DeviceAttribute(string_value="1.0.0"),
    }
    device = Device(name="a", attributes=attributes)
    written = f"{A}.driver"
    selector = explained(f"{A}.model == '1.0.0' && {condition.replace('@', written)}")
    (failing,) = selector.failing_conditions(DRIVER, device, value(device))
    assert [one.instead for one in failing.corrections] == [f'"{one}"' for one in found]
    writes = "; ".join(f"write {one.write} instead of {one.instead}" for one in failing.corrections)
    assert failing.lacks == (f"has driver as the version 3.0.0: {writes}" if found else "")
    told = selector.corrected({one.number: one.new for one in failing.corrections})
    assert told.startswith(f'{A}.model == "1.0.0" && ')
    assert new.replace("@", written) in told


@pytest.mark.parametrize(
    ("listed", "relaxed"),
    [
        ('"Hoper"', '"A100"'),
        ('"Hoper", "B200"', '"A100", "B200"'),
        ('"B200", string(1)', '"B200", string(1), "A100"'),
    ],
)
def test_a_listed_text_gives_way_to_the_value_that_was_meant_by_it(listed, relaxed):
    selector = explained(f"{A}.model in [{listed}]")
    (part,) = selector.false_conditions(
        DRIVER,
        DEVICE,
        value(),
        lambda path, text: '"A100"' if (path.name, text) == ("model", '"Hoper"') else "",
    )
    assert part.relaxed == f"{A}.model in [{relaxed}]"
