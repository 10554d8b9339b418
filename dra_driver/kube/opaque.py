# SPDX-License-Identifier: Apache-2.0
"""Which values of an object does the API server keep without knowing them, and which of those can nobody decode?

They are the only place of bytes that no decoder takes, so they are looked for there first: `marked` puts a mark in the place of each
such value, the decoder reads the rest at its own speed, and `taken_out` finds the marks again. One scan over each opaque value is all
that a hostile object costs more than another one.

The name of a key in its quotes, with a colon behind it, is that key wherever it stands: in a string its quotes would have
backslashes before them.
"""

import re
import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

from dra_driver.kube.scan import NotJson, value_end
from dra_driver.kube.strict import Undecodable, decode

OPAQUE = ("parameters", "data", "fieldsV1")
"""The fields whose content the API server does not know: readable as a whole or not at all."""

_MARK_TEXT = f"unreadable {secrets.token_hex(16)}: "
MARK = f'"{_MARK_TEXT}'.encode()
"""What a mark begins with. Nobody can write one into an object: it is another in each process."""

_KEY = re.compile(rb'"(?:%b)"\s*+:\s*+' % "|".join(OPAQUE).encode())
DEEPEST = 12  # levels of the API's own types, down to the opaque ones


def marked(text: bytes) -> bytes:
    """The text with a mark for each opaque object that cannot be decoded; as it was where its parts cannot be told apart."""
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
    """The marks: where they stood and why. Each becomes None."""
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
