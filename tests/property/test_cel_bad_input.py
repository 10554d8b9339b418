# SPDX-License-Identifier: Apache-2.0
"""Whatever somebody writes as a selector: an answer or an error with a place, and nothing else.

Bounded time is held by the tests' own limit; bounded memory is measured.
"""

import threading
import tracemalloc

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from dra_driver.cel.compile import Selector, compile_selector
from dra_driver.cel.device import DeviceValue
from dra_driver.cel.errors import CompileError
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.versions import OLDEST, Environment
from dra_driver.model.api.resource_slice import Device, DeviceAttribute, DeviceCapacity
from tests.support.examples import examples

DEVICE = DeviceValue(
    "dra.example.com",
    Device(
        attributes={
            "name": DeviceAttribute(string_value="a" * 64),
            "index": DeviceAttribute(int_value=9223372036854775807),
            "version": DeviceAttribute(version_value="1.2.3"),
            "names": DeviceAttribute(string_values=["fish", "bird"]),
        },
        capacity={"memory": DeviceCapacity(value="9223372036854775807Ei")},
    ),
)
PIECES = (
    *(
        "device",
        ".",
        "attributes",
        "capacity",
        '["dra.example.com"]',
        "name",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ":",
        "?",
    ),
    *(
        "&&",
        "||",
        "!",
        "-",
        "+",
        "*",
        "/",
        "%",
        "==",
        "!=",
        "<",
        ">=",
        "in",
        " ",
        "\n",
        "//",
        "'",
        '"',
        "'''",
        "r'",
        "b'",
    ),
    *(
        "\\",
        "\\u12",
        "\\xff",
        "0",
        "1",
        "9223372036854775808",
        "0x",
        "1e",
        "1e999",
        "2.5",
        "u",
        "true",
        "null",
        "x",
        "@",
        "$",
    ),
    *(
        ".all(x, ",
        ".exists(x, ",
        ".map(x, ",
        ".filter(x, ",
        "has(",
        "cel.bind(x, ",
        ".?",
        "[?",
        "optional.of(",
        ".orValue(",
    ),
    *(
        "quantity(",
        "semver(",
        '"1Gi"',
        ".matches(",
        "'(a+)+$'",
        "'('",
        ".format([",
        "duration(",
        "timestamp(",
        "Foo{",
        "`",
    ),
    *(
        "\ud800",
        "\udfff",
        "\x00",
        "\u2028",
        "é",
        "\U0001f600",
        "as",
        "if",
        "int",
        "dyn(",
        "type(",
        "lists.range(",
        "size(",
    ),
)
A = 'device.attributes["dra.example.com"].name'
# The parser raises Python's recursion limit once, where it is first used: before hypothesis looks at it.
compile_selector("true")
MAX_LENGTH = (
    10 * 1024
)  # The API takes no longer expression, in bytes (CELSelectorExpressionMaxLength).
WORST = {
    "nothing": "",
    "spaces": " " * MAX_LENGTH,
    "parentheses": "(" * MAX_LENGTH,
    "brackets": "[" * MAX_LENGTH,
    "braces": "{" * MAX_LENGTH,
    "closed parentheses": "(" * 5000 + "true" + ")" * 5000,
    "negations": "!" * (MAX_LENGTH - 4) + "true",
    "minus signs": "-" * (MAX_LENGTH - 1) + "1",
    "quotes": "'" * MAX_LENGTH,
    "conditionals": "true ? " * 1500,
    "nested conditionals": "true ? true : " * 700 + "true",
    "chain of or": " || ".join(["true"] * 1500),
    "chain of plus": " + ".join(["1"] * 2500) + " > 0",
    "chain of members": "device" + ".a" * 5000,
    "chain of calls": "device.driver" + ".trim()" * 1400 + " == ''",
    "chain of indices": "device.attributes" + '["a"]' * 2000,
    "macros": "[1].all(x, " * 900 + "true" + ")" * 900,
    "binds": "cel.bind(x, [x, x], " * 400 + "true" + ")" * 400,
    "doubling": "cel.bind(x, 'ab', " + "cel.bind(x, x + x, " * 60 + "x == ''" + ")" * 61,
    "doubling lists": "cel.bind(x, [1, 2], " + "cel.bind(x, x + x, " * 60 + "x == []" + ")" * 61,
    "nested loops": "".join(f"lists.range(1000).all(x{n}, " for n in range(20)) + "true" + ")" * 20,
    "a long range": "lists.range(999999999999).size() == 1",
    "negative range": "lists.range(-1).size() == 1",
    "overflow of a literal": "99999999999999999999999999 > 1",
    "overflow of a sum": f"{A.replace('name', 'index')} + 1 > 0",
    "overflow of a negation": "-(-9223372036854775808) > 0",
    "overflow of a product": "4294967296 * 4294967296 > 0",
    "overflow of an exponent": "1e999999999 > 1.0",
    "a long number": "1" * 10_000 + " > 1",
    "a long hexadecimal number": "0x" + "f" * 10_000 + " > 1",
    "catastrophic pattern": f'{A}.matches("(a+)+$b")',
    "catastrophic alternatives": f'{A}.matches("(a|a|aa)*b")',
    "repeated repeats": f'{A}.matches("((a{{0,100}}){{0,100}}){{0,100}}")',
    "pattern of the device": f"{A}.matches({A} + '(a*)*b')",
    "long pattern": f"{A}.matches('{'(a?)' * 1500}b')",
    "unclosed pattern": f'{A}.matches("[")',
    "replacement that grows": "'a'.replace('', 'bbbbbbbb').replace('', 'cccccccc').replace('', 'dddddddd') == ''",
    "precision": "'%.999999999f'.format([1.0]) == ''",
    "arguments of format": "'" + "%s" * 5000 + "'.format([]) == ''",
    "quantity": "quantity('" + "9" * 10_000 + "').isInteger()",
    "zeros of what is no quantity": "isQuantity('" + "0" * 9000 + "x')",
    "letters of what is no quantity": "isQuantity('1" + "E" * 9000 + "!')",
    "zeros before an int": "int('" + "0" * 9000 + "1') == 1",
    "zeros before a precision": "'%." + "0" * 9000 + "2f'.format([1.0]) == '1.00'",
    "year before the first": "timestamp('0000-01-01T00:00:00Z') == timestamp(0)",
    "shared lists compared": "cel.bind(x, [1], "
    + "cel.bind(x, [x, x], " * 40
    + "x == x"
    + ")" * 41,
    "shared lists searched": "cel.bind(x, [1], "
    + "cel.bind(x, [x, x], " * 40
    + "x in [x]"
    + ")" * 41,
    "shared lists written": "cel.bind(x, [1], "
    + "cel.bind(x, [x, x], " * 40
    + "'%s'.format([x]) == ''"
    + ")" * 41,
    "shared maps written": "cel.bind(x, {1: 1}, "
    + "cel.bind(x, {1: x, 2: x}, " * 40
    + "'%s'.format([x]) == ''"
    + ")" * 41,
    "much written": "'" + "%.9999999e" * 900 + "'.format([" + ",".join(["1.0"] * 900) + "]) == ''",
    "exponent of a quantity": "quantity('1e999999999').isInteger()",
    "version": "semver('" + "1." * 5000 + "').major() == 1",
    "duration": "duration('" + "9" * 10_000 + "s') == duration('1s')",
    "fraction of a duration": "duration('0." + "0" * 5000 + "1" * 5000 + "s') == duration('0')",
    "time zone": "timestamp(0).getHours('" + "9" * 10_000 + ":00') == 1",
    "port": "url('http://a:" + "9" * 10_000 + "').getPort() == ''",
    "prefix": "cidr('1.2.3.4/" + "9" * 10_000 + "').prefixLength() == 1",
    "int of a long text": "int('" + "9" * 10_000 + "') == 1",
    "double of a long text": "double('" + "9" * 10_000 + "') == 1.0",
    "repeat count": "'a'.matches('a{" + "9" * 10_000 + "}')",
    "deep flatten": "[[1]].flatten(9223372036854775807).size() == 1",
    "error message of a long line": "x" * MAX_LENGTH,
    "many errors": "[" + ",".join(f"x{n}" for n in range(2000)) + "]",
    "lone surrogate": "'\ud800' == ''",
    "lone surrogate outside": "\udcff == 1",
    "zero byte": "true\x00",
}
ENDLESS = ("nested loops", *(name for name in WORST if name.startswith("shared ")))
"""They run to a limit, for seconds."""


def ask(
    expression: str, environment: Environment | None = None
) -> Selector | CompileError | bool | EvaluationError:
    """What comes of it; anything but an answer or one of the two errors is raised."""
    try:
        selector = compile_selector(expression, environment or Environment())
    except CompileError as error:
        return error
    try:
        return selector.matches(DEVICE)
    except EvaluationError as error:
        return error


def has_a_place(error: CompileError, expression: str) -> bool:
    """A place in the expression, or just behind it; 0 if it is about the expression as a whole."""
    lines = expression.split("\n")
    if error.line == 0:
        return error.column == 0
    return error.line <= len(lines) and 1 <= error.column <= len(lines[error.line - 1]) + 1


def ask_on_a_thread(*expressions: str) -> list[object]:
    """The answers, found on the stack of a thread, as the allocator's are."""
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.extend(map(ask, expressions)))
    thread.start()
    thread.join()
    return answers


def check(expression: str, environment: Environment | None = None) -> None:
    check_answer(ask(expression, environment), expression)


def check_answer(answer: object, expression: str) -> None:
    if isinstance(answer, CompileError):
        assert answer.message
        assert has_a_place(answer, expression)
    elif isinstance(answer, EvaluationError):
        assert str(answer)
    else:
        assert isinstance(answer, bool)


@pytest.mark.parametrize("name", WORST)
def test_the_worst_that_comes_to_mind_is_answered(name: str) -> None:
    (answer,) = ask_on_a_thread(WORST[name])
    check_answer(answer, WORST[name])
    if name.startswith("shared"):
        assert str(answer) == "more than 2000000 elements would have to be looked at"


@pytest.mark.parametrize(
    ("name", "column"), [("closed parentheses", 251), ("chain of plus", 1007), ("spaces", 10241)]
)
def test_what_is_too_deep_is_shown_where_that_was_noticed(name: str, column: int) -> None:
    answer = ask(WORST[name])
    assert isinstance(answer, CompileError)
    assert (answer.line, answer.column) == (1, column)


def test_an_expression_of_nothing_is_refused_at_its_first_character() -> None:
    answer = ask("")
    assert isinstance(answer, CompileError)
    assert (answer.line, answer.column) == (1, 1)


@pytest.mark.parametrize("expression", ["'\ud800' == ''", "\udcff == 1", "true // \udfff"])
def test_what_is_no_unicode_is_refused(expression: str) -> None:
    assert isinstance(ask(expression), CompileError)


@pytest.mark.parametrize(
    "name", ["doubling", "doubling lists", "a long range", "binds", "many errors", "much written"]
)
def test_what_would_grow_without_bounds_stays_small(name: str) -> None:
    tracemalloc.start()
    try:
        ask(WORST[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200 * 1024 * 1024


def test_the_stack_of_a_thread_is_deep_enough() -> None:
    # One after another; those that only end at a limit have a thread of their own above.
    quick = [expression for name, expression in WORST.items() if name not in ENDLESS]
    assert len(ask_on_a_thread(*quick)) == len(quick) > 50


@examples(300, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet=st.characters(codec=None, categories=None), max_size=60))
def test_any_text_gets_an_answer_or_an_error_with_a_place(expression: str) -> None:
    check(expression)


@examples(400, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(PIECES), max_size=25), st.integers(OLDEST, 37))
def test_any_pieces_of_the_language_get_an_answer_or_an_error_with_a_place(
    pieces: list[str], minor: int
) -> None:
    check("".join(pieces), Environment(minor=minor))


@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(PIECES), st.sampled_from(PIECES), st.integers(1, 5000))
def test_any_piece_many_times_gets_an_answer_or_an_error_with_a_place(
    piece: str, end: str, times: int
) -> None:
    check((piece * times)[: MAX_LENGTH - len(end)] + end)
