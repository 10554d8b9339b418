# SPDX-License-Identifier: Apache-2.0
"""Types of CEL as the declarations write them, as far as a generator of expressions must know them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Type:
    """`list(int)` is Type("list", (Type("int"),)); a type parameter is a type with a name like `T`."""

    name: str
    params: tuple["Type", ...] = ()

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.params))
        return f"{self.name}({inner})" if inner else self.name


DYN = Type("dyn")
BOOL, INT, UINT, DOUBLE = Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL = Type("string"), Type("bytes"), Type("null_type")
TIMESTAMP, DURATION = Type("google.protobuf.Timestamp"), Type("google.protobuf.Duration")
QUANTITY, SEMVER = Type("kubernetes.Quantity"), Type("kubernetes.Semver")
IP, CIDR, URL = Type("net.IP"), Type("net.CIDR"), Type("kubernetes.URL")
FORMAT = Type("kubernetes.NamedFormat")
TYPE = Type("type", (DYN,))

Substitution = dict[str, Type]


def list_of(element: Type) -> Type:
    """list(element)."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """map(key, value)."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """optional_type(value)."""
    return Type("optional_type", (value,))


def parse_type(text: str) -> Type:
    """Read what `str` of a type wrote."""
    tokens = re.findall(r"[^\s(),<>]+|[(),]", text)
    return _parse(iter([*tokens, ""]))[0]


def _parse(tokens: Iterator[str]) -> tuple[Type, str]:
    name, following = next(tokens), next(tokens)
    params: list[Type] = []
    if following == "(":
        while following != ")":
            param, following = _parse(tokens)
            params.append(param)
        following = next(tokens)
    return Type(name, tuple(params)), following


def is_parameter(a_type: Type) -> bool:
    """Whether it stands for any type."""
    return re.fullmatch(r"[A-Z]\d*", a_type.name) is not None


def unify(pattern: Type, wanted: Type, found: Substitution) -> bool:
    """Whether `pattern` can be `wanted`; fills in what its type parameters are then."""
    if is_parameter(pattern):
        return found.setdefault(pattern.name, wanted) == wanted
    if pattern.name != wanted.name or len(pattern.params) != len(wanted.params):
        return False
    return all(
        unify(inner, want, found) for inner, want in zip(pattern.params, wanted.params, strict=True)
    )


def substitute(a_type: Type, found: Mapping[str, Type]) -> Type:
    """The type with its parameters filled in."""
    if is_parameter(a_type):
        return found.get(a_type.name, DYN)
    return Type(a_type.name, tuple(substitute(inner, found) for inner in a_type.params))


def parameters(a_type: Type) -> Iterator[str]:
    """The names of the type parameters in it."""
    if is_parameter(a_type):
        yield a_type.name
    for inner in a_type.params:
        yield from parameters(inner)
