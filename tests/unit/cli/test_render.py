# SPDX-License-Identifier: Apache-2.0
"""What is printed, and where."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dra_driver.cli import render
from dra_driver.cli.documents import Demo, PlayedStep

BOTH = 'from dra_driver.cli import render; render.line("a"); render.raw(b"b"); render.line("c")'


def run(code: str, **options: object) -> tuple[int, str]:
    """A process of its own: what it does to its standard output stays there."""
    done = subprocess.run(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, check=False, **options
    )
    return done.returncode, done.stderr


def closed_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    writer = closed_pipe()
    assert run(BOTH, stdout=writer) == (0, "")
    assert run(f"{BOTH}; import sys; sys.exit(3)", stdout=writer) == (3, "")
    os.close(writer)


def test_errors_that_nobody_reads_are_no_error() -> None:
    writer = closed_pipe()
    code = 'from dra_driver.cli import render; render.error("a"); render.error("b")'
    assert subprocess.run([sys.executable, "-c", code], stderr=writer, check=False).returncode == 0
    os.close(writer)


def test_a_table_escapes_what_somebody_else_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    render.table(("DEVICE", "PRODUCT"), [("gpu-0", "A\x1b[2J\nlevel=error")])
    assert capsys.readouterr().out == ("DEVICE   PRODUCT\ngpu-0    A\\x1b[2J\\nlevel=error\n")


@pytest.mark.parametrize("call", ['line("a")', 'raw(b"a")'])
def test_what_cannot_be_written_is_an_operators_sentence(call: str) -> None:
    code = f"""
from dra_driver.cli import render
from dra_driver.errors import Permanent
try:
    render.{call}
except Permanent as error:
    render.error(str(error))
"""
    with Path("/dev/full").open("w") as full:
        code_, said = run(code, stdout=full)
    assert code_ == 0
    assert said == (
        "dra-driver: cannot write to standard output: [Errno 28] No space left on device; "
        "free some space, or send the output elsewhere\n"
    )


def test_without_standard_output_nothing_is_written() -> None:
    code = f"import sys; sys.stdout = None; {BOTH}; sys.exit(render.colored())"
    assert run(code) == (0, "")


@pytest.mark.parametrize(
    ("environment", "colored"),
    [
        ({"TERM": "xterm"}, 1),
        ({"TERM": "dumb"}, 0),
        ({"TERM": ""}, 0),
        ({}, 0),
        ({"TERM": "xterm", "NO_COLOR": "1"}, 0),
        ({"TERM": "xterm", "NO_COLOR": ""}, 1),
    ],
)
def test_only_a_terminal_that_has_colours_gets_them(
    environment: dict[str, str], colored: int
) -> None:
    code = "import sys; from dra_driver.cli import render; sys.exit(render.colored())"
    terminal, other_end = os.openpty()
    inherited = {key: os.environ[key] for key in os.environ if key not in ("NO_COLOR", "TERM")}
    assert run(code, stdout=other_end, env={**inherited, **environment}) == (colored, "")
    os.close(terminal)
    os.close(other_end)


def test_a_document_says_the_same_as_json_and_as_yaml(capsys) -> None:
    found = Demo(profile="h100x8\u202e", steps=(PlayedStep(step="1", title="no", facts={"a": 1}),))
    render.document(found)
    shown = json.loads(capsys.readouterr().out)
    render.document(found, "yaml")
    out = capsys.readouterr().out
    assert out.startswith("---\napiVersion: gpu.dra-driver.dev/v1\nkind: Demo\n")
    assert "\u202e" not in out
    assert yaml.safe_load(out) == shown


@pytest.mark.parametrize("text", ["plain", 'a"\\b\n', "gp\u00fc \U0001f600", "\x1b\x7f", "\ud800"])
def test_a_document_is_ascii_whatever_it_says(text: str, capsys) -> None:
    content: dict[str, object] = {text: [text, {}, []], "number": 1.5, "none": None}
    render.document(content)
    assert capsys.readouterr().out == json.dumps(content, indent=2) + "\n"


def test_what_the_output_cannot_encode_is_spelled_out() -> None:
    code = 'from dra_driver.cli import render; render.line("gp\\u00fc \\ud800")'
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "gp\\xfc \\ud800\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gp\u00fc 0", "gp\u00fc 0"),
        ("\033[31mred", "\\x1b[31mred"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("bell\a\n", "bell\\x07\\n"),
    ],
)
def test_what_a_terminal_would_obey_is_spelled_out(text: str, shown: str, capsys) -> None:
    assert render.plain(text) == shown
    render.error(text.rstrip("\n"))
    shown = shown.removesuffix("\\n")
    assert capsys.readouterr().err == f"dra-driver: {shown}\n"


def test_only_who_prints_an_error_gives_it_several_lines(capsys) -> None:
    """A name with a line end in it would begin a line that a CI system obeys."""
    render.error("one", "two\033")
    render.error("bad\n::error::of somebody else")
    assert capsys.readouterr().err == (
        "dra-driver: one\ntwo\\x1b\ndra-driver: bad\\n::error::of somebody else\n"
    )


def test_a_table_has_left_aligned_columns_and_no_trailing_blanks(capsys) -> None:
    render.table(("NAME", "ID"), [("a", "1"), ("longer", "22")])
    assert capsys.readouterr().out == "NAME     ID\na        1\nlonger   22\n"


def test_a_table_without_rows_is_its_heads(capsys) -> None:
    render.table(("NAME", "ID"), [])
    assert capsys.readouterr().out == "NAME   ID\n"


def test_lines_documents_and_errors_go_where_they_belong(capsys) -> None:
    render.line("hello")
    render.line()
    render.json_line({"b": 1, "a": ["ü"]})
    render.error("no node name")
    captured = capsys.readouterr()
    assert captured.out == 'hello\n\n{"a": ["\\u00fc"], "b": 1}\n'
    assert captured.err == "dra-driver: no node name\n"
