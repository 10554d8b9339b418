# SPDX-License-Identifier: Apache-2.0
"""A part of an expression as text: it parses to the same again."""

import pytest
from msgspec.structs import replace

from dra_driver.cel.syntax.ast import (
    Comprehension,
    Constant,
    Identifier,
    ParsedAst,
    StructField,
    StructLiteral,
)
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.syntax.unparse import literal, unparse
from dra_driver.cel.versions import Environment

SAME = [
    'device.driver == "x"',
    'has(device.attributes["d"].model) && device.attributes["d"].model == "A"',
    'device.attributes["d"].?model.orValue("x") == "y"',
    'device.attributes["d"][?"model"].hasValue()',
    "(1 + 2) * 3 == 9",
    "1 + 2 * 3 - 4 / 2 % 5 == 0",
    "1 - (2 - 3) == 2",
    "!(a || b) && (c || d)",
    "a ? b : c ? d : e",
    "(a ? b : c) ? d : e",
    "-(1 + 2) < -3",
    '"a" in ["a", ?b]',
    '{"a": 1, ?"b": c}',
    "[1, 2].exists(x, x > 1)",
    "[1, 2].map(x, x * 2).size() == 2",
    "cel.bind(v, 1, v == 1)",
    '(-1).a == [1u, 2.5, null, true, false, b"\\x61"]',
    'size("a") > 0',
    "a >= 550.90 && a < -1.50 || [2.50e3, 1e2, .5]",
    'quantity("1").compareTo(quantity("2")) <= 0',
]


@pytest.mark.parametrize("expression", SAME)
def test_what_is_written_as_people_write_it_comes_back(expression: str) -> None:
    assert unparse(parse(expression, Environment())) == expression


def test_needless_parentheses_and_spaces_are_gone() -> None:
    assert (
        unparse(parse("((  1+2 )) ==  3&&(\"a\")!='b'", Environment()))
        == '1 + 2 == 3 && "a" != "b"'
    )


def test_a_part_is_written_alone() -> None:
    parsed = parse("a == 1 && (b || c)", Environment())
    parts = [unparse(parsed, part) for part in parsed.root.args]
    assert parts == ["a == 1", "b || c"]


def test_a_double_that_was_changed_is_written_anew() -> None:
    parsed = parse("1.50", Environment())
    assert unparse(parsed, replace(parsed.root, value=2.5)) == "2.5"
    assert unparse(parsed, replace(parsed.root, id=0)) == "1.5"


def test_literals_are_cel() -> None:
    written = [literal(value) for value in (None, True, 1, 1.5, "é\n", b"a\x00")]
    assert written == ["null", "true", "1", "1.5", '"é\\n"', 'b"\\x61\\x00"']


def test_what_nobody_can_write_is_shown_nevertheless() -> None:
    one = Constant(2, 1)
    fold = Comprehension(1, Identifier(3, "list"), "x", "", "r", one, one, one, one)
    fields = (StructField(5, "a", one), StructField(6, "b", one, optional=True))
    made = StructLiteral(4, "Some", fields)
    parsed = ParsedAst("", fold, {})
    assert [unparse(parsed, part) for part in (fold, made)] == [
        "list.fold(…)",
        "Some{a: 1, ?b: 1}",
    ]
