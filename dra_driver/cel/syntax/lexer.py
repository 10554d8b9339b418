# SPDX-License-Identifier: Apache-2.0
"""Which tokens does the text of an expression have?

One regular expression matches all kinds of tokens. The grammar takes the longest match, so the alternatives are ordered
from long to short. A literal stays text here; `literals` calculates its value.
Source: cel-go parser/gen/CEL.g4.
"""

import re
from typing import NamedTuple

from dra_driver.cel.errors import Issue


class Token(NamedTuple):
    """A token. For an operator or keyword, `kind` is its text. `offset` is the index of its first character."""

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
    |(?P<string>[bB]?(?:{_STRING}))
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
    """Return the tokens of an expression. The last one has the kind END, or NONE if the rest of the text is no token."""
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
    # Bytes are a string with a prefix. A pattern of their own would be as long as that of a string, and is compiled at each import.
    is_bytes = match.lastgroup == "string" and text[0] in "bB"
    return "bytes" if is_bytes else match.lastgroup


def no_word(token: Token) -> Issue:
    """Return the issue for a token of kind NONE."""
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
    "`": "Backquotes go around one field name, as in a.`b-c`",
    ";": "A selector is one expression: join conditions with && or ||.",
}
