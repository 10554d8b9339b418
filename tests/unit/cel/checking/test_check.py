# SPDX-License-Identifier: Apache-2.0
"""What the checker finds out of an expression that makes sense; what it says of others is in test_verdicts.py."""

import pytest

from dra_driver.cel.checking.check import CheckedAst, Reference, check
from dra_driver.cel.errors import CompileError
from dra_driver.cel.syntax.ast import (
    Call,
    Comprehension,
    Constant,
    Identifier,
    ListLiteral,
    ParsedAst,
    Select,
    walk,
)
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.versions import Environment, Features

NOW = Environment()
NO_LISTS = Environment(kind="NewExpressions", features=Features(list_type_attributes=False))


def checked(expression: str, environment: Environment = NOW) -> CheckedAst:
    return check(parse(expression, environment), environment)


def refusal(expression: str, environment: Environment = NOW) -> CompileError:
    with pytest.raises(CompileError) as caught:
        checked(expression, environment)
    return caught.value


def overloads(expression: str) -> tuple[str, ...]:
    found = checked(expression)
    return found.references[found.parsed.root.id].overload_ids


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("device", "kubernetes.DRADevice"),
        ("device.driver", "string"),
        ("device.allowMultipleAllocations", "bool"),
        ("device.attributes['a']", "map(string, dyn)"),
        ("device.attributes['a'].b", "dyn"),
        ("device.capacity['a'].b", "kubernetes.Quantity"),
        ("device.?driver", "optional_type(string)"),
        ("optional.of(device).driver", "optional_type(string)"),
        ("has(device.driver)", "bool"),
        ("[]", "list(dyn)"),
        ("{}", "map(dyn, dyn)"),
        ("[1, 2]", "list(int)"),
        ("[[], [1]]", "list(list(int))"),
        ("{1u: b'a'}", "map(uint, bytes)"),
        ("null", "null_type"),
        ("type(1)", "type(int)"),
        ("int", "type(int)"),
        ("google.protobuf.NullValue.NULL_VALUE", "int"),
        ("google.protobuf.Int64Value{value: 1}", "wrapper(int)"),
        ("google.protobuf.Value{}", "dyn"),
        ("true ? 1 : dyn('a')", "dyn"),
        ("[1].map(x, string(x))", "list(string)"),
        ("{'a': 1}.map(k, k)", "list(string)"),
        ("{'a': 1}.transformList(k, v, v)", "list(int)"),
        ("[1.5].transformList(i, v, i)", "list(int)"),
        ("[].map(x, x)", "list(dyn)"),
        ("dyn([1]).map(x, x)", "list(dyn)"),
        ("cel.bind(x, [], cel.bind(y, x == [1], x))", "list(int)"),
        ("optional.of(1).optMap(x, 1.5)", "optional_type(double)"),
        ("dyn(1) + 1", "int"),
        ("dyn(1) + dyn(1)", "dyn"),
    ],
)
def test_what_an_expression_is(expression, result):
    assert checked(expression).result_type.declared == result


def test_attributes_are_any_where_they_cannot_be_lists():
    found = checked("device.attributes['a'].b", NO_LISTS)
    assert found.result_type.declared == "google.protobuf.Any"


def test_a_call_refers_to_all_overloads_that_fit():
    assert overloads("1 + 1") == ("add_int64",)
    assert overloads("device.attributes['a'].b < 1") == (
        "less_int64",
        "less_uint64_int64",
        "less_double_int64",
    )
    assert overloads("true && false") == ("logical_and",)
    assert overloads("device.?driver") == ("select_optional_field",)


def test_a_function_with_dots_loses_its_target():
    root = checked("optional.none()").parsed.root
    assert root == Call(root.id, "optional.none", ())
    root = checked(".lists.range(2)").parsed.root
    assert isinstance(root, Call)
    assert (root.function, root.target) == ("lists.range", None)


def test_a_type_with_dots_becomes_one_name():
    found = checked("google.protobuf.Timestamp")
    root = found.parsed.root
    assert root == Identifier(root.id, "google.protobuf.Timestamp")
    assert found.references[root.id] == Reference("google.protobuf.Timestamp")


def test_a_constant_with_dots_has_its_value():
    found = checked("google.protobuf.NullValue.NULL_VALUE")
    name = "google.protobuf.NullValue.NULL_VALUE"
    assert found.references[found.parsed.root.id] == Reference(name, value=0)


def names(found: CheckedAst) -> list[str]:
    return [node.name for node in walk(found.parsed.root) if isinstance(node, Identifier)]


def test_a_dot_in_front_leads_past_the_loops():
    expression = "[1].all(device, .device.driver == 'a' && device == 1)"
    assert ".device" in names(checked(expression))
    assert ".device" not in names(checked("[1].all(x, .device.driver == 'a')"))


def test_until_1_36_a_dot_in_front_meant_nothing_in_a_loop():
    expression = "['a'].all(device, .device == 'a')"
    assert checked(expression, Environment(minor=36)).result_type.declared == "bool"
    assert "no matching overload" in refusal(expression).message


def test_a_loops_name_hides_types():
    found = checked("[{'a': 1}].all(google, google.a == 1)")
    assert [node.field for node in walk(found.parsed.root) if isinstance(node, Select)] == ["a"]


def test_types_that_grow_beyond_bounds_are_refused():
    binds = "".join(f"cel.bind(v{i + 1}, {{v{i}: v{i}}}, " for i in range(20))
    expression = f"cel.bind(v0, {{1: 1}}, {binds}true{')' * 21}"
    message = "ERROR: <input>:-1:0: the types of the expression are too large to be compared"
    assert refusal(expression).message == message


@pytest.mark.parametrize(
    "expression",
    [
        "[1].map(x, true, " * 249 + "1" + ")" * 249,
        "[" * 250 + "]" * 250,
        "1" + " + 1" * 250,
        "true || true && !([1].map(x, true, " * 62 + "1" + ") == [])" * 62,
        "optional.of(1)" + ".optMap(x, x)" * 10,
    ],
)
def test_as_deep_as_can_be_parsed_can_be_checked(expression):
    checked(expression)


def test_a_loop_that_no_macro_writes_is_checked_too():
    parts = {name: Constant(number, True) for number, name in enumerate(_LOOP_PARTS, start=2)}
    loop = Comprehension(
        1, ListLiteral(9, ()), "x", "", "@result", **{**parts, "loop_condition": Constant(3, "a")}
    )
    with pytest.raises(CompileError, match="expected type 'bool' but found 'string'"):
        check(ParsedAst("loop", loop, dict.fromkeys(range(1, 10), 0)), NOW)


_LOOP_PARTS = ("accu_init", "loop_condition", "loop_step", "result")


def test_in_1_32_the_second_name_of_a_loop_over_dyn_had_no_type():
    expression = "dyn([1]).all(i, v, v == 1)"
    assert checked(expression).result_type.declared == "bool"
    assert "applied to '(, int)'" in refusal(expression, Environment(minor=32)).message
