# SPDX-License-Identifier: Apache-2.0
"""Macros and format() as Python: which are written, what they answer, and when they leave it to the exact evaluation."""

import pytest

from dra_driver.cel import work
from dra_driver.cel.cancellation import Check, never
from dra_driver.cel.checking.check import check
from dra_driver.cel.compile import compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.fast import inline, templates
from dra_driver.cel.fast import writer as fast_writer
from dra_driver.cel.fast.generate import matcher
from dra_driver.cel.fast.writer import Form, Unsupported, Writer
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.turns import NO_LOOPS, Turns
from dra_driver.cel.versions import Environment
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity

ENVIRONMENT = Environment()
OWN = 'device.attributes["d"]'
DEVICE = DeviceValue(
    "d",
    Device(
        attributes={
            "name": DeviceAttribute(string_value="fish"),
            "index": DeviceAttribute(int_value=3),
            "links": DeviceAttribute(string_values=["a", "b"]),
        },
        capacity={"memory": DeviceCapacity(value="40Gi")},
    ),
)


class Left(Exception):
    """The exact evaluation is asked."""


def _leave(_device: DeviceValue, _cancelled: Check = never) -> bool:
    raise Left


def answer(expression: str, device: DeviceValue = DEVICE, turns: Turns = NO_LOOPS) -> bool | None:
    """What the generated function says; None where it leaves it."""
    checked = check(parse(expression, ENVIRONMENT), ENVIRONMENT)
    generated = matcher(checked, _leave, turns)
    assert generated is not _leave
    try:
        return generated(device)
    except Left:
        return None


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # all, exists, exists_one with two names
        (f'{OWN}.exists(n, v, n == "name" && v == "fish")', True),
        (f'{OWN}.all(n, v, v == "fish")', False),
        (f'{OWN}.existsOne(n, v, n == "index")', True),
        (f'{OWN}.links.exists(i, v, i == 1 && v == "b")', True),
        ('device.attributes.all(d, m, m.exists(n, v, n == "index" && v == 3))', True),
        ("device.capacity.exists(d, m, m.all(n, v, v.isGreaterThan(quantity('1Gi'))))", True),
        # map and filter
        ("[1, 2].map(x, x + 1) == [2, 3]", True),
        ("[1, 2].map(x, x > 1, x * 2) == [4]", True),
        ("[1, 2, 3].filter(x, x > 1).sum() == 5", True),
        ("[1, 2, 3].map(x, x)[2] == 3", True),
        # an empty list does not show which overload is meant
        ('string([duration("1s")].filter(x, false).sum()) == "0s"', True),
        ('[duration("1s")].filter(x, false).sum() == duration("0s")', True),
        ("[1.5].filter(x, false).sum() == 0.0 && [1u].filter(x, false).sum() == 0u", True),
        (f'{OWN}.filter(n, n.startsWith("li")) == ["links"]', True),
        ('["a", "b"].map(x, x + "!") == ["a!", "b!"]', True),
        ("[[1, 2], [3]].map(x, x.size()).sum() == 3", True),
        ("[[1, 2], [3]].all(x, x.exists(y, y > 1))", True),
        (f'"a" in {OWN}.links.map(x, x) && "fish" in ["fish"].map(x, x)', True),
        ("!(dyn(1u) in [1].map(x, x - 1))", True),
        # transformList, transformMap, transformMapEntry
        (f"{OWN}.links.transformList(i, v, i) == [0, 1]", True),
        (f"{OWN}.transformList(n, v, n == 'index', v) == [3]", True),
        (f"{OWN}.transformMap(n, v, n + '!').size() == 3", True),
        (f"{OWN}.transformMap(n, v, n == 'index', v)['index'] == 3", True),
        (f"{OWN}.transformMap(n, v, 1).exists(n, v, n == 'name' && v == 1)", True),
        (f"{OWN}.transformMap(n, v, 1).all(n, n != '')", True),
        (f"{OWN}.links.transformMap(i, v, v)[1] == 'b'", True),
        (f"1u in {OWN}.links.transformMap(i, v, v).transformMap(i, v, i)", True),
        (f"{OWN}.links.transformMapEntry(i, v, {{v: i}})['b'] == 1", True),
        # what has the accumulator's size
        (f"cel.bind(x, {OWN}.links.map(y, y), x.size() == 2 && x[0] == 'a')", True),
        # templates
        ('"%s-%d".format([device.driver, 7]) == "d-7"', True),
        (f'"%s %s".format([{OWN}.name, {OWN}.index]) == "fish 3"', True),
        ('"%s %s %x %.2f%%é".format([true, [1], 255, 1.5]) == "true [1] ff 1.50%é"', True),
        ('"%s".format(["a"].map(x, x)) == "a"', True),
    ],
)
def test_loops_and_templates_are_answered_by_the_generated_function(
    expression: str, expected: bool
) -> None:
    assert answer(expression) is expected
    assert compile_selector(expression).matches(DEVICE) is expected


@pytest.mark.parametrize(
    "expression",
    [
        f"{OWN}.name.exists(x, x == 'f')",
        f"{OWN}.index.map(x, x) == []",
        f"{OWN}.links.map(x, x)[2] == 'b'",
        "[1].map(x, x)[-1] == 1",
        "[9223372036854775807, 1].map(x, x).sum() > 0",
        "[9223372036854775807, 1, -5].map(x, x).sum() > 0",
        f"{OWN}.links.transformMap(i, v, v)[2] == 'b'",
        f"{OWN}.links.transformMapEntry(i, v, {{1: v}}).size() == 1",
        f"{OWN}.links.exists(x, x)",
        f'"%d".format([{OWN}.name]) == ""',
        f'"%d".format({OWN}.links) == ""',
    ],
)
def test_what_goes_wrong_in_a_turn_is_left_to_the_exact_evaluation(expression: str) -> None:
    assert answer(expression) is None


@pytest.mark.parametrize(
    "expression",
    [
        "[1].transformMapEntry(i, v, cel.bind(x, 1, {i: v})).size() == 1",
        "[1].transformMapEntry(i, v, {i: v, 5: v}).size() == 2",
        "[1].transformMapEntry(i, v, {?i: optional.of(v)}).size() == 1",
        "has(['a'].transformMapEntry(i, v, {v: i}).a)",
        '"%s".format([?dyn(optional.of(1))]) == "1"',
    ],
)
def test_what_cannot_be_written_is_not_generated(expression: str) -> None:
    checked = check(parse(expression, ENVIRONMENT), ENVIRONMENT)
    assert matcher(checked, _leave) is _leave


@pytest.mark.parametrize(
    ("template", "count"), [("%q", 1), ("%", 1), ("%s", 0), ("%s", 2), ("%.s", 1)]
)
def test_a_template_that_the_checker_would_refuse_is_not_written(template: str, count: int) -> None:
    writer = Writer(check(parse("true", ENVIRONMENT), ENVIRONMENT))
    with pytest.raises(Unsupported):
        templates.filled(writer, template, [writer.constant(1, Form.INT)] * count)


def test_a_loop_turns_no_more_often_than_it_may() -> None:
    expression = f"{OWN}.links.all(x, x != '')"
    checked = check(parse(expression, ENVIRONMENT), ENVIRONMENT)
    for most, expected in ((2, True), (1, None)):
        assert answer(expression, turns=Turns({checked.parsed.root.id: most})) is expected


@pytest.mark.parametrize(
    ("attributes", "capacity", "driver"),
    [
        ({"a": DeviceAttribute(string_value="x" * 65)}, {}, "d"),
        ({"a": DeviceAttribute(string_values=["x", "x" * 65])}, {}, "d"),
        ({"a" * 65: DeviceAttribute(int_value=1)}, {}, "d"),
        ({"a": DeviceAttribute(int_values=[1])}, {"a" * 129: DeviceCapacity(value="1")}, "d"),
        ({}, {}, "d" * 65),
        ({"d" * 65 + "/a": DeviceAttribute(int_value=1)}, {}, "d"),
    ],
)
def test_a_device_with_long_texts_is_left_to_the_exact_evaluation_where_they_matter(
    attributes: dict[str, DeviceAttribute], capacity: dict[str, DeviceCapacity], driver: str
) -> None:
    long = DeviceValue(driver, Device(attributes=attributes, capacity=capacity))
    assert not long.short_texts
    expression = "[device.driver].all(x, [1].all(y, x != ''))"
    assert answer(expression, long, Turns({}, short_texts=True)) is None
    assert answer(expression, long) is True


def test_short_texts_are_all_that_the_api_server_takes() -> None:
    assert DEVICE.short_texts
    assert DeviceValue("d" * 63).short_texts


def test_a_text_in_a_text_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_writer, "SHORT_TEXT", 10)
    assert answer('"%s".format([device.driver]) == "d"') is True
    assert answer('"%s0123456789".format([device.driver]) == ""') is None


def test_the_texts_of_a_loop_together_have_little_room() -> None:
    """A list keeps them all. Each is as long as a text may be."""
    text = '"%s{}".format([x]) != ""'.format("a" * 999)
    few = ", ".join(["1"] * 60)
    many = ", ".join(["1"] * 70)
    assert answer(f"[{few}].all(x, {text}) && [1].all(x, {text})") is True
    assert answer(f"[{many}].all(x, {text})") is None
    assert answer(f"[{few}].all(x, {text}) && [{few}].all(x, {text})") is None


def test_a_template_of_very_many_clauses_is_left_to_the_exact_evaluation() -> None:
    def written(clauses: int) -> bool:
        template = f"'{'%s' * clauses}'.format([{', '.join(['device.driver'] * clauses)}]) == ''"
        checked = check(parse(template, ENVIRONMENT), ENVIRONMENT)
        return matcher(checked, _leave) is not _leave

    assert written(32)
    assert not written(33)


@pytest.mark.parametrize(
    "expression",
    [
        f'dyn(["{"a" * 512}", "{"b" * 513}"]).join() == ""',
        f'"{"a" * 512}".replace("a", "aaa") == ""',
        '("%s" + "").format([device.driver.replace("", "0123456789")]) == ""',
        f'("%s" + "").format(["{"a" * 1025}"]) == ""',
    ],
)
def test_no_function_makes_a_long_text(expression: str) -> None:
    long = DeviceValue("d" * 100)
    assert answer(expression, long) is None


def test_patterns_that_are_made_are_left_to_the_exact_evaluation() -> None:
    for function in ("matches", "find", "findAll"):
        expression = f'dyn(device.driver.{function}("a" + device.driver)) == 1'
        checked = check(parse(expression, ENVIRONMENT), ENVIRONMENT)
        assert matcher(checked, _leave) is _leave


def test_many_devices_do_not_use_up_what_one_may_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an exact evaluation begins the count of compared elements anew."""
    selector = compile_selector(f'{OWN}.links != ["a", "b"]')
    monkeypatch.setattr(work.current(), "_elements", 3)
    assert [selector.matches(DEVICE) for _ in range(4)] == [False] * 4


def test_the_deepest_templates_are_left_to_the_exact_evaluation() -> None:
    for pattern in ("'%s'.format([{}])", "['a'].transformMapEntry(x, y, {{y: {}}})", "[{}]"):
        expression = "device.driver"
        for _ in range(42):
            expression = pattern.format(expression)
        checked = check(parse(f"dyn({expression}) == 1", ENVIRONMENT), ENVIRONMENT)
        assert matcher(checked, _leave) is _leave


def test_a_wrong_sum_of_other_numbers_is_the_functions_own() -> None:
    assert answer("[1.5, 2.0].map(x, x).sum() == 3.5") is True
    with pytest.raises(EvaluationError):
        compile_selector(f"{OWN}.links.sum() == 1").matches(DEVICE)
    assert {"sum"} <= inline.STRICT
