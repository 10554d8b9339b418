# SPDX-License-Identifier: Apache-2.0
"""What is a static type in CEL?

A type has a kind, a name (the same at run time), and parameters: list(int), map(string, dyn). A type parameter (`T` in a
declaration, `_var3` during the check) stands for a type that is not known yet. A type is `open` if it contains a type
parameter. For `dyn` and `any` the type is known only at run time. A wrapper type is a primitive type or null (in protobuf:
a message around the primitive).
Source: cel-go common/types/types.go, checker/format.go.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto


class Kind(Enum):
    """The category of a type (cel-go: types.Kind)."""

    ANY = auto()
    BOOL = auto()
    BYTES = auto()
    DOUBLE = auto()
    DURATION = auto()
    DYN = auto()
    ERROR = auto()
    INT = auto()
    LIST = auto()
    MAP = auto()
    NULL = auto()
    OPAQUE = auto()
    PARAMETER = auto()
    STRING = auto()
    STRUCT = auto()
    TIMESTAMP = auto()
    TYPE = auto()
    UINT = auto()
    UNSPECIFIED = auto()


@dataclass(frozen=True, slots=True)
class Type:
    """A static type. Equality ignores `wrapper`, as cel-go's does."""

    kind: Kind
    name: str
    parameters: tuple["Type", ...] = ()
    wrapper: bool = field(default=False, compare=False)
    size: int = field(init=False, compare=False, repr=False)
    open: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Calculate `size`, the number of types in this type, and `open`."""
        size = 1
        unknown = self.kind is Kind.PARAMETER
        for parameter in self.parameters:
            size += parameter.size
            unknown = unknown or parameter.open
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "open", unknown)

    def __str__(self) -> str:
        """Return the type as in messages about overloads and mismatches (FormatCELType in checker/format.go)."""
        return _IN_MESSAGES.get(self.kind) or self._written(str)

    @property
    def declared(self) -> str:
        """The type as in declarations and in messages about the result type (Type.String in common/types)."""
        if self.kind is Kind.PARAMETER:
            return f"<{self.name}>"
        return self._written(lambda parameter: parameter.declared)

    def _written(self, write: Callable[["Type"], str]) -> str:
        if not self.parameters:
            return f"wrapper({self.name})" if self.wrapper else self.name
        return f"{self.name}({', '.join([write(parameter) for parameter in self.parameters])})"


_IN_MESSAGES = {
    Kind.ANY: "any",
    Kind.DURATION: "duration",
    Kind.ERROR: "!error!",
    Kind.NULL: "null",
    Kind.TIMESTAMP: "timestamp",
}

ANY = Type(Kind.ANY, "google.protobuf.Any")
BOOL = Type(Kind.BOOL, "bool")
BYTES = Type(Kind.BYTES, "bytes")
DOUBLE = Type(Kind.DOUBLE, "double")
DURATION = Type(Kind.DURATION, "google.protobuf.Duration")
DYN = Type(Kind.DYN, "dyn")
ERROR = Type(Kind.ERROR, "error")
INT = Type(Kind.INT, "int")
NULL = Type(Kind.NULL, "null_type")
STRING = Type(Kind.STRING, "string")
TIMESTAMP = Type(Kind.TIMESTAMP, "google.protobuf.Timestamp")
TYPE = Type(Kind.TYPE, "type")
UINT = Type(Kind.UINT, "uint")
UNSPECIFIED = Type(Kind.UNSPECIFIED, "")
DEVICE = Type(Kind.STRUCT, "kubernetes.DRADevice")

_SIMPLE = {
    simple.name: simple
    for simple in (ANY, BOOL, BYTES, DOUBLE, DURATION, DYN, ERROR, INT, NULL, STRING, TIMESTAMP, TYPE, UINT)
}  # fmt: skip
_OPAQUE = frozenset({"net.IP", "net.CIDR", "optional_type"})


def list_of(element: Type) -> Type:
    return Type(Kind.LIST, "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type(Kind.MAP, "map", (key, value))


def type_of(instance: Type) -> Type:
    """Return the type of the type `instance`: type(instance)."""
    return Type(Kind.TYPE, "type", (instance,))


def optional_of(value: Type) -> Type:
    return Type(Kind.OPAQUE, "optional_type", (value,))


def parameter(name: str) -> Type:
    """Return the type parameter with this name."""
    return Type(Kind.PARAMETER, name)


def wrapper_of(primitive: Type) -> Type:
    """Return the wrapper type of a primitive type."""
    return Type(primitive.kind, primitive.name, primitive.parameters, wrapper=True)


def renamed(checked: Type, names: Mapping[str, Type]) -> Type:
    """Return the type with its type parameters replaced by `names`."""
    if not checked.open:
        return checked
    if checked.kind is Kind.PARAMETER:
        return names[checked.name]
    inner = tuple([renamed(one, names) for one in checked.parameters])
    return Type(checked.kind, checked.name, inner)


def is_dyn(checked: Type) -> bool:
    """Return whether the type is known only at run time: dyn or any."""
    return checked.kind in (Kind.DYN, Kind.ANY)


def is_optional(checked: Type) -> bool:
    """Return whether the type is optional_type(T) for any T."""
    return checked.kind is Kind.OPAQUE and checked.name == "optional_type"


def parse(text: str) -> Type:
    """Parse a type of a declaration, such as `map(K, list(int))`. One capital letter is a type parameter."""
    found, rest = _parse(text)
    if rest:
        message = f"a type is expected, found {text!r}"
        raise ValueError(message)
    return found


def _parse(text: str) -> tuple[Type, str]:
    end = next((at for at, character in enumerate(text) if character in "(,)"), len(text))
    name, rest = text[:end], text[end:]
    parameters: list[Type] = []
    while (rest.startswith("(") and not parameters) or (parameters and rest.startswith(", ")):
        inner, rest = _parse(rest.removeprefix("(").removeprefix(", "))
        parameters.append(inner)
    if parameters:
        rest = rest.removeprefix(")")
    return _named(name, tuple(parameters)), rest


def _named(name: str, parameters: tuple[Type, ...]) -> Type:
    if len(name) == 1 and name.isupper():
        return parameter(name)
    if name == "wrapper":
        return wrapper_of(*parameters)
    if not parameters and name in _SIMPLE:
        return _SIMPLE[name]
    return Type(_KINDS_WITH_PARAMETERS.get(name, Kind.STRUCT), name, parameters)


_KINDS_WITH_PARAMETERS = {
    "list": Kind.LIST,
    "map": Kind.MAP,
    "type": Kind.TYPE,
} | dict.fromkeys(_OPAQUE, Kind.OPAQUE)
