# SPDX-License-Identifier: Apache-2.0
"""Which small change of an expression is most likely what its author meant?

A condition that ends with an error on a device may compare a version with a text by `>=`, read a capacity as an attribute, misspell a
domain. Each of these is told with the part to write instead.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.cel.reasons.parsers import MIRRORED, ORDER, calls_in, operands, parsing
from dra_driver.cel.reasons.paths import DevicePath, path_of
from dra_driver.cel.reasons.rewrite import (
    NO_ID,
    AnyNode,
    brief,
    called,
    parts_of,
    presence,
    written,
)
from dra_driver.cel.syntax import amounts
from dra_driver.cel.syntax.ast import Call, Constant, Expr, Identifier, ParsedAst, Select
from dra_driver.cel.syntax.unparse import unparse, written_double

_ONE = {"int": "an int", "string": "a string"}
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_METHODS = ("compareTo", "isGreaterThan", "isLessThan")
_BINDING = frozenset({"!_", "_==_", "_!=_", "@in", *ORDER})
"""Operators that bind as a comparison does, or tighter."""
_LOOSE = ("_&&_", "_==_", "_!=_")
"""Operators that bind as a comparison does, or less. Alternatives bind least, and may stand beside &&."""


class Correction(Struct, frozen=True):
    """The node with this number is replaced by `new`; `instead` and `write` are their texts. `because` is why, if these do not say it."""

    number: int
    new: Expr
    instead: str
    write: str
    because: str = ""

    def instead_in(self, part: Expr) -> str:
        """Return " instead of …" for a sentence about a condition, or "" if this is the whole condition."""
        return "" if self.number == part.id else f" instead of {brief(self.instead)}"


def replaced(parsed: ParsedAst, corrections: Mapping[int, Expr]) -> str:
    """Return the text of the expression with other nodes in the place of those with these numbers, also inside macros."""
    macros = {number: _replaced(call, corrections) for number, call in parsed.macros.items()}
    return unparse(replace(parsed, root=_replaced(parsed.root, corrections), macros=macros))


def _replaced(part: AnyNode, corrections: Mapping[int, Expr]) -> AnyNode | Expr:
    if isinstance(part, Expr) and part.id in corrections:
        return corrections[part.id]
    return replace(part, **parts_of(part, lambda one: _replaced(one, corrections)))


def ordered_by_type(
    parsed: ParsedAst, part: Expr, type_of: Callable[[DevicePath], str]
) -> Iterator[tuple[str, Sequence[Correction]]]:
    """Yield a sentence about each comparison by < or > with a constant of another type than the attribute, and the comparison with its type.

    `type_of` says whether a path has an int or a string; "" for anything else.
    """
    for call, sign, left, right in _comparisons(part):
        path = path_of(left)
        kind = type_of(path) if path and sign in ORDER else ""
        other = _type_of(right)
        if path and kind and other and other != kind:
            number = _whole(right) if kind == "int" else None
            says = f"{path.name} is {_ONE[kind]}, and {unparse(parsed, right)} is {_ONE[other]}"
            if number is None:
                yield f"{says}: compare it with {_ONE[kind]}", ()
            else:
                new = Call(NO_ID, sign, (left, Constant(NO_ID, number)))
                yield f"{says}: write {number}", (correction(parsed, call, new),)


def _type_of(part: Expr) -> str:
    """Return the type of a constant that is an int or a string; "" for anything else."""
    match part:
        case Constant(value=bool()):
            return ""
        case Constant(value=int()):
            return "int"
        case Constant(value=str()):
            return "string"
        case _:
            return ""


def _whole(part: Expr) -> int | None:
    """Return the int that a text stands for."""
    match part:
        case Constant(value=str(text)) if _WHOLE.fullmatch(text):
            return int(text)
        case _:
            return None


def ordered_versions(
    parsed: ParsedAst, part: Expr, is_version: Callable[[DevicePath], bool]
) -> Iterator[tuple[DevicePath, Correction]]:
    """Yield each comparison by < or > of a version with a text or number: versions are compared by compareTo only."""
    for call, sign, read, right in _comparisons(part):
        left = without_conversion(read)
        path = path_of(left)
        if path and sign in ORDER and is_version(path) and isinstance(right, Constant):
            text = digits(parsed, right)
            how = parsing(text, ("semver",))
            if how:
                new = _compared(sign, left, called(how, replace(right, value=text)))
                yield path, correction(parsed, call, new)


def without_conversion(part: Expr) -> Expr:
    """Return the path in double(…) or string(…); any other part as it is."""
    match part:
        case Call(function="double" | "string", args=(read,), target=None) if path_of(read):
            return read
        case _:
            return part


def digits(parsed: ParsedAst, constant: Constant) -> str:
    """Return the text of the constant, a number as its author wrote it: as a version 550.90 is more than 550.54, and 550.9 is less."""
    if isinstance(constant.value, float):
        return written_double(parsed, constant)
    return str(constant.value)


def capacities(
    parsed: ParsedAst, part: Expr, is_capacity: Callable[[DevicePath], bool]
) -> Iterator[tuple[DevicePath, Correction]]:
    """Yield each comparison of an attribute that is a capacity of the device, with the comparison of that capacity."""
    for call, sign, left, right in _comparisons(part):
        path = path_of(left)
        if path and path.kind == "attributes" and is_capacity(path):
            amount = _amount(parsed, path.name, right)
            if amount:
                new = _compared(sign, _read(replace(path, kind="capacity")), _quantity(amount))
                yield path, correction(parsed, call, new)
    yield from _called_capacities(parsed, part, is_capacity)


def _called_capacities(
    parsed: ParsedAst, part: Expr, is_capacity: Callable[[DevicePath], bool]
) -> Iterator[tuple[DevicePath, Correction]]:
    """Yield each call of such an attribute, as in a.compareTo(b), with the call of the capacity."""
    for call in calls_in(part):
        match call:
            case Call(function=function, target=target, args=(other,)) if (
                function in _METHODS and target is not None
            ):
                path = path_of(target)
                if path and path.kind == "attributes" and is_capacity(path):
                    right = _as_quantity(parsed, path.name, other)
                    if right is not None:
                        read = _read(replace(path, kind="capacity"))
                        new = replace(call, target=read, args=(right,))
                        yield path, correction(parsed, call, new)
            case _:
                pass


def _as_quantity(parsed: ParsedAst, name: str, part: Expr) -> Expr | None:
    """Return the quantity that the capacity with this name is compared with, in the unit that is meant; None if it is none."""
    match part:
        case Call(function="quantity", args=(inner,)):
            amount = _amount(parsed, name, inner)
            return _quantity(amount) if amount else part
        case _:
            return part if path_of(part) else None


def _quantity(amount: str) -> Expr:
    return Call(NO_ID, "quantity", (Constant(NO_ID, amount),))


def _amount(parsed: ParsedAst, name: str, part: Expr) -> str:
    """Return the amount of the capacity with this name that a number or a text stands for; "" if it is none."""
    match part:
        case Constant(value=bool()):
            return ""
        case Constant(value=int() | float() | str()):
            return amounts.quantity(name, digits(parsed, part))
        case _:
            return ""


def domains(
    parsed: ParsedAst, part: Expr, near: Callable[[DevicePath], str]
) -> Iterator[tuple[str, Correction]]:
    """Yield each path with a mistyped domain, with the domain that was meant, which `near` says."""
    todo = [part, *calls_in(part), *(one for call in calls_in(part) for one in operands(call))]
    for one in dict.fromkeys(todo):
        path = path_of(one) if presence(one) is None else None
        domain = near(path) if path else ""
        if path and domain:
            new = _read(replace(path, domain=domain))
            yield domain, Correction(one.id, new, written(path), unparse(parsed, new))


def _comparisons(part: Expr) -> Iterator[tuple[Call, str, Expr, Expr]]:
    """Yield each comparison, with the path on the left."""
    for call in calls_in(part):
        match call:
            case Call(function=sign, args=(left, right), target=None) if sign in MIRRORED:
                yield call, sign, left, right
                yield call, MIRRORED[sign], right, left
            case _:
                pass


def _compared(sign: str, left: Expr, right: Expr) -> Expr:
    return Call(NO_ID, sign, (Call(NO_ID, "compareTo", (right,), left), Constant(NO_ID, 0)))


def _read(path: DevicePath) -> Expr:
    """Return the expression that reads a path."""
    whole = Select(NO_ID, Identifier(NO_ID, "device"), path.kind)
    return Select(NO_ID, Call(NO_ID, "_[_]", (whole, Constant(NO_ID, path.domain))), path.name)


def bound_in(part: Expr) -> frozenset[int]:
    """Return which nodes are operands of a comparison or of !, each as its `id()`."""
    calls = (call for call in calls_in(part) if call.function in _BINDING)
    return frozenset(id(one) for call in calls for one in operands(call))


def correction(parsed: ParsedAst, old: Expr, new: Expr, bound: Collection[int] = ()) -> Correction:
    """Return the correction that writes a new node in the place of an old one, in parentheses where its text needs them.

    `bound` are nodes that an operator binds tightly.
    """
    write = unparse(parsed, new)
    function = new.function if isinstance(new, Call) else ""
    if function == "_||_" or (function in _LOOSE and id(old) in bound):
        write = f"({write})"
    return Correction(old.id, new, unparse(parsed, old), write)
