# SPDX-License-Identifier: Apache-2.0
"""Parts of the evaluator that no expression shows alone, or only one that Kubernetes cannot finish."""

import operator

import pytest
import re2

from dra_driver.cel import golang, regex, values
from dra_driver.cel.checking.check import check
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.exact.evaluate import program
from dra_driver.cel.failures import Aborted, EvaluationError, PlanError
from dra_driver.cel.library import authorization, messages, operators, quantity, weburl
from dra_driver.cel.library.lists import FUNCTIONS as LIST_FUNCTIONS
from dra_driver.cel.library.quantity import Quantity, parse_quantity
from dra_driver.cel.library.weburl import UrlError, WebUrl
from dra_driver.cel.overloads import Dispatcher, Overload
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.values import Duration, Opaque, Timestamp
from dra_driver.cel.versions import Environment


class _Strange(Opaque, frozen=True, eq=False):
    type_name = "strange"
    go_name = "strange.Strange"


def _run(expression: str) -> object:
    environment = Environment()
    checked = check(parse(expression, environment), environment)
    return program(checked)(DeviceValue("d"))


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "0s"),
        (7, "7ns"),
        (1500, "1.5µs"),
        (15_000_000, "15ms"),
        (-61_500_000_000, "-1m1.5s"),
        (5 * 10**9, "5s"),
        (3600 * 10**9, "1h0m0s"),
    ],
)
def test_a_duration_is_written_as_go_does(nanos: int, text: str) -> None:
    assert str(Duration(nanos)) == text


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (Timestamp(0, 0), "1970-01-01 00:00:00 +0000 UTC"),
        (Timestamp(0, 500_000_000, 7200), "1970-01-01 02:00:00.5 +0200 +0200"),
        (Timestamp(0, 0, -9000), "1969-12-31 21:30:00 -0230 -0230"),
    ],
)
def test_a_timestamp_is_written_as_go_does(moment: Timestamp, text: str) -> None:
    assert str(moment) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1.5, None]}, "{a: [1.5, 0]}"),
        (b"ab", "[97 98]"),
        (True, "true"),
        (values.TypeValue("int"), "int"),
        (values.Optional(1), "optional(1)"),
        (values.NONE, "optional.none()"),
    ],
)
def test_a_value_in_an_error_is_written_as_go_does(value: object, text: str) -> None:
    assert values.text(value) == text


def test_a_number_that_is_not_finite_is_written_in_words() -> None:
    assert [golang.double_in_full(value) for value in (float("inf"), float("-inf"))] == [
        "+Inf",
        "-Inf",
    ]


def test_a_byte_that_is_no_utf8_is_quoted_as_a_byte() -> None:
    assert golang.quote("a\udcff\x07\x01\u200b\U000e0001") == r'"a\xff\a\x01\u200b\U000e0001"'


def test_an_opaque_value_must_say_when_it_is_equal() -> None:
    with pytest.raises(NotImplementedError):
        _Strange().equals(_Strange())


def test_values_without_an_order_cannot_be_compared() -> None:
    with pytest.raises(EvaluationError, match="no such overload"):
        values.compare(None, None)


def test_arithmetic_on_what_is_no_number_is_no_such_overload() -> None:
    remainder = operators._on_numbers(operator.mod, None)
    with pytest.raises(EvaluationError, match="no such overload"):
        remainder(1.5, 1.0)


def test_negation_of_what_cannot_be_negated_is_no_such_overload() -> None:
    with pytest.raises(EvaluationError, match="no such overload"):
        operators.negate("a")


def test_nobody_has_a_value_for_the_functions_of_the_authorizer() -> None:
    assert authorization.OVERLOADS
    with pytest.raises(AssertionError):
        authorization.OVERLOADS[0].implementation()


def test_keys_must_be_as_many_as_elements() -> None:
    sort_by = next(found for found in LIST_FUNCTIONS if found.name == "@sortByAssociatedKeys")
    with pytest.raises(EvaluationError, match="but got 2 and 1 elements respectively"):
        sort_by([1, 2], [1])


def test_a_function_of_one_overload_needs_no_choice() -> None:
    only = Dispatcher("twice", (Overload("twice", "twice_int", "int", lambda number: number * 2),))
    assert (only(4), only.overload("unknown")) == (8, only)


def test_messages_that_are_not_evaluated_are_refused() -> None:
    with pytest.raises(PlanError, match="are not supported in selectors"):
        messages.require("google.protobuf.Any")


def test_a_field_of_another_type_is_an_error() -> None:
    made = messages.make("google.protobuf.Int64Value", {"value": "a"})
    assert str(made).startswith("field type conversion error for google.protobuf.Int64Value.value")


@pytest.mark.parametrize("optional", ["{?'a': dyn(device.driver)}", "[?dyn(device.driver)]"])
def test_an_optional_part_must_be_an_optional(optional: str) -> None:
    with pytest.raises(EvaluationError, match="from non-optional value d"):
        _run(f"'%s'.format([dyn({optional})])")


def test_a_literal_with_a_key_that_cannot_be_hashed_is_refused() -> None:
    with pytest.raises(PlanError, match="hash of unhashable type"):
        _run("{dyn(b'a'): 1} == {}")


def test_a_list_that_would_not_fit_is_not_made() -> None:
    many: list[object] = [None] * operators.MAX_ELEMENTS
    with pytest.raises(Aborted, match="elements is not made"):
        operators.add(many, [1])


def test_no_quantity_is_as_large_as_its_exponent_may_be() -> None:
    with pytest.raises(EvaluationError, match="beyond every use"):
        parse_quantity("1234567890123456789e2147483647")


@pytest.mark.parametrize(("sign", "infinite"), [(1, float("inf")), (-1, float("-inf"))])
def test_a_quantity_beyond_all_doubles_is_infinite(sign: int, infinite: float) -> None:
    assert quantity._as_float(Quantity(sign * 10**400, 0, fast=False)) == infinite


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a:%zz#f", None),
        ("/%zz#f", 'parse "/%zz": invalid URL escape "%zz"'),
        ("/a#%zz", 'parse "/a#%zz": invalid URL escape "%zz"'),
        ("1:b", 'parse "1:b": first path segment in URL cannot contain colon'),
        ("a", None),
    ],
)
def test_a_url_that_is_no_request_may_be_refused_too(content: str, problem: str | None) -> None:
    found: str | None = None
    try:
        weburl.parse(content)
    except UrlError as error:
        found = str(error)
    assert found == problem


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (WebUrl(path="a:b"), "./a:b"),
        (WebUrl(path="b", host="h"), "//h/b"),
        (WebUrl(fragment="a b", raw_fragment="a b"), "#a%20b"),
        (WebUrl(fragment="a b", raw_fragment="a%20b"), "#a%20b"),
        (WebUrl(path="*"), "*"),
    ],
)
def test_a_url_is_written_so_that_it_can_be_read_again(url: WebUrl, text: str) -> None:
    assert str(url) == text


def test_a_query_with_too_many_parameters_has_none() -> None:
    assert WebUrl(query="a&" * 10_000).parameters() == {}


def test_an_empty_match_does_not_count_between_the_bytes_of_a_character() -> None:
    assert regex.compile_pattern("").find_all("é\udcff") == ["", "", ""]


def test_an_error_without_a_word_in_go_keeps_its_own() -> None:
    assert regex._in_go(re2.error("pattern too large"), "a") == "pattern too large"
