# SPDX-License-Identifier: Apache-2.0
"""From text to tree: what binds tighter, where nodes stand, and how much an expression may be nested."""

import sys
import threading

import pytest

from dra_driver.cel.errors import CompileError
from dra_driver.cel.syntax.ast import (
    Call,
    Constant,
    Expr,
    Identifier,
    ListLiteral,
    MapLiteral,
    Select,
    StructLiteral,
    Uint,
)
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.versions import Environment

NOW = Environment()


def shape(node: Expr) -> str:  # noqa: PLR0911 - one kind of node each
    """The tree with brackets around everything."""
    match node:
        case Constant():
            kind = "u" if isinstance(node.value, Uint) else ""
            return f"{node.value!r}{kind}"
        case Identifier():
            return node.name
        case Select():
            return f"{shape(node.operand)}.{node.field}"
        case Call():
            target = "" if node.target is None else f"{shape(node.target)}."
            return f"{target}{node.function}({', '.join(map(shape, node.args))})"
        case ListLiteral():
            marked = [
                ("?" if index in node.optional_indices else "") + shape(element)
                for index, element in enumerate(node.elements)
            ]
            return f"[{', '.join(marked)}]"
        case MapLiteral():
            entries = [
                f"{'?' * entry.optional}{shape(entry.key)}: {shape(entry.value)}"
                for entry in node.entries
            ]
            return f"{{{', '.join(entries)}}}"
        case StructLiteral():
            fields = [
                f"{'?' * field.optional}{field.name}: {shape(field.value)}" for field in node.fields
            ]
            return f"{node.type_name}{{{', '.join(fields)}}}"
    return "loop"


def tree(expression: str, environment: Environment = NOW) -> str:
    return shape(parse(expression, environment).root)


def refusal(expression: str, environment: Environment = NOW) -> CompileError:
    with pytest.raises(CompileError) as caught:
        parse(expression, environment)
    return caught.value


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("1 + 2 * 3", "_+_(1, _*_(2, 3))"),
        ("1 * 2 + 3", "_+_(_*_(1, 2), 3)"),
        ("1 - 2 - 3", "_-_(_-_(1, 2), 3)"),
        ("1 / 2 % 3", "_%_(_/_(1, 2), 3)"),
        ("a < b == c", "_==_(_<_(a, b), c)"),
        ("a in b != c", "_!=_(@in(a, b), c)"),
        ("a || b && c", "_||_(a, _&&_(b, c))"),
        ("a ? b : c ? d : e", "_?_:_(a, b, _?_:_(c, d, e))"),
        ("(a ? b : c) ? d : e", "_?_:_(_?_:_(a, b, c), d, e)"),
        ("!a.b", "!_(a.b)"),
        ("!!a", "a"),
        ("!!!a", "!_(a)"),
        ("-a", "-_(a)"),
        ("--a", "a"),
        ("-1", "-1"),
        ("- 1", "-1"),
        ("--1", "1"),
        ("---1", "-_(1)"),
        ("!-1", "!_(-1)"),
        ("1 - -1", "_-_(1, -1)"),
        ("-1.5", "-1.5"),
        ("-1u", "-_(1u)"),
        ("-1.f()", "-1.f()"),
        ("-0x10", "-16"),
        ("0xFFu", "255u"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("18446744073709551615u", "18446744073709551615u"),
        ("true", "True"),
        ("null", "None"),
        ("b'a'", "b'a'"),
        ("a.b.c", "a.b.c"),
        (".a.b", ".a.b"),
        ("a.?b", "_?._(a, 'b')"),
        ("a.`b-c`", "a.b-c"),
        ("a[0]", "_[_](a, 0)"),
        ("a[?0]", "_[?_](a, 0)"),
        ("a.f(b, c)", "a.f(b, c)"),
        ("f()", "f()"),
        (".f(a)", ".f(a)"),
        ("[a, ?b,]", "[a, ?b]"),
        ("[,]", "[]"),
        ("{a: b, ?c: d,}", "{a: b, ?c: d}"),
        ("{,}", "{}"),
        ("a.b{c: d, ?e: f,}", "a.b{c: d, ?e: f}"),
        (".a{}", ".a{}"),
        ("a.b{}.c", "a.b{}.c"),
        ("a ? b{} : {}", "_?_:_(a, b{}, {})"),
    ],
)
def test_what_binds_tighter(expression, wanted):
    assert tree(expression) == wanted


def test_long_chains_become_balanced_trees():
    assert tree("a && b && c && d") == "_&&_(_&&_(a, b), _&&_(c, d))"
    assert tree("a || b || c") == "_||_(_||_(a, b), c)"


def test_a_node_stands_at_its_operator():
    parsed = parse("  a.b(c)[d] +\n e", NOW)
    places = {
        (node.function if isinstance(node, Call) else node.name): parsed.offsets[node.id]
        for node in _nodes(parsed.root)
    }
    assert places == {"a": 2, "b": 5, "c": 6, "_[_]": 8, "d": 9, "_+_": 12, "e": 15}


def _nodes(node: Expr) -> list:
    if isinstance(node, Call):
        under = node.args if node.target is None else (node.target, *node.args)
        return [node, *[inner for part in under for inner in _nodes(part)]]
    return [node]


def test_macros_are_kept_as_they_were_written():
    parsed = parse("[1].all(x, x > 0)", NOW)
    assert [shape(call) for call in parsed.macros.values()] == ["[1].all(x, _>_(x, 0))"]


@pytest.mark.parametrize("word", ["as", "for", "namespace", "while"])
def test_reserved_words_are_no_names_but_may_be_fields(word):
    assert refusal(word).message.startswith(f"ERROR: <input>:1:1: reserved identifier: {word}")
    assert tree(f"a.{word}") == f"a.{word}"


def test_a_reserved_word_that_is_called_says_nothing_of_its_arguments():
    assert refusal("for(while)").message.count("ERROR") == 1


def test_all_that_can_be_read_is_reported():
    message = refusal("for + 99999999999999999999 + '\\ud800'").message
    assert [line for line in message.split("\n") if line.startswith("ERROR")] == [
        "ERROR: <input>:1:1: reserved identifier: for",
        "ERROR: <input>:1:7: invalid int literal",
        "ERROR: <input>:1:30: invalid unicode code point",
    ]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("9223372036854775808", "invalid int literal"),
        ("-9223372036854775809", "invalid int literal"),
        ("18446744073709551616u", "invalid uint literal"),
        ("1e999", "invalid double literal"),
        ("1" * 5000, "invalid int literal"),
        ("0x" + "f" * 5000, "invalid int literal"),
    ],
)
def test_a_number_that_is_too_large_is_refused(expression, message):
    assert message in refusal(expression).message


def test_zeros_in_front_are_no_digits():
    assert tree("0" * 5000 + "1") == "1"


MEMORY = 'device.capacity["d"].memory'
ATTRIBUTE = "device.attributes['d'].memory"
ANY = 'device.capacity["driver.example.com"].memory'
AMOUNT = 'quantity("40Gi")'
END = "Here the end of the expression is expected"
WRITTEN = f"A quantity is written {AMOUNT}, and compared by compareTo"


@pytest.mark.parametrize(
    ("expression", "column", "hint"),
    [
        ("a and b", 3, "'and' is written && in CEL."),
        ("not a", 5, "'not' is written ! in CEL."),
        ("a = b", 3, "Equality is written == in CEL."),
        ("f(a", 4, "Here ')' is expected, but the expression ends."),
        ("a.", 3, "Here a field name is expected, but the expression ends."),
        ("[1 2]", 4, "Here ',' or ']' is expected, but '2' stands there."),
        (f"{MEMORY} > 40Gi", 33, f"{WRITTEN}: {MEMORY}.compareTo({AMOUNT}) > 0"),
        (f"{ATTRIBUTE} == 40gb", 36, f"{WRITTEN}: {MEMORY}.compareTo({AMOUNT}) == 0"),
        ("memory >= 40 Gi", 14, f"{WRITTEN}: {ANY}.compareTo({AMOUNT}) >= 0"),
        ("f(40Gi)", 5, f"{WRITTEN}, isGreaterThan or isLessThan."),
        ("memory >= 0x40Gi", 15, f"{END}, but 'Gi' stands there."),
        ("memory >= 1e3Gi", 14, f"{END}, but 'Gi' stands there."),
        ("a < 40 b", 8, "Here the end of the expression is expected, but 'b' stands there."),
        ("", 1, "Here a value, a name, '(', '[' or '{' is expected, but the expression ends."),
    ],
)
def test_a_syntax_error_says_what_to_write(expression, column, hint):
    error = refusal(expression)
    assert (error.line, error.column, error.hint) == (1, column, hint)


def test_half_a_surrogate_pair_is_refused_with_its_place():
    error = refusal("'a\ud800'")
    assert (error.line, error.column) == (1, 3)
    assert "invalid UTF-8" in error.message
    str(error).encode()  # can be printed


def test_an_expression_beyond_all_limits_is_refused_unread():
    limit = "expression code point size exceeds limit: size: 100001, limit 100000"
    assert refusal("(" * 100_001).message == f"ERROR: <input>:-1:0: {limit}"


RECURSION = "ERROR: <input>:-1:0: expression recursion limit exceeded: 250"
HEIGHT = "ERROR: <input>:-1:0: max recursion depth exceeded"


@pytest.mark.parametrize(
    ("before", "inside", "after", "most", "message"),
    [
        ("(", "a", ")", 249, RECURSION),
        ("[", "", "]", 250, RECURSION),
        ("{1:", "1", "}", 249, RECURSION),
        ("f(", "a", ")", 249, RECURSION),
        ("a ? b : ", "c", "", 249, RECURSION),
        ("a < (", "b", ")", 124, RECURSION),
        ("1 * (", "1", ")", 124, RECURSION),
        ("1 + 1 * (", "1", ")", 83, RECURSION),
        ("", "a", ".b", 250, HEIGHT),
        ("", "a", "[0]", 250, HEIGHT),
        ("", "a", ".f()", 250, HEIGHT),
        ("", "a", ".?b", 250, HEIGHT),
        ("", "a", " + a", 250, HEIGHT),
        ("", "a", " < a", 250, HEIGHT),
        ("[a].all(x, ", "true", ")", 249, RECURSION),
        ("T{a: [", "", "]}", 125, RECURSION),
    ],
)
def test_what_can_be_nested_how_deeply(before, inside, after, most, message):
    def nested(count: int) -> str:
        return before * count + inside + after * count

    parse(nested(most), NOW)
    assert refusal(nested(most + 1)).message == message


@pytest.mark.parametrize(
    "expression",
    ["!" * 10_239 + "a", "-" * 10_239 + "a", "a" + "||a" * 3_413, "a" + "&&a" * 3_413],
)
def test_long_is_not_deep(expression):
    parse(expression, NOW)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 10_240,
        "[" * 10_240,
        "{" * 10_240,
        '"' * 10_240,
        "'''" * 3_413,
        "a?b:" * 2_560,
        "`" * 99,
    ],
)
def test_ten_kibibytes_of_anything_are_an_error_in_every_thread(expression):
    errors: list[CompileError] = []
    thread = threading.Thread(target=lambda: errors.append(refusal(expression)), daemon=True)
    thread.start()
    thread.join()
    assert [type(error) for error in errors] == [CompileError]


def test_room_for_deep_trees_is_made_but_never_taken():
    before = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(30_000)
        parse("a", NOW)
        assert sys.getrecursionlimit() == 30_000
    finally:
        sys.setrecursionlimit(before)


def test_opt_map_in_a_chain_doubles_until_it_is_refused():
    message = "ERROR: <input>:-1:0: the expression becomes more than 100000 nodes"
    assert refusal("a" + ".optMap(x, x)" * 30).message == message


def test_backquotes_came_with_1_37():
    assert "unsupported syntax: '`'" in refusal("a.`b`", Environment(minor=36)).message
