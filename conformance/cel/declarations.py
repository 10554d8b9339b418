# SPDX-License-Identifier: Apache-2.0
"""Which functions may an expression call? The declarations of one release, as its oracle lists them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from conformance.cel.types import Substitution, Type, parse_type, unify

# Not written as calls, but as operators and brackets, or not at all.
BINARY: Mapping[str, str] = {
    **{f"_{sign}_": sign for sign in ("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=")},
    "_&&_": "&&",
    "_||_": "||",
    "@in": "in",
}
UNARY: Mapping[str, str] = {"!_": "!", "-_": "-"}
OTHER_SYNTAX = ("_[_]", "_[?_]", "_?._", "_?_:_")


@dataclass(frozen=True, slots=True)
class DeclaredOverload:
    """One signature of a function; the first argument of a member is its target."""

    function: str
    id: str
    member: bool
    arguments: tuple[Type, ...]
    result: Type
    parameters: tuple[str, ...] = ()

    @property
    def writable(self) -> bool:
        """Whether an expression can call it: names with @ are for the parser's own use."""
        return "@" not in self.function or self.function in BINARY


@dataclass(frozen=True)
class Declarations:
    """All overloads of one environment."""

    overloads: tuple[DeclaredOverload, ...]

    @cached_property
    def by_result(self) -> Mapping[str, Sequence[DeclaredOverload]]:
        """Writable overloads by the name of their result's type, those that answer any type under ""."""
        found: dict[str, list[DeclaredOverload]] = {}
        for overload in self.overloads:
            if overload.writable:
                name = "" if overload.result.name in overload.parameters else overload.result.name
                found.setdefault(name, []).append(overload)
        return found

    def answering(self, wanted: Type) -> list[tuple[DeclaredOverload, Substitution]]:
        """The overloads whose result can be `wanted`, and what their type parameters are then."""
        candidates = [*self.by_result.get(wanted.name, ()), *self.by_result.get("", ())]
        answers = []
        for overload in candidates:
            found: Substitution = {}
            if unify(overload.result, wanted, found):
                answers.append((overload, found))
        return answers


def read(answer: Mapping[str, Any]) -> Declarations:
    """The declarations in an answer of `oracle declarations`."""
    return Declarations(
        tuple(
            DeclaredOverload(
                function=name,
                id=found["id"],
                member=found["member"],
                arguments=tuple(map(parse_type, found["arguments"])),
                result=parse_type(found["result"]),
                parameters=tuple(found["typeParameters"]),
            )
            for name, overloads in sorted(answer["functions"].items())
            for found in overloads
        )
    )
