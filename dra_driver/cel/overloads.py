# SPDX-License-Identifier: Apache-2.0
"""Which implementation of a function runs, decided by the kinds of the arguments.

The checker picks overloads by static types; where those are dyn, more than one is left and the values decide. cel-go
has two ways, and their errors differ: a function with one implementation for all overloads looks at what its first
argument can do (`Function.traits`); a function with one implementation per overload compares the kinds of all arguments
with the declaration. Of a list only the first element is looked at.
Source: cel-go common/decls/decls.go, interpreter/interpretable.go.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from dra_driver.cel import values
from dra_driver.cel.failures import EvaluationError, no_such_overload

Implementation = Callable[..., object]

DYN = "dyn"
_RECEIVERS = frozenset({values.STRING, values.DURATION, values.TIMESTAMP})


@dataclass(frozen=True, slots=True)
class Parameter:
    """What an argument must be: a kind, and for a list the kind of its first element."""

    kind: str
    element: "Parameter | None" = None

    @classmethod
    def parse(cls, text: str) -> "Parameter":
        """Read "dyn", "string", "list(int)"."""
        name, _, rest = text.partition("(")
        return cls(name, cls.parse(rest.removesuffix(")")) if rest else None)

    def accepts(self, value: object) -> bool:
        """Whether the value may be passed."""
        if self.kind == DYN:
            return True
        if values.kind(value) != self.kind:
            return False
        if self.element is None or not isinstance(value, list) or not value:
            return True
        return self.element.accepts(value[0])


@dataclass(frozen=True)
class Overload:
    """One declaration of a function; `signature` names the arguments' kinds, the target first."""

    function: str
    id: str
    signature: str
    implementation: Implementation
    guarded: bool = True

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The signature, parsed."""
        return tuple(map(Parameter.parse, self.signature.split()))

    def accepts(self, arguments: tuple[object, ...]) -> bool:
        """Whether this overload is meant."""
        if len(arguments) != len(self.parameters):
            return False
        if not self.guarded:
            return True
        return all(
            parameter.accepts(argument)
            for parameter, argument in zip(self.parameters, arguments, strict=True)
        )

    def __call__(self, *arguments: object) -> object:
        if not self.accepts(arguments):
            raise mismatch(self.function, arguments)
        return self.implementation(*arguments)


@dataclass(frozen=True)
class Singleton:
    """One implementation for all overloads; `traits` are the kinds that the first argument may have."""

    name: str
    implementation: Implementation
    traits: frozenset[str] | None = None

    def __call__(self, *arguments: object) -> object:
        kind = values.kind(arguments[0])
        if self.traits is None or kind in self.traits:
            return self.implementation(*arguments)
        raise no_such_overload() if kind in _RECEIVERS else no_such_overload(self.name)

    def overload(self, _id: str) -> Implementation:
        """The implementation is the same for all."""
        return self


@dataclass(frozen=True)
class Dispatcher:
    """A function with one implementation per overload."""

    name: str
    overloads: tuple[Overload, ...]
    by_id: dict[str, Overload] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self.__dict__["by_id"] = {overload.id: overload for overload in self.overloads}

    def __call__(self, *arguments: object) -> object:
        if len(self.overloads) == 1:
            return self.overloads[0](*arguments)
        for overload in self.overloads:
            if overload.accepts(arguments):
                return overload.implementation(*arguments)
        raise mismatch(self.name, arguments)

    def overload(self, id_: str) -> Implementation:
        """What runs where the checker left one overload only."""
        return self.by_id.get(id_, self)


Function = Singleton | Dispatcher


def mismatch(function: str, arguments: tuple[object, ...]) -> EvaluationError:
    """No overload takes values of these kinds."""
    return no_such_overload(f"{function}({', '.join(map(values.kind, arguments))})")
