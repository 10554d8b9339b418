# SPDX-License-Identifier: Apache-2.0
"""The longest word counts."""

import pytest

from dra_driver.cel.syntax.lexer import END, NONE, tokens


def kinds(expression: str) -> list[tuple[str, str]]:
    return [(token.kind, token.text) for token in tokens(expression)[:-1]]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("a<=b", [("identifier", "a"), ("<=", "<="), ("identifier", "b")]),
        ("1.5e3", [("double", "1.5e3")]),
        ("1.e3", [("int", "1"), (".", "."), ("identifier", "e3")]),
        ("1.2.3", [("double", "1.2"), ("double", ".3")]),
        ("0x1Fu", [("uint", "0x1Fu")]),
        ("0x", [("int", "0"), ("identifier", "x")]),
        ("1u2", [("uint", "1u"), ("int", "2")]),
        ("in inner", [("in", "in"), ("identifier", "inner")]),
        ("rb''", [("identifier", "rb"), ("string", "''")]),
        ("bR''", [("bytes", "bR''")]),
        ("'''a'b'''", [("string", "'''a'b'''")]),
        ('""""a"""', [("string", '""""a"""')]),
        (r"r'\'", [("string", r"r'\'")]),
        ("`a.b-c/d e`", [("quoted", "`a.b-c/d e`")]),
        ("a // b\n+c", [("identifier", "a"), ("+", "+"), ("identifier", "c")]),
        ("a // b", [("identifier", "a")]),
    ],
)
def test_words(expression, words):
    assert kinds(expression) == words


def test_words_know_where_they_begin_and_the_last_one_is_the_end():
    assert [(token.kind, token.offset) for token in tokens(" a\t- 'é'")] == [
        ("identifier", 1),
        ("-", 3),
        ("string", 5),
        (END, 8),
    ]


@pytest.mark.parametrize("expression", ["a 'b", 'a "', "a & b", "a @", r"a '\z'", "a 'b\n'", "a é"])
def test_where_no_word_begins_the_words_end(expression):
    assert [token.kind for token in tokens(expression)][:2] == ["identifier", NONE]
    assert len(tokens(expression)) == 2
