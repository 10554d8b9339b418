# SPDX-License-Identifier: Apache-2.0
"""Which opaque values of an object cannot be decoded? Opaque: the API server stores them without looking at them.

Usually only they contain bytes that a decoder refuses. So `marked` replaces each such value by a mark. Then the decoder reads
the rest at full speed, and `taken_out` finds the marks. A hostile object costs one additional scan of its opaque values, not more.

`marked` finds a key by its text: the name in quotes and a colon. Inside a JSON string this text cannot occur, because quotes
have a backslash there.
"""

import re
import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

from dra_driver.kube.scan import NotJson, value_end
from dra_driver.kube.strict import Undecodable, decode

OPAQUE = ("parameters", "data", "fieldsV1")
"""The opaque fields. Each is decoded as a whole or not at all."""

_MARK_TEXT = f"unreadable {secrets.token_hex(16)}: "
MARK = f'"{_MARK_TEXT}'.encode()
"""The beginning of each mark. It is random in each process, so nobody can put one into an object on purpose."""

_KEY = re.compile(rb'"(?:%b)"\s*+:\s*+' % "|".join(OPAQUE).encode())
DEEPEST = 12  # levels of the API's own types, down to the opaque ones


def marked(text: bytes) -> bytes:
    """The text with a mark for each opaque object that cannot be decoded; the text unchanged if the scanner cannot read it."""
    parts: list[bytes] = []
    kept = at = 0
    try:
        while found := _KEY.search(text, at):
            start = at = found.end()
            if text[start : start + 1] != b"{":
                continue
            at = value_end(text, start)
            try:
                decode(text[start:at])
            except Undecodable as error:
                parts += (text[kept:start], msgspec.json.encode(f"{_MARK_TEXT}{error}"))
                kept = at
    except NotJson:
        return text
    return b"".join([*parts, text[kept:]])


def taken_out(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Replace each mark in `value` by None; yield its path, and why the value could not be decoded."""
    if len(path) >= DEEPEST:
        return
    if isinstance(value, dict):
        for key, inside in value.items():
            if key not in OPAQUE:
                yield from taken_out(inside, (*path, key))
            elif isinstance(inside, str) and inside.startswith(_MARK_TEXT):
                value[key] = None
                yield (*path, key), inside.removeprefix(_MARK_TEXT)
    elif isinstance(value, list):
        for index, inside in enumerate(value):
            yield from taken_out(inside, (*path, str(index)))
