# SPDX-License-Identifier: Apache-2.0
"""What is printed, and where."""

from dra_driver.cli import render


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
