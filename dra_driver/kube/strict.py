# SPDX-License-Identifier: Apache-2.0
"""How is JSON from outside decoded? In `kube/` only this module calls the decoder, and Undecodable is its only error."""

import sys
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import msgspec

_USUAL_LIMIT = 1000


class Undecodable(ValueError):
    """The bytes are no JSON value, or one that Python cannot hold; the message says why."""


def decode(text: bytes) -> Any:
    """The value of a JSON text. Raises Undecodable."""
    try:
        value = msgspec.json.decode(text)
    except RecursionError as error:
        raise Undecodable("it is nested too deep") from error
    # UnicodeDecodeError is a ValueError. A number that is too large raises one of the others.
    except (msgspec.MsgspecError, ValueError, ArithmeticError) as error:
        raise Undecodable(str(error)) from error
    # The decoder refuses values that are nested deeper than Python's recursion limit. Code that raises this limit for another
    # reason must not change which values are accepted: callers walk through the value by recursion.
    if sys.getrecursionlimit() > _USUAL_LIMIT and is_deeper(value, _USUAL_LIMIT):
        raise Undecodable("it is nested too deep")
    return value


def is_deeper(value: object, levels: int) -> bool:
    """Whether lists and objects are nested more than `levels` deep. Not recursive: a value may be too deep for that."""
    inside: list[object] = [value]
    for _ in range(levels + 1):
        inside = list(chain.from_iterable(map(_contents, inside)))
    return bool(inside)


def _contents(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()
