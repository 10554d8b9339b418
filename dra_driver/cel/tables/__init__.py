# SPDX-License-Identifier: Apache-2.0
"""Which declarations does each Kubernetes release have?

`hack/generate-cel-tables` generates declarations.py from the Go modules of the releases. Each entry
has a `since`: the first minor release in which a *new* expression can use it, and the first in which
a *stored* expression can. The second is often one release earlier, so that a cluster can be rolled
back. An entry with a gate also needs this feature gate.
"""

from collections.abc import Set as AbstractSet
from typing import NamedTuple

OLDEST = 32
NEWEST = 37
FOREVER = 99


class Since(NamedTuple):
    """The minor releases and feature gates with a declaration. `until` is the last such release."""

    new: int = OLDEST
    stored: int = OLDEST
    until: int = FOREVER
    gate: str = ""
    stored_gate: str = ""

    def holds(self, *, minor: int, stored: bool, gates: AbstractSet[str]) -> bool:
        """Return whether release 1.`minor` with these enabled gates has the declaration."""
        first, gate = (self.stored, self.stored_gate) if stored else (self.new, self.gate)
        return first <= minor <= self.until and (not gate or gate in gates)


class OverloadRow(NamedTuple):
    """One signature of a function. The target of a member function is its first argument.

    Types are in CEL's notation. One capital letter is a type parameter. A function that is not
    strict is also called if an argument is an error.
    """

    function: str
    id: str
    arguments: tuple[str, ...]
    result: str
    member: bool = False
    strict: bool = True
    since: Since = Since()


class MacroRow(NamedTuple):
    """A call that the parser expands: `has(x.y)`, or with a target `list.all(x, ...)`."""

    function: str
    arguments: int
    member: bool
    since: Since = Since()


class IdentifierRow(NamedTuple):
    """A variable, a constant or a type name. `type` is the type of its value."""

    name: str
    type: str
    since: Since = Since()


class MessageRow(NamedTuple):
    """A message type. `made` is the type of the literal `name{...}`."""

    name: str
    made: str
    since: Since = Since()


class FieldRow(NamedTuple):
    """A field of a message type. If several entries for one name apply, the last one is used."""

    message: str
    name: str
    type: str
    since: Since = Since()
