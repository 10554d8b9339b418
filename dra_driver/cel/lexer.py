# SPDX-License-Identifier: Apache-2.0
"""Which words is an expression made of, and what do its literals mean?

One regular expression knows all tokens. Where two of them match, the longer one counts, as in the grammar: its
alternatives are in that order. Literals stay text here; `string_value` and `bytes_value` read the quoted ones.
Source: cel-go parser/gen/CEL.g4, parser/unescape.go.
"""

import re
import sys
from collections.abc import Callable
from typing import NamedTuple

from dra_driver.cel.errors import Issue


class Token(NamedTuple):
    """A word: its kind (the text itself for operators and keywords), its text, and at which character it begins."""

    kind: str
    text: str
    offset: int


_ESCAPE = (
    r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
)
_STRING = "|".join(
    (
        r"[rR]\"\"\"[\s\S]*?\"\"\"",
        r"[rR]'''[\s\S]*?'''",
        r'[rR]"[^"\n\r]*"',
        r"[rR]'[^'\n\r]*'",
        rf'"""(?:{_ESCAPE}|[^\\])*?"""',
        rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
        rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
    )
)
_TOKEN = re.compile(
    rf"""
    (?P<space>[\t\ \r\n\f]+|//[^\n]*)
    |(?P<bytes>[bB](?:{_STRING}))
    |(?P<string>{_STRING})
    |(?P<double>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<uint>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<identifier>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<quoted>`[A-Za-z0-9_.\-/\ ]+`)
    |==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%]
    """,
    re.VERBOSE,
)
_KEYWORDS = frozenset({"in", "true", "false", "null"})
END = "end"
NONE = "none"
_SHOWN = 10


def tokens(expression: str) -> list[Token]:
    """The words of an expression; the last one is of kind END, or NONE where no word begins."""
    found: list[Token] = []
    offset = 0
    while match := _TOKEN.match(expression, offset):
        if match.lastgroup != "space":
            found.append(Token(_kind(match), match.group(), offset))
        offset = match.end()
    if offset < len(expression):
        found.append(Token(NONE, expression[offset : offset + _SHOWN], offset))
    else:
        found.append(Token(END, "<EOF>", offset))
    return found


def _kind(match: re.Match[str]) -> str:
    text = match.group()
    if text in _KEYWORDS or match.lastgroup is None:
        return text
    return match.lastgroup


def no_word(token: Token) -> Issue:
    """What is wrong with a token of kind NONE."""
    message = f"Syntax error: token recognition error at: '{token.text}'"
    return Issue(message, token.offset, _ADVICE.get(token.text[0], ""))


_UNTERMINATED = (
    "The string that begins here does not end on its line, or has a backslash that begins no escape:"
    r" close the quotes; write \\ for a backslash, or r'...' for a string without escapes."
)
_ADVICE = {
    '"': _UNTERMINATED,
    "'": _UNTERMINATED,
    "&": "'and' is written && in CEL.",
    "|": "'or' is written || in CEL.",
    "=": "Equality is written == in CEL.",
    "`": "Backquotes go around one field name, as in a.`b-c`.",
    ";": "A selector is one expression: join conditions with && or ||.",
}


_SURROGATES = range(0xD800, 0xE000)
_ASCII = range(0x80)
_BYTES = 0xDC00  # plus a byte: what "surrogateescape" writes as that byte


class LiteralError(ValueError):
    """A quoted literal that means nothing; its text is the API server's."""


def string_value(text: str, *, surrogates: bool = False) -> str:
    """What a string literal means. With `surrogates`, half a surrogate pair stands for U+FFFD, as it did until 1.32."""

    def code_point(code: int) -> str:
        if code in _SURROGATES and surrogates:
            return "\ufffd"
        if code > sys.maxunicode or code in _SURROGATES:
            message = "unable to unescape string" if surrogates else "invalid unicode code point"
            raise LiteralError(message)
        return chr(code)

    raw, body = _body(text)
    return body if raw else _ESCAPES.sub(lambda match: _unescape(match, code_point), body)


def bytes_value(text: str) -> bytes:
    """What a bytes literal means: hexadecimal and octal escapes are bytes, characters their UTF-8."""

    def character(match: re.Match[str]) -> str:
        if match.group(1)[0] in "uU":
            message = "unable to unescape string"
            raise LiteralError(message)
        # A byte of an escape travels through the text as a lone surrogate, which no character of a literal is.
        return _unescape(match, lambda code: chr(code) if code in _ASCII else chr(_BYTES + code))

    raw, body = _body(text[1:])
    if raw:
        return body.encode()
    return _ESCAPES.sub(character, body).encode("utf-8", "surrogateescape")


def _body(text: str) -> tuple[bool, str]:
    """Whether escapes count for nothing in the literal, and what stands between its quotes."""
    raw = text[0] in "rR"
    quoted = text[1:] if raw else text
    marks = 3 if quoted[:3] in ('""' + '"', "'''") and len(quoted) >= 6 else 1  # noqa: PLR2004 - two times three quotes
    return raw, quoted[marks:-marks].replace("\r\n", "\n").replace("\r", "\n")


_ESCAPES = re.compile(r"\\(x..|X..|u.{4}|U.{8}|[0-3]..|.)", re.DOTALL)
_CHARACTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _unescape(match: re.Match[str], code_point: Callable[[int], str]) -> str:
    escape = match.group(1)
    if escape[0] in "xXuU":
        return code_point(int(escape[1:], 16))
    if escape[0] in "0123":
        return code_point(int(escape, 8))
    return _CHARACTERS.get(escape, escape)
