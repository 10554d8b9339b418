# SPDX-License-Identifier: Apache-2.0
"""How is foreign JSON decoded? Here and nowhere else in this room: no error of a decoder leaves it as anything but Undecodable."""

import sys
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import msgspec

_USUAL_LIMIT = 1000


class Undecodable(ValueError):
    """Bytes that are no JSON value that this program can hold; the message says why."""


def decode(text: bytes) -> Any:
    """The value of a JSON text. Raises Undecodable."""
    try:
        value = msgspec.json.decode(text)
    except RecursionError as error:
        raise Undecodable("it is nested too deep") from error
    # UnicodeDecodeError is a ValueError; an int or float that is too large is one of the others.
    except (msgspec.MsgspecError, ValueError, ArithmeticError) as error:
        raise Undecodable(str(error)) from error
    # The decoder stops at Python's limit of calls inside each other. Who raises that for other reasons must not change what can
    # be read: others walk through the value after us.
    if sys.getrecursionlimit() > _USUAL_LIMIT and is_deeper(value, _USUAL_LIMIT):
        raise Undecodable("it is nested too deep")
    return value


def is_deeper(value: object, levels: int) -> bool:
    """Whether lists and objects are nested deeper; level by level, for it may be deeper than a recursion can go."""
    inside: list[object] = [value]
    for _ in range(levels + 1):
        inside = list(chain.from_iterable(map(_contents, inside)))
    return bool(inside)


def _contents(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()
