# SPDX-License-Identifier: Apache-2.0
"""How is an expression rewritten with another name at a path, or with a check that a path exists?"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from dra_driver.cel.reasons.paths import DevicePath, domain_of, path_of
from dra_driver.cel.syntax.ast import Call, Constant, Expr, MapEntry, ParsedAst, Select, StructField
from dra_driver.cel.syntax.unparse import literal, unparse
from dra_driver.model.printable import without_middle

NO_ID = 0
"""The number of a node that is in no macro."""
_LONGEST = 300
"""Characters of what is to be written, in a sentence."""
AnyNode = TypeVar("AnyNode", bound=Expr | MapEntry | StructField)


def written(path: DevicePath) -> str:
    """Return the path as CEL text."""
    return f"device.{path.kind}[{literal(path.domain)}].{path.name}"


def brief(text: str) -> str:
    """Return what is to be written as a sentence has it. It may have 10 KiB."""
    return without_middle(text, _LONGEST)


def guard(path: DevicePath) -> str:
    """Return the condition that the device has the path: has(…)."""
    return f"has({written(path)})"


def presence(part: Expr) -> DevicePath | None:
    """Return the path if the condition only tests whether it exists: has(…), or "name" in a domain. Else None."""
    match part:
        case Select(test_only=True):
            return path_of(part)
        case Call(function="@in", args=(Constant(value=str(name)), container)):
            domain = domain_of(container)
            return DevicePath(*domain, name) if domain else None
        case _:
            return None


def renamed(parsed: ParsedAst, names: Mapping[DevicePath, str]) -> str:
    """Return the text of the expression with other names at these paths, also inside macros."""
    macros = {number: _renamed(call, names) for number, call in parsed.macros.items()}
    return unparse(replace(parsed, root=_renamed(parsed.root, names), macros=macros))


def wrapped(parsed: ParsedAst, parsers: Mapping[DevicePath, str]) -> str:
    """Return the text of the expression with a call around each of these paths; a call is written with … for the path."""
    macros = {number: _wrapped(call, parsers) for number, call in parsed.macros.items()}
    return unparse(replace(parsed, root=_wrapped(parsed.root, parsers), macros=macros))


def _wrapped(part: AnyNode, parsers: Mapping[DevicePath, str]) -> AnyNode | Call:
    if isinstance(part, Call) and part.function == "has":
        return part  # a macro, and its operand is a path that need not be there
    if isinstance(part, Select | Call):
        path = path_of(part)
        if path is not None and path in parsers and presence(part) is None:
            return called(parsers[path], part)
    return replace(part, **parts_of(part, lambda one: _wrapped(one, parsers)))


def called(how: str, part: Expr) -> Call:
    """Return a call with this part, for example of "semver(…, true)"."""
    function, _, rest = how.partition("(")
    normal = (Constant(NO_ID, value=True),) if "true" in rest else ()
    return Call(NO_ID, function, (part, *normal))


def _renamed(part: AnyNode, names: Mapping[DevicePath, str]) -> AnyNode:
    changed = parts_of(part, lambda one: _renamed(one, names))
    return replace(part, **{**changed, **_name_of(part, names)})


def parts_of(part: AnyNode, change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the fields of the node that contain other nodes, with these changed."""
    changed: dict[str, Any] = {}
    for field in part.__struct_fields__:
        value = getattr(part, field)
        if isinstance(value, Expr):
            changed[field] = change(value)
        elif isinstance(value, tuple):
            changed[field] = tuple(change(one) for one in value)
    return changed


def _name_of(part: object, names: Mapping[DevicePath, str]) -> dict[str, Any]:
    """Return the fields of the node that contain a renamed name, with their new values."""
    match part:
        case Select() if (path := path_of(part)) and path in names:
            return {"field": names[path]}
        case Call(args=(operand, Constant(id=number))) if (path := path_of(part)) and path in names:
            return {"args": (operand, Constant(number, names[path]))}
        case Call(args=(Constant(id=number), container)) if (
            path := presence(part)
        ) and path in names:
            return {"args": (Constant(number, names[path]), container)}
        case _:
            return {}
