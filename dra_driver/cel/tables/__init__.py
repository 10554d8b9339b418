# SPDX-License-Identifier: Apache-2.0
"""What does an expression see, on which Kubernetes release?

declarations.py beside this file is generated from the releases themselves. A line there says what
something is and since when: the first minor release where a *new* expression (one that somebody
writes now) may use it, and the first where a *stored* one (read back from the API server) may, which
is often one earlier, so that a cluster can be rolled back. A gate that is named must be on.
"""

from collections.abc import Set as AbstractSet
from typing import NamedTuple

OLDEST = 32
NEWEST = 37
FOREVER = 99


class Since(NamedTuple):
    """Minor releases and gates that something depends on; `until` is the last with it."""

    new: int = OLDEST
    stored: int = OLDEST
    until: int = FOREVER
    gate: str = ""
    stored_gate: str = ""

    def holds(self, *, minor: int, stored: bool, gates: AbstractSet[str]) -> bool:
        """Is it there, on a release with these gates on?"""
        first, gate = (self.stored, self.stored_gate) if stored else (self.new, self.gate)
        return first <= minor <= self.until and (not gate or gate in gates)


class Overload(NamedTuple):
    """One of the signatures of a function; a member's target is its first argument.

    Types are in CEL's own notation. One capital letter stands for any type, the same everywhere in
    the signature. A function that is not strict is called with errors as arguments, too.
    """

    function: str
    id: str
    arguments: tuple[str, ...]
    result: str
    member: bool = False
    strict: bool = True
    since: Since = Since()


class Macro(NamedTuple):
    """A call that the parser replaces: `has(x.y)`, or as a member `list.all(x, ...)`."""

    function: str
    arguments: int
    member: bool
    since: Since = Since()


class Identifier(NamedTuple):
    """A name that stands for a value or for a type, with the type of what it stands for."""

    name: str
    type: str
    since: Since = Since()


class Message(NamedTuple):
    """A type with fields; `made` is the type of `name{...}`."""

    name: str
    made: str
    since: Since = Since()


class Field(NamedTuple):
    """A field of a message. Of several of one name that hold the last one counts."""

    message: str
    name: str
    type: str
    since: Since = Since()
