# SPDX-License-Identifier: Apache-2.0
"""What the API server says of an expression, word for word, as recorded from its own code (`conformance/oracle`).

A line of verdicts.jsonl is an expression and its error, or null. Of a syntax error only the place is compared: the words
are those of a parser generator.
"""

import json
from pathlib import Path

import pytest

from dra_driver.cel.checking.check import check
from dra_driver.cel.errors import CompileError
from dra_driver.cel.syntax.parser import parse
from dra_driver.cel.versions import Environment, Features

ROWS = [
    json.loads(line) for line in (Path(__file__).parent / "verdicts.jsonl").read_text().splitlines()
]


def environment_of(row: dict) -> Environment:
    return Environment(
        row.get("minor", 37),
        row.get("kind", "StoredExpressions"),
        Features(*row.get("gates", (True, True))),
    )


def answer(row: dict) -> str | None:
    environment = environment_of(row)
    try:
        check(parse(row["expression"], environment), environment)
    except CompileError as error:
        return error.detail
    return None


def first_place(text: str | None) -> str:
    return "" if text is None else text.split(" ")[3]


@pytest.mark.parametrize(
    "row", [row for row in ROWS if "Syntax error" not in str(row["error"])], ids=str
)
def test_the_api_servers_words_are_said(row):
    assert answer(row) == row["error"]


@pytest.mark.parametrize(
    "row", [row for row in ROWS if "Syntax error" in str(row["error"])], ids=str
)
def test_a_syntax_error_points_at_the_column_that_the_api_server_points_at(row):
    assert first_place(answer(row)) == first_place(row["error"])


def test_all_kinds_of_verdicts_are_among_the_recorded():
    errors = " ".join(str(row["error"]) for row in ROWS)
    for message in (
        "None",
        "undeclared reference",
        "found no matching overload",
        "undefined field",
        "unexpected failed resolution",
        "does not support field selection",
        "cannot be range of a comprehension",
        "expected type",
        "is not a message type",
        "invalid duration argument",
        "invalid timestamp argument",
        "invalid matches argument",
        "error during formatting",
        "reserved identifier",
        "invalid int literal",
        "overwrites accumulator variable",
        "Syntax error",
    ):
        assert message in errors
