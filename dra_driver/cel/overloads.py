# SPDX-License-Identifier: Apache-2.0
"""Which implementation of a function runs for these values?

The checker selects overloads by static types. If a type is dyn, several overloads remain, and the types of the values
select one at run time. cel-go has two ways to do this, with different error messages. A *singleton* has one implementation
for all overloads; it only checks the type of the first argument (its traits). Other functions have one implementation for
each overload; a dispatcher compares the types of all arguments with the declarations. For a list it checks only the first
element.
Source: cel-go common/decls/decls.go, interpreter/interpretable.go.
"""

from collections.abc import Callable
from functools import cached_property

from msgspec import Struct

from dra_driver.cel import values
from dra_driver.cel.failures import EvaluationError, no_such_overload

Implementation = Callable[..., object]

DYN = "dyn"
_RECEIVERS = frozenset({values.STRING, values.DURATION, values.TIMESTAMP})


class Parameter(Struct, frozen=True):
    """The type that an argument must have at run time. `element` is the type of a list's first element."""

    kind: str
    element: "Parameter | None" = None

    @classmethod
    def parse(cls, text: str) -> "Parameter":
        """Parse "dyn", "string" or "list(int)"."""
        name, _, rest = text.partition("(")
        return cls(name, cls.parse(rest.removesuffix(")")) if rest else None)

    def accepts(self, value: object) -> bool:
        """Return whether the value has this type."""
        if self.kind == DYN:
            return True
        if values.kind(value) != self.kind:
            return False
        if self.element is None or not isinstance(value, list) or not value:
            return True
        return self.element.accepts(value[0])


class Overload(Struct, frozen=True, dict=True):
    """One overload and its implementation. `signature` has the argument types, target first. cel-go checks it if `guarded`."""

    function: str
    id: str
    signature: str
    implementation: Implementation
    guarded: bool = True

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parsed signature."""
        return tuple(map(Parameter.parse, self.signature.split()))

    def accepts(self, arguments: tuple[object, ...]) -> bool:
        """Return whether the arguments match the signature."""
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


class Singleton(Struct, frozen=True):
    """A function with one implementation for all overloads. `traits` are the types that its first argument may have."""

    name: str
    implementation: Implementation
    traits: frozenset[str] | None = None

    def __call__(self, *arguments: object) -> object:
        kind = values.kind(arguments[0])
        if self.traits is None or kind in self.traits:
            return self.implementation(*arguments)
        raise no_such_overload() if kind in _RECEIVERS else no_such_overload(self.name)

    def overload(self, _id: str) -> Implementation:
        """Return the implementation, which is the same for all overloads."""
        return self


class Dispatcher(Struct, frozen=True, dict=True):
    """A function with one implementation for each overload."""

    name: str
    overloads: tuple[Overload, ...]

    @cached_property
    def by_id(self) -> dict[str, Overload]:
        """The overloads by their IDs."""
        return {overload.id: overload for overload in self.overloads}

    def __call__(self, *arguments: object) -> object:
        if len(self.overloads) == 1:
            return self.overloads[0](*arguments)
        for overload in self.overloads:
            if overload.accepts(arguments):
                return overload.implementation(*arguments)
        raise mismatch(self.name, arguments)

    def overload(self, id_: str) -> Implementation:
        """Return the implementation of one overload. Returns the dispatcher itself if this overload has none."""
        return self.by_id.get(id_, self)


Function = Singleton | Dispatcher


def mismatch(function: str, arguments: tuple[object, ...]) -> EvaluationError:
    """Return the error if no overload accepts these values."""
    return no_such_overload(f"{function}({', '.join(map(values.kind, arguments))})")
