# SPDX-License-Identifier: Apache-2.0
"""Which functions, variables, macros and message types can an expression use in one environment?

The generated tables (tables/declarations.py) list the declarations of all releases, as text. This module selects the declarations of
one environment and parses their types. The order of overloads stays, because the checker takes the result type from the
first overload that matches.
"""

from collections.abc import Mapping
from functools import cache, lru_cache

from msgspec import Struct

from dra_driver.cel import types
from dra_driver.cel.tables import OverloadRow, Since
from dra_driver.cel.tables.declarations import FIELDS, IDENTIFIERS, MACROS, MESSAGES, OVERLOADS
from dra_driver.cel.types import Kind, Type
from dra_driver.cel.versions import Environment


class OverloadDecl(Struct, frozen=True):
    """One signature of a function (cel-go: OverloadDecl). The target of a member function is its first argument."""

    id: str
    arguments: tuple[Type, ...]
    result: Type
    member: bool
    parameters: tuple[str, ...]
    """The names of the type parameters in the signature."""


# Before this release, Kubernetes declares its list functions before its string functions. A dyn target then means a list.
_LISTS_DECLARED_LAST = 37


class Declarations(Struct, frozen=True):
    """The declarations of one environment, by name."""

    functions: Mapping[str, tuple[OverloadDecl, ...]]
    identifiers: Mapping[str, Type]
    messages: Mapping[str, Type]
    """The type of the literal `name{…}`."""
    fields: Mapping[str, Mapping[str, Type]]
    """The fields of each message type, including the type of `device`."""
    macros: frozenset[tuple[str, int, bool]]
    """Function name, number of arguments, and whether it is called on a target."""


@lru_cache(maxsize=64)
def declarations(environment: Environment) -> Declarations:
    """Return the declarations of the environment from a cache: building them takes longer than checking an expression."""
    functions: dict[str, list[OverloadDecl]] = {}
    for row in OVERLOADS:
        if _holds(row.since, environment):
            functions.setdefault(row.function, []).append(_overload(row))
    if environment.minor - (not environment.stored) < _LISTS_DECLARED_LAST:
        for name in ("indexOf", "lastIndexOf"):
            functions[name].sort(key=lambda overload: overload.id.startswith("string"))
    fields: dict[str, dict[str, Type]] = {}
    for field in FIELDS:
        if _holds(field.since, environment):
            fields.setdefault(field.message, {})[field.name] = _type(field.type)
    return Declarations(
        functions={name: tuple(overloads) for name, overloads in functions.items()},
        identifiers={
            row.name: _type(row.type) for row in IDENTIFIERS if _holds(row.since, environment)
        },
        messages={row.name: _type(row.made) for row in MESSAGES if _holds(row.since, environment)},
        fields=fields,
        macros=frozenset(
            (row.function, row.arguments, row.member)
            for row in MACROS
            if _holds(row.since, environment)
        ),
    )


def _holds(since: Since, environment: Environment) -> bool:
    gates = {
        name
        for name, on in (
            ("EnableConsumableCapacity", environment.features.consumable_capacity),
            ("EnableListTypeAttributes", environment.features.list_type_attributes),
        )
        if on
    }
    return since.holds(minor=environment.minor, stored=environment.stored, gates=gates)


@cache
def _type(text: str) -> Type:
    return types.parse(text)


def _overload(row: OverloadRow) -> OverloadDecl:
    arguments = tuple(_type(text) for text in row.arguments)
    result = _type(row.result)
    names: dict[str, None] = {}
    for declared in (*arguments, result):
        _collect_parameters(declared, names)
    return OverloadDecl(row.id, arguments, result, row.member, tuple(names))


def _collect_parameters(declared: Type, names: dict[str, None]) -> None:
    if declared.kind is Kind.PARAMETER:
        names[declared.name] = None
    for inner in declared.parameters:
        _collect_parameters(inner, names)
