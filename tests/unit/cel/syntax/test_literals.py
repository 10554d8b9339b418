# SPDX-License-Identifier: Apache-2.0
"""A quoted literal means what its escapes say; numbers are tested where they are parsed."""

import pytest

from dra_driver.cel.syntax.literals import LiteralError, bytes_value, string_value


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (r"'\a\b\f\n\r\t\v\\\'\"\?\`'", "\a\b\f\n\r\t\v\\'\"?`"),
        (r"'\x41\X42\103\u00e9\U0001F600'", "ABCé\U0001f600"),
        ("'''a\r\nb\rc'''", "a\nb\nc"),
        (r'R"a\n"', r"a\n"),
        ('r"""a\r\n"""', "a\n"),
        ("''", ""),
        ('""""""', ""),
        ("''' '''", " "),
    ],
)
def test_a_string_means_what_its_escapes_say(literal, value):
    assert string_value(literal) == value


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (r"b'\xff\377\101a'", b"\xff\xffAa"),
        ("b'é'", "é".encode()),
        (r"b'é\xc3'", "é".encode() + b"\xc3"),
        (r"Br'\x00é'", rb"\x00" + "é".encode()),
        (r'b"""\n"""', b"\n"),
    ],
)
def test_bytes_are_escaped_bytes_and_characters_in_utf_8(literal, value):
    assert bytes_value(literal) == value


@pytest.mark.parametrize("literal", [r"'\ud800'", r"'\U00110000'"])
def test_no_escape_stands_for_half_a_character(literal):
    with pytest.raises(LiteralError, match="invalid unicode code point"):
        string_value(literal)


def test_until_1_32_an_escaped_surrogate_is_replaced():
    assert string_value(r"'\ud800'", surrogates=True) == "\ufffd"
    with pytest.raises(LiteralError, match="unable to unescape string"):
        string_value(r"'\U00110000'", surrogates=True)


def test_bytes_know_no_escapes_of_characters():
    with pytest.raises(LiteralError, match="unable to unescape string"):
        bytes_value(r"b'\u00e9'")
