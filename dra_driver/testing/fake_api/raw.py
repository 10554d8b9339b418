# SPDX-License-Identifier: Apache-2.0
"""Opaque parameters, which the fake API server stores as bytes, as the real server does.

The real server checks these parameters with Go's JSON decoder, which accepts more than other decoders: bytes that are not UTF-8, lone surrogates, numbers
of any size, ten thousand levels of brackets. It stores the bytes and returns them unchanged. A `RawJson` in an object stands for
such bytes. Parameters that Python can hold are dicts.
"""

import json
import math
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any, Self

from msgspec import Struct

from dra_driver.testing.fake_api.kinds import Object

DEEPEST = 10_000
"""The deepest nesting that Go's decoder accepts."""

_PLAIN_LEVELS = 200  # deeper parameters are kept as bytes
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = re.compile(rb"[][{}]")
_KEY = re.compile(rb'"parameters"\s*:\s*')
_MARK = "\N{OBJECT REPLACEMENT CHARACTER}raw-json-"
_MARKED = re.compile(json.dumps(_MARK)[:-1].replace("\\", "\\\\").encode() + rb'(\d+)"')


class RawJson(Struct, frozen=True):
    """A JSON object as bytes. A copy of it is the same object, because it never changes."""

    content: bytes

    def __deepcopy__(self, _memo: object) -> Self:
        return self


def loads(body: bytes) -> Any:
    """Return a JSON value; parameters that Python cannot hold, but Go can, become RawJson. Raises ValueError."""
    try:
        if _levels(body) > _PLAIN_LEVELS:
            raise ValueError("exceeded max depth")  # noqa: TRY301  the same way as what Python finds by itself
        value = json.loads(body, parse_constant=_refused, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()  # fails for half of a surrogate pair
    except (ValueError, RecursionError) as error:
        return _with_raw(body, error)
    return value


def dumps(obj: object) -> bytes:
    """Return the JSON text, with every RawJson as its original bytes."""
    kept: list[bytes] = []

    def mark(value: object) -> str:
        if not isinstance(value, RawJson):
            raise TypeError(f"{value!r} is no JSON")
        kept.append(value.content)
        return f"{_MARK}{len(kept) - 1}"

    text = _as_go(json.dumps(obj, default=mark).encode())
    return _MARKED.sub(lambda found: kept[int(found[1])], text) if kept else text


def _as_go(text: bytes) -> bytes:
    """Return JSON as Go's encoder writes it, with `<`, `>` and `&` escaped to six bytes. These occur only inside strings."""
    for character in b"<>&":
        text = text.replace(bytes([character]), f"\\u{character:04x}".encode())
    return text


def pieces(obj: Object) -> Iterator[bytes]:
    """Return the same text in pieces, one for each item of a list, so that it is never in memory as a whole."""
    items = obj.get("items")
    if not isinstance(items, list) or not items:
        yield dumps(obj)
        return
    yield dumps({key: value for key, value in obj.items() if key != "items"})[:-1] + b', "items": ['
    yield dumps(items[0])
    yield from chain.from_iterable((b", ", dumps(item)) for item in items[1:])
    yield b"]}"


def _with_raw(body: bytes, error: Exception) -> Any:
    kept: list[RawJson] = []
    parts: list[bytes] = []
    at = 0
    for found in _KEY.finditer(body):
        if found.end() >= at and body[found.end() : found.end() + 1] == b"{":
            end = _end(body, found.end())
            parts.append(body[at : found.end()] + json.dumps(f"{_MARK}{len(kept)}").encode())
            kept.append(RawJson(body[found.end() : end]))
            at = end
    if not kept:
        raise ValueError(str(error)) from error

    def restored(obj: Object) -> Object:
        mark = obj.get("parameters")
        if isinstance(mark, str) and mark.startswith(_MARK):
            obj["parameters"] = kept[int(mark.removeprefix(_MARK))]
        return obj

    return json.loads(b"".join([*parts, body[at:]]), object_hook=restored)


def _levels(body: bytes) -> int:
    """Return the depth of nested brackets.

    RecursionError is no reliable limit: a program can raise Python's own recursion limit.
    """
    depth = deepest = 0
    for bracket in _BRACKETS.findall(_TEXT.sub(b"", body)):
        depth += 1 if bracket in b"{[" else -1
        deepest = max(deepest, depth)
    return deepest


def _end(body: bytes, start: int) -> int:
    """Return the position after the object, found byte by byte."""
    depth, quoted, escaped = 0, False, False
    for at in range(start, len(body)):
        byte = body[at]
        if quoted:
            quoted = escaped or byte != ord('"')
            escaped = not escaped and byte == ord("\\")
        elif byte == ord('"'):
            quoted = True
        elif byte in b"{[":
            depth += 1
            if depth > DEEPEST:
                raise ValueError("exceeded max depth")
        elif byte in b"}]":
            depth -= 1
            if not depth:
                return at + 1
    raise ValueError("unexpected end of JSON input")


def _refused(constant: str) -> float:
    raise ValueError(f"invalid character in {constant}")


def _finite(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text} is larger than any float")
    return found
