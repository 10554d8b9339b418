# SPDX-License-Identifier: Apache-2.0
"""The door for other people's vectors, as they use it: a process, lines in, lines out."""

import io
import json
import subprocess
import sys
from typing import Any

import pytest

from dra_driver.testing.conformance import cel
from dra_driver.testing.conformance.lines import Answer, answer_lines
from dra_driver.testing.conformance.verdicts import (
    compile_class,
    gist,
    run_time_class,
    same,
    texts,
    verdict,
)

FISH = {
    "name": "fish",
    "expression": 'device.attributes["dra.example.com"].model == "fish"',
    "driver": "dra.example.com",
    "attributes": {"model": {"string": "fish"}},
}


def asked(question: dict[str, Any], **more: Any) -> Answer:
    return cel.answer(json.dumps({**question, **more}).encode())


def door(*arguments: str, lines: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "dra_driver.testing.conformance", *arguments]
    ended = subprocess.run(command, input=lines.encode(), capture_output=True, check=True)
    assert ended.stderr == b""
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_selector_that_matches() -> None:
    assert asked(FISH) == {
        "name": "fish",
        "compileError": None,
        "cost": 5,
        "match": True,
        "matchError": None,
    }


def test_a_selector_that_fails_on_the_device() -> None:
    assert asked(FISH, attributes={}) == {
        "name": "fish",
        "compileError": None,
        "cost": 5,
        "match": False,
        "matchError": "no such key: model",
    }


def test_a_selector_that_does_not_compile() -> None:
    assert asked(FISH, expression="1") == {
        "name": "fish",
        "compileError": "must evaluate to bool or the unknown type, not int",
        "cost": 0,
        "match": False,
        "matchError": None,
    }


def test_a_gate_that_is_off_is_seen_by_new_expressions_only() -> None:
    expression, off = "device.allowMultipleAllocations", {"EnableListTypeAttributes": True}
    new = asked(FISH, expression=expression, env="NewExpressions", features=off)
    stored = asked(
        FISH,
        expression=expression,
        env="StoredExpressions",
        features=off,
        allowMultipleAllocations=True,
    )
    assert compile_class(new["compileError"]) == "undefined field"
    assert (stored["compileError"], stored["match"]) == (None, True)


def test_the_door_answers_every_line_in_order_and_survives_those_that_are_malformed() -> None:
    lines = [
        json.dumps(FISH),
        "{not json",
        "",
        json.dumps({"name": "no-expression"}),
        json.dumps({"name": "bad-env", "expression": "true", "env": "Other"}),
        '{"name": "bad-utf8", "expression": "\xff"}'.encode("latin-1").decode("latin-1"),
        '{"name": ' * 100_000,
        json.dumps({**FISH, "name": "last"}),
    ]
    answers = door("cel", lines="\n".join(lines))
    assert [(answer["name"], verdict(answer)) for answer in answers] == [
        ("fish", "true"),
        ("", "compile error"),
        ("no-expression", "compile error"),
        ("bad-env", "compile error"),
        ("bad-utf8", "compile error"),
        ("", "compile error"),
        ("last", "true"),
    ]
    assert all(answer["compileError"].startswith("malformed line") for answer in answers[1:4])


def test_an_older_release_knows_less() -> None:
    line = json.dumps({"name": "sort", "expression": "[2, 1].sort() == [1, 2]"})
    assert [verdict(answer) for answer in door("cel", "--release", "1.33", lines=line)] == [
        "compile error"
    ]
    assert [verdict(answer) for answer in door("cel", "--release", "1.34", lines=line)] == ["true"]


def test_a_problem_that_is_none_is_refused_in_the_form_of_allocations() -> None:
    (answer,) = door("allocate", lines="[]")
    assert answer["results"] is None
    assert answer["error"].startswith("malformed line")


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = [sys.executable, "-m", "dra_driver.testing.conformance", "cel"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stdin.write(json.dumps(FISH).encode() + b"\n")
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


def test_whatever_goes_wrong_inside_costs_no_other_line() -> None:
    def fail(line: bytes) -> Answer:
        if line == b'{"name": "first"}\n':
            raise ZeroDivisionError("oops")
        return {"name": "second"}

    answers = io.BytesIO()
    questions = [b'{"name": "first"}\n', b'{"name": "second"}\n']
    answer_lines(
        questions, answers, answer=fail, refuse=lambda name, reason: {"name": name, "error": reason}
    )
    assert [json.loads(line) for line in answers.getvalue().splitlines()] == [
        {"name": "first", "error": "internal error: ZeroDivisionError: oops"},
        {"name": "second"},
    ]


def refused(text: str) -> Answer:
    return cel.refusal("x", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        (
            "compilation failed: ERROR: <input>:1:2: undeclared reference to 'x'",
            "undeclared reference",
        ),
        ("compilation failed: ERROR: <input>:1:2: something new: i", "something new"),
    ],
)
def test_the_class_of_a_compile_error(text: str | None, expected: str | None) -> None:
    assert compile_class(text) == expected


def test_the_class_of_a_run_time_error_leaves_out_what_it_quotes() -> None:
    assert (
        run_time_class("index '5' out of range in list size '1'")
        == "index … out of range in list size …"
    )
    assert run_time_class(None) is None


def test_answers_are_the_same_by_what_matters() -> None:
    first, second = refused("undeclared reference to 'a'"), refused("undeclared reference to 'b'")
    assert same(first, second)
    assert texts(first) != texts(second)
    assert gist(first) == gist(second)
    assert not same(first, asked(FISH))


def test_where_kubernetes_panics_any_answer_but_a_failure_of_ours_will_do() -> None:
    panic = refused("panic: runtime error")
    assert same(panic, refused("no"))
    assert same(panic, asked(FISH))
    assert not same(panic, refused("internal error: KeyError"))
