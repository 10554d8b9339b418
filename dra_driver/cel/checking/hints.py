# SPDX-License-Identifier: Apache-2.0
"""What should the author of an expression write instead?

The API server's message names only the error. Each function here returns a sentence with the correction, or "" if the error is
clear enough. No code depends on the sentences.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from dra_driver.cel import types
from dra_driver.cel.checking import amount_hints
from dra_driver.cel.declarations import Declarations
from dra_driver.cel.types import Kind, Type

_PYTHON = {"True": "true", "False": "false", "None": "null"}
_SYMBOLS = {
    "_<_": "<",
    "_<=_": "<=",
    "_>_": ">",
    "_>=_": ">=",
    "_==_": "==",
    "_!=_": "!=",
    "_+_": "+",
    "_-_": "-",
    "_*_": "*",
    "_/_": "/",
    "_%_": "%",
    "@in": "in",
}
_NUMBERS = frozenset({Kind.INT, Kind.UINT, Kind.DOUBLE})
_ATTRIBUTES = "attributes"


def name(wrong: str, known: Iterable[str]) -> str:
    """Return the hint for an undeclared name."""
    if wrong in ("driver", _ATTRIBUTES, "capacity", "allowMultipleAllocations"):
        return f"Write device.{wrong}: the only variable is device."
    if wrong in ("object", "oldObject", "request", "self", "authorizer", "params"):
        return f"{wrong} is known in other places of Kubernetes; here the only variable is device."
    if wrong in ("True", "False", "None"):
        return f"Write {_PYTHON[wrong]}"
    return _nearest(wrong, known) or (
        "The only variable is device, with device.driver, device.attributes and device.capacity;"
        " text goes in quotes."
    )


def function(wrong: str, declared: Declarations) -> str:
    """Return the hint for an undeclared function."""
    macros = [macro for macro in declared.macros if macro[0] == wrong]
    if macros and wrong not in _ELSEWHERE:
        counts = " or ".join(sorted({str(count) for _, count, _ in macros}))
        how = f"list.{wrong}(…)" if macros[0][2] else f"{wrong}(…)"
        return f"{wrong} is a macro with {counts} argument(s), written {how}"
    if wrong in _ELSEWHERE:
        return _ELSEWHERE[wrong]
    written = [known for known in declared.functions if known[0].isalpha()]
    return _nearest(wrong, [*written, *{macro[0] for macro in declared.macros}])


def field(wrong: str, known: Mapping[str, Type]) -> str:
    """Return the hint for a field that `device` or a message does not have. `known` are its fields."""
    if wrong == "allowMultipleAllocations":
        return "The field exists from Kubernetes 1.34 on, with the feature DRAConsumableCapacity."
    near = _nearest(wrong, known)
    if near or _ATTRIBUTES not in known:
        return near
    return (
        f"device has {', '.join(sorted(known))}; what a driver publishes is in"
        f" device.attributes['driver.example.com'].{wrong} or in device.capacity"
    )


def no_fields(message: str) -> str:
    """Return the hint for a field of a type that has no fields."""
    if message == "kubernetes.Quantity":
        return "A quantity has no fields; compare it with compareTo, isGreaterThan or isLessThan."
    if message == "kubernetes.Semver":
        return "A version has no fields; call .major(), .minor() or .patch(), or compareTo."
    return f"{message} has no fields, only functions."


def selection(target: Type, wrong: str) -> str:
    """Return the hint for a field of a value that is neither a map nor a message."""
    if target.kind is Kind.LIST:
        return f"A list has no fields: take an element, as in list[0].{wrong}, or ask list.exists(x, …)"
    if target.kind is Kind.STRING:
        return f"A string has no fields; a function is called with brackets, as in .{wrong}()"
    return ""


def range_(over: Type) -> str:
    """Return the hint for a comprehension over a value that is neither a list nor a map."""
    if over.kind is Kind.ANY:
        return "Before Kubernetes 1.36 attributes are no lists, or the feature DRAListTypeAttributes is off."
    if over.kind is Kind.STRING:
        return (
            "A string is no list; compare it with == or in, or search it with contains or matches."
        )
    return "all, exists, filter and map work on lists and on the keys of maps."


def result(found: Type) -> str:
    """Return the hint for a selector whose result is no bool."""
    if found == types.INT:
        return "compareTo and size give a number: compare it too, as in a.compareTo(b) >= 0"
    if types.is_optional(found):
        return "Say what counts if the value is missing: .orValue(false)"
    return _half_a_path([found]) or (
        "A selector says true or false of a device: compare the value with something."
    )


def mismatch(wanted: Type, found: Type) -> str:
    """Return the hint for a value of the wrong type."""
    if half := _half_a_path([found]):
        return half
    if wanted.kind is Kind.BOOL and types.is_optional(found):
        return "Say what counts if the value is missing: .orValue(false)"
    if wanted.kind is Kind.BOOL:
        return "Conditions joined by && and || are bool: compare the value with something."
    if types.is_optional(wanted):
        return "The mark ? needs an optional value, as a.?b or optional.of(…) give."
    return "All elements of a list, all keys and all values of a map have one type."


def overload(
    wrong: str, given: Sequence[Type], declared: Declarations, written: Sequence[str]
) -> str:
    """Return the hint for a call without a matching overload. `given` are the types of the arguments, target first, and `written` their texts."""
    names = {one.name for one in given}
    hint = ""
    if half := _half_a_path(given):
        hint = half
    elif wrong in _SYMBOLS and names & {*amount_hints.PARSERS}:
        hint = amount_hints.compared(wrong, given, written)
    elif wrong in amount_hints.METHODS or wrong == "quantity":
        hint = amount_hints.called(wrong, given, written)
    elif any(types.is_optional(one) for one in given):
        hint = (
            "A value may be missing here: say what counts then with .orValue(…), or ask .hasValue()"
        )
    elif wrong in _SYMBOLS and len(given) == 2 and names <= _PRIMITIVES:  # noqa: PLR2004 - two operands
        hint = _convert(wrong, given)
    elif wrong == "_?_:_":
        hint = "In condition ? a : b the condition is bool, and a and b have one type."
    elif wrong == "_[_]" and given[0] == types.DEVICE:
        hint = "device has fields, not keys: device.driver, device.attributes['…'], device.capacity['…']"
    return hint or _signatures(wrong, declared)


def _half_a_path(given: Iterable[Type]) -> str:
    """Return the hint for a path to a value that lacks the domain or the name; "" if none of the values is one."""
    for one in given:
        if one.kind is not Kind.MAP:
            continue
        value = one.parameters[1]
        inner = value.parameters[1] if value.kind is Kind.MAP else value
        if inner.name == "kubernetes.Quantity":
            return f"{_FIRST_THE_DOMAIN} device.capacity['driver.example.com'].memory"
        if inner.kind in (Kind.DYN, Kind.ANY):
            return f"{_FIRST_THE_DOMAIN} device.attributes['driver.example.com'].model"
    return ""


_FIRST_THE_DOMAIN = (
    "First comes the domain, which is mostly the driver's name, then a point and the name, as in"
)


_PRIMITIVES = frozenset({"int", "uint", "double", "string", "bool"})
_ELSEWHERE = {
    "version": "A version is written semver('1.2.3')",
    "len": "The length is written size(x) or x.size()",
    "length": "The length is written size(x) or x.size()",
    "toLower": "Write lowerAscii()",
    "toUpper": "Write upperAscii()",
    "any": "Write exists(x, …)",
    "some": "Write exists(x, …)",
    "existsOne": "Write exists_one(x, …)",
    "includes": "includes exists from Kubernetes 1.36 on; before, write value in list",
}


def _convert(wrong: str, given: Sequence[Type]) -> str:
    kinds = {one.kind for one in given}
    if wrong == "_+_" and Kind.STRING in kinds and len(kinds) == 2:  # noqa: PLR2004 - a string and another
        return "Only two strings are joined by +: write string(x) for the other one."
    if kinds <= _NUMBERS and len(kinds) == 2:  # noqa: PLR2004 - two kinds of numbers
        return f"Both sides of {_SYMBOLS[wrong]} have one type: convert with int(x), uint(x) or double(x)"
    if wrong == "@in":
        return "On the right of in stands a list or a map; part of a text is found by text.contains(part)"
    if len(kinds) == 2:  # noqa: PLR2004 - two kinds of values
        return f"Both sides of {_SYMBOLS[wrong]} have one type; here they are {given[0]} and {given[1]}."
    return ""


def _signatures(wrong: str, declared: Declarations) -> str:
    shown: list[str] = []
    for one in declared.functions.get(wrong, ()):
        written = [str(argument) for argument in one.arguments]
        if wrong[0].isalpha():
            target = f"{written.pop(0)}." if one.member else ""
            shown.append(f"{target}{wrong}({', '.join(written)})")
    return f"There is {'; '.join(shown)}" if shown else ""


def _nearest(wrong: str, known: Iterable[str]) -> str:
    near = get_close_matches(wrong, known, n=1, cutoff=0.7)
    return f"Did you mean {near[0]}?" if near else ""
