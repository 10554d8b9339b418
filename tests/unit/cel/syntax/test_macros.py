# SPDX-License-Identifier: Apache-2.0
"""What a macro call stands for, written as the expression that cel-go makes of it."""

import pytest

from dra_driver.cel.errors import CompileError
from dra_driver.cel.syntax.ast import (
    Call,
    Comprehension,
    Constant,
    Expr,
    Identifier,
    ListLiteral,
    MapLiteral,
    Select,
    StructLiteral,
    walk,
)
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.versions import Environment

NOW = Environment()


def shape(node: Expr) -> str:  # noqa: PLR0911 - one kind of node each
    match node:
        case Constant():
            return repr(node.value)
        case Identifier():
            return node.name.replace("@result", "@")
        case Select():
            text = f"{shape(node.operand)}.{node.field}"
            return f"has({text})" if node.test_only else text
        case Call():
            target = "" if node.target is None else f"{shape(node.target)}."
            return f"{target}{node.function}({', '.join(map(shape, node.args))})"
        case ListLiteral():
            return f"[{', '.join(map(shape, node.elements))}]"
        case MapLiteral():
            entries = [f"{shape(entry.key)}: {shape(entry.value)}" for entry in node.entries]
            return f"{{{', '.join(entries)}}}"
        case StructLiteral():
            fields = [f"{field.name}: {shape(field.value)}" for field in node.fields]
            return f"{node.type_name}{{{', '.join(fields)}}}"
        case Comprehension():
            names = f"{node.iter_var}, {node.iter_var2}".removesuffix(", ")
            fold = (node.accu_init, node.loop_condition, node.loop_step, node.result)
            parts = " | ".join(map(shape, fold))
            accumulator = node.accu_var.replace("@result", "@")
            return f"for {names} in {shape(node.iter_range)}: {accumulator} = {parts}"


def written_out(expression: str, environment: Environment = NOW) -> str:
    return shape(parse(expression, environment).root)


def refusal(expression: str, environment: Environment = NOW) -> str:
    with pytest.raises(CompileError) as caught:
        parse(expression, environment)
    return caught.value.message.split("\n")[0].removeprefix("ERROR: <input>:")


TRUE = "@not_strictly_false(@)"
FALSE = "@not_strictly_false(!_(@))"


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("has(a.b)", "has(a.b)"),
        ("has(has(a.b))", "has(a.b)"),
        ("a.all(x, b)", f"for x in a: @ = True | {TRUE} | _&&_(@, b) | @"),
        ("a.all(x, y, b)", f"for x, y in a: @ = True | {TRUE} | _&&_(@, b) | @"),
        ("a.exists(x, b)", f"for x in a: @ = False | {FALSE} | _||_(@, b) | @"),
        ("a.exists(x, y, b)", f"for x, y in a: @ = False | {FALSE} | _||_(@, b) | @"),
        (
            "a.exists_one(x, b)",
            "for x in a: @ = 0 | True | _?_:_(b, _+_(@, 1), @) | _==_(@, 1)",
        ),
        (
            "a.existsOne(x, y, b)",
            "for x, y in a: @ = 0 | True | _?_:_(b, _+_(@, 1), @) | _==_(@, 1)",
        ),
        ("a.map(x, b)", "for x in a: @ = [] | True | _+_(@, [b]) | @"),
        ("a.map(x, b, c)", "for x in a: @ = [] | True | _?_:_(b, _+_(@, [c]), @) | @"),
        ("a.filter(x, b)", "for x in a: @ = [] | True | _?_:_(b, _+_(@, [x]), @) | @"),
        ("a.transformList(x, y, b)", "for x, y in a: @ = [] | True | _+_(@, [b]) | @"),
        (
            "a.transformList(x, y, b, c)",
            "for x, y in a: @ = [] | True | _?_:_(b, _+_(@, [c]), @) | @",
        ),
        (
            "a.transformMap(x, y, b)",
            "for x, y in a: @ = {} | True | cel.@mapInsert(@, x, b) | @",
        ),
        (
            "a.transformMapEntry(x, y, b, c)",
            "for x, y in a: @ = {} | True | _?_:_(b, cel.@mapInsert(@, c), @) | @",
        ),
        ("cel.bind(x, a, b)", "for #unused in []: x = a | False | x | b"),
        (
            "a.optMap(x, b)",
            (
                "_?_:_(a.hasValue(), optional.of(for #unused in []: x = a.value() | False | x | b),"
                " optional.none())"
            ),
        ),
        (
            "a.optFlatMap(x, b)",
            (
                "_?_:_(a.hasValue(), for #unused in []: x = a.value() | False | x | b,"
                " optional.none())"
            ),
        ),
        (
            "a.sortBy(x, b)",
            (
                "for #unused in []: @__sortBy_input__ = a | False | @__sortBy_input__ |"
                " @__sortBy_input__.@sortByAssociatedKeys("
                "for x in @__sortBy_input__: @ = [] | True | _+_(@, [b]) | @)"
            ),
        ),
        ("foo.bind(x, a, b)", "foo.bind(x, a, b)"),
        ("has(a, b)", "has(a, b)"),
        ("all(x, b)", "all(x, b)"),
    ],
)
def test_a_macro_is_written_out(expression, wanted):
    assert written_out(expression) == wanted


@pytest.mark.parametrize(
    "target",
    ["a.b", "f(a)", "a.f(b)", "[a, 1]", "{a: b}", "T{a: b}", "a.all(x, b)", "a[?0]", "{?1: b}"],
)
def test_a_target_that_is_written_twice_is_copied_with_ids_of_its_own(target):
    parsed = parse(f"{target}.optMap(x, x)", NOW)
    nodes = [node.id for node in walk(parsed.root)]
    assert len(nodes) == len(set(nodes))
    once = shape(parse(target, NOW).root)
    assert shape(parsed.root).count(once) == 2


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("has(a)", "1:5: invalid argument to has() macro"),
        ("[1].all(1, b)", "1:9: argument must be a simple name"),
        ("[1].all(x, 1, b)", "1:12: argument must be a simple name"),
        ("[1].all(x, x, b)", "1:12: duplicate variable name: x"),
        ("[1].map(1, b)", "1:9: argument is not an identifier"),
        ("[1].filter(x.y, b)", "1:13: argument is not an identifier"),
        ("cel.bind(1, b, c)", "1:10: cel.bind() variable names must be simple identifiers"),
        ("a.optMap(1, b)", "1:10: optMap() variable name must be a simple identifier"),
        ("a.optFlatMap(1, b)", "1:14: optFlatMap() variable name must be a simple identifier"),
        (
            "[1].all(__result__, b)",
            "1:9: iteration variable overwrites accumulator variable",
        ),
        (
            "[1].all(x, __result__, b)",
            "1:12: iteration variable overwrites accumulator variable",
        ),
        (
            "'a'.sortBy(x, b)",
            (
                "1:1: sortBy can only be applied to a list, identifier, comprehension, call or select"
                " expression"
            ),
        ),
    ],
)
def test_arguments_that_a_macro_cannot_have(expression, message):
    assert refusal(expression) == message


def test_in_1_32_the_accumulator_had_a_name_that_loops_could_take():
    old = Environment(minor=32)
    assert "__result__ = []" in written_out("[1].map(__result__, 1)", old)
    assert "overwrites" in refusal("[1].all(x, __result__, true)", old)


def test_macros_came_with_releases():
    assert written_out("a.sortBy(x, b)", Environment(minor=33)) == "a.sortBy(x, b)"
    new_in_1_32 = Environment(minor=32, kind="NewExpressions")
    assert written_out("a.all(x, y, b)", new_in_1_32) == "a.all(x, y, b)"
