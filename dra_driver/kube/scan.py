# SPDX-License-Identifier: Apache-2.0
"""Where do the members and elements of a JSON text begin and end? Found without decoding, and without recursion.

One string that is not UTF-8, one lone surrogate, or brackets nested a thousand deep make a decoder refuse a whole answer. The API
server stores all of these inside an object. This scanner looks only at quotes, backslashes and brackets. So it finds the end of
such a value, and the values around it can be decoded one by one.

The scanner does not check that a value is valid; the decoder does. It can skip a string without decoding it: in UTF-8 no byte of
a longer character equals a quote, a backslash or a bracket.
"""

import re
from collections.abc import Iterator

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_STRUCTURE = re.compile(_STRING + rb'|[\[{]++|[\]}]++|"', re.DOTALL)
_TEXT = re.compile(_STRING, re.DOTALL)
_SCALAR = re.compile(rb'[^ \t\r\n,:\[\]{}"]++')
_SPACE = re.compile(rb"[ \t\r\n]*+")

Span = tuple[int, int]


class NotJson(ValueError):
    """The text ends or breaks inside a value."""


def members(text: bytes, start: int = 0, *, cut: bool = False) -> Iterator[tuple[bytes, Span]]:
    """The members of the object that begins at `start`: each key with its quotes, and the span of its value.

    With `cut` a value that the text breaks off in is yielded too, up to the end of the text. Raises NotJson.
    """
    at = _enter(text, start, b"{")
    while text[(at := _skip(text, at)) : at + 1] != b"}":
        key = _TEXT.match(text, at)
        if key is None:
            raise NotJson(f"no key at byte {at}")
        at = _skip(text, key.end())
        if text[at : at + 1] != b":":
            raise NotJson(f"no colon at byte {at}")
        value = _skip(text, at + 1)
        try:
            end = value_end(text, value)
        except NotJson:
            if cut:
                yield key[0], (value, len(text))
            raise
        yield key[0], (value, end)
        at = _next(text, end, b"}")


def elements(text: bytes, start: int = 0) -> Iterator[Span]:
    """The spans of the elements of the array that begins at `start`. Raises NotJson."""
    at = _enter(text, start, b"[")
    while text[(at := _skip(text, at)) : at + 1] != b"]":
        end = value_end(text, at)
        yield at, end
        at = _next(text, end, b"]")


def value_end(text: bytes, start: int) -> int:
    """The position after the value that begins at `start`. Raises NotJson."""
    first = text[start : start + 1]
    if first == b'"':
        found = _TEXT.match(text, start)
    elif first in (b"{", b"["):
        return _closed(text, start)
    else:
        found = _SCALAR.match(text, start)
    if found is None:
        raise NotJson(f"no whole value at byte {start}")
    return found.end()


def _closed(text: bytes, start: int) -> int:
    """The position after the bracket that closes the one at `start`. A run of brackets is one token, so deep nesting is fast."""
    depth = 0
    for token in _STRUCTURE.finditer(text, start):
        first, length = text[token.start()], token.end() - token.start()
        if first in b"[{":
            depth += length
        elif first in b"]}":
            if depth <= length:
                return token.start() + depth
            depth -= length
        elif length == 1:
            raise NotJson(f"no end of the string at byte {token.start()}")
    raise NotJson(f"no end of the value at byte {start}")


def _enter(text: bytes, start: int, bracket: bytes) -> int:
    at = _skip(text, start)
    if text[at : at + 1] != bracket:
        raise NotJson(f"no {bracket.decode()} at byte {at}")
    return at + 1


def _next(text: bytes, at: int, closing: bytes) -> int:
    """The position after the comma, or of the closing bracket."""
    at = _skip(text, at)
    if text[at : at + 1] == b",":
        return at + 1
    if text[at : at + 1] != closing:
        raise NotJson(f"no comma at byte {at}")
    return at


def _skip(text: bytes, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
