# SPDX-License-Identifier: Apache-2.0
"""From the text of an expression to answers."""

import pytest

from dra_driver.cel.compile import (
    compile_attribute,
    compile_selector,
)
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.errors import CompileError
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.versions import MAX_COST, Environment, Features
from dra_driver.model.api.resource_slice import Device, DeviceAttribute

DEVICE = DeviceValue("d", Device(attributes={"a": DeviceAttribute(string_value="x")}))
NEW = Environment(kind="NewExpressions")
NO_LISTS = Features(list_type_attributes=False)


def refusal(expression: str, environment: Environment) -> str:
    with pytest.raises(CompileError) as raised:
        compile_selector(expression, environment)
    return raised.value.detail


def test_a_selector_knows_its_cost_and_answers() -> None:
    selector = compile_selector('device.attributes["d"].a == "x"')
    assert (selector.cost, selector.matches(DEVICE)) == (5, True)
    assert selector.cost <= MAX_COST


def test_an_error_of_one_side_is_absorbed_by_the_other() -> None:
    selector = compile_selector('device.attributes["d"].b == "x" || device.driver == "d"')
    assert selector.matches(DEVICE)


def test_an_expression_that_fails_on_a_device_says_why() -> None:
    selector = compile_selector('device.attributes["d"].b == "x"')
    with pytest.raises(EvaluationError, match=r"^no such key: b$"):
        selector.matches(DEVICE)


def test_an_answer_that_is_no_bool_is_an_error() -> None:
    selector = compile_selector('device.attributes["d"].a')
    with pytest.raises(EvaluationError, match=r"^CEL result of type string could not be converted"):
        selector.matches(DEVICE)


def test_an_attribute_that_cannot_be_converted_fails_every_expression() -> None:
    broken = DeviceValue("d", Device(attributes={"a": DeviceAttribute()}))
    for expression in ("true", "lists.range(1000).all(x, x < 1000)"):
        with pytest.raises(EvaluationError, match=r"^attribute a: unsupported attribute value$"):
            compile_selector(expression).matches(broken)


def test_an_expression_that_may_be_expensive_is_counted_while_it_runs() -> None:
    selector = compile_selector("lists.range(999999).sum() > 0")
    assert selector.cost > MAX_COST
    with pytest.raises(EvaluationError, match="actual cost limit exceeded"):
        selector.matches(DEVICE)


def test_the_estimate_does_not_see_all_that_is_counted() -> None:
    selector = compile_selector(
        'lists.range(998750).size() >= 0 && lists.range(30).all(x, {"a": x}.a == x && string(x) != "")'
    )
    assert selector.cost == 999_975
    with pytest.raises(EvaluationError, match="actual cost limit exceeded"):
        selector.matches(DEVICE)


@pytest.mark.parametrize(
    ("expression", "environment", "message"),
    [
        ("1", NEW, "must evaluate to bool or the unknown type, not int"),
        (
            'device.attributes["d"].?a',
            Environment(),
            "must evaluate to bool or the unknown type, not optional_type(dyn)",
        ),
        (
            "dyn(1)",
            Environment(35),
            "must evaluate to bool or the unknown type, not dyn",
        ),
        (
            'int("a") == 1',
            Environment(),
            "program instantiation failed: type conversion error from 'string' to 'int'",
        ),
    ],
)
def test_what_is_no_selector_is_refused_in_upstreams_words(
    expression: str, environment: Environment, message: str
) -> None:
    assert refusal(expression, environment) == message


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ('device.capacity["d"].memory.compareTo(quantity("1"))', "a.compareTo(b) >= 0"),
        ('device.attributes["d"].?a', ".orValue(false)"),
        ("device.attributes.model", "First comes the domain"),
        ("device.driver", "compare the value with something"),
    ],
)
def test_a_result_that_is_no_bool_is_told_with_what_to_write(expression: str, said: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_selector(expression, NEW)
    assert said in caught.value.hint


@pytest.mark.parametrize(
    ("minor", "features", "kind"),
    [
        (37, Features(), "StoredExpressions"),
        (37, NO_LISTS, "NewExpressions"),
        (36, Features(), "StoredExpressions"),
        (36, NO_LISTS, "StoredExpressions"),
        (32, Features(), "NewExpressions"),
    ],
)
def test_an_attribute_alone_is_a_selector_on_every_release(
    minor: int, features: Features, kind: str
) -> None:
    environment = Environment(minor, kind, features)  # type: ignore[arg-type]
    selector = compile_selector('device.attributes["d"].flag', environment)
    assert selector.matches(
        DeviceValue("d", Device(attributes={"flag": DeviceAttribute(bool_value=True)}))
    )


@pytest.mark.parametrize(
    ("expression", "attribute"),
    [
        ('device.attributes["d"].a + "y"', DeviceAttribute(string_value="xy")),
        ("[1, 2]", DeviceAttribute(int_values=[1, 2])),
        ('semver("1.2.3")', DeviceAttribute(version_value="1.2.3")),
        ('device.attributes["d"].a', DeviceAttribute(string_value="x")),
    ],
)
def test_an_expression_may_compute_an_attribute(
    expression: str, attribute: DeviceAttribute
) -> None:
    assert compile_attribute(expression).value(DEVICE) == attribute


@pytest.mark.parametrize(
    ("expression", "environment", "message"),
    [
        (
            "1.5",
            Environment(),
            (
                "must evaluate to a primitive scalar (string, integer, boolean, semver)"
                " or a list of these scalars, not double"
            ),
        ),
        (
            "[1]",
            Environment(kind="NewExpressions", features=NO_LISTS),
            "must evaluate to a primitive scalar (string, integer, boolean, semver), not list(int)",
        ),
        (
            "[[1]]",
            NEW,
            (
                "must evaluate to a primitive scalar (string, integer, boolean, semver)"
                " or a list of these scalars, not list(list(int))"
            ),
        ),
    ],
)
def test_other_types_are_no_attributes(
    expression: str, environment: Environment, message: str
) -> None:
    with pytest.raises(CompileError) as raised:
        compile_attribute(expression, environment)
    assert raised.value.detail == message


def test_the_cost_of_a_derived_attribute_is_that_of_a_selector_with_the_same_work() -> None:
    assert compile_attribute("device.driver").cost == 2
    assert (
        compile_attribute('device.driver == "a"').cost
        == compile_selector('device.driver == "a"').cost
    )
