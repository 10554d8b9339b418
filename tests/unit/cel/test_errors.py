# SPDX-License-Identifier: Apache-2.0
"""Errors are shown as the API server shows them."""

from dra_driver.cel.errors import CompileError, Issue, error_of


def test_a_caret_stands_below_the_character():
    error = error_of("a +\n\tb.c", [Issue("wrong", 6, "Write d.")])
    assert error.message == "ERROR: <input>:2:3: wrong\n |  b.c\n | ..^"
    assert error.detail == f"compilation failed: {error.message}"
    assert (error.line, error.column, error.hint) == (2, 3, "Write d.")
    assert str(error) == f"{error.detail}\nWrite d."


def test_marks_are_as_wide_as_the_characters():
    assert error_of("日b本", [Issue("wrong", 2)]).message.endswith("\n | 日b本\n | \uff0e.\uff3e")


def test_at_the_end_the_caret_stands_behind_the_last_character():
    assert error_of("ab", [Issue("wrong", 2)]).message.endswith("\n | ab\n | ..^")


def test_issues_are_sorted_by_place_and_those_without_come_first():
    error = error_of("a b", [Issue("third", 2), Issue("second", 0), Issue("first", None)])
    assert [line for line in error.message.split("\n") if line.startswith("ERROR")] == [
        "ERROR: <input>:-1:0: first",
        "ERROR: <input>:1:1: second",
        "ERROR: <input>:1:3: third",
    ]
    assert (error.line, error.column) == (0, 0)


def test_a_hundred_issues_are_enough():
    error = error_of("a" * 150, [Issue("wrong", place) for place in range(150)])
    assert error.message.count("ERROR") == 100
    assert error.message.endswith("\n50 more errors were truncated")


def test_the_first_hint_that_says_something_is_given():
    issues = [Issue("one", 0), Issue("two", 1, lambda: "Write c."), Issue("three", 2, "No.")]
    assert error_of("abc", issues).hint == "Write c."


def test_a_line_too_long_to_show_is_not_shown():
    assert error_of("é" * 9000, [Issue("wrong", 0)]).message == "ERROR: <input>:1:1: wrong"


def test_an_error_without_a_place_is_its_message():
    error = CompileError("must evaluate to bool")
    assert (str(error), error.detail, error.line) == ("must evaluate to bool",) * 2 + (0,)
