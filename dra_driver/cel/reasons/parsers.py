# SPDX-License-Identifier: Apache-2.0
"""Which calls make a version or a quantity of a text, and which texts of an expression need one?

In `device.attributes["d"].driverVersion == "570.1.0"` the evaluation ends with an error if the attribute is a version: a version
cannot be compared with a text. With `semver("570.1.0")` it can.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.cel.reasons.paths import DevicePath, children, path_of
from dra_driver.cel.reasons.rewrite import AnyNode, called, parts_of
from dra_driver.cel.syntax.ast import Call, Constant, Expr, ListLiteral, ParsedAst
from dra_driver.cel.syntax.unparse import literal, unparse

PARSERS = ("quantity", "semver")
ORDER = ("_<_", "_<=_", "_>_", "_>=_")
TEXT_TESTS = {
    "startsWith": "does not start with",
    "endsWith": "does not end with",
    "contains": "does not contain",
    "matches": "does not match",
}
"""The functions that ask about a part of a string, and what their answer `false` means."""
_EQUALITIES = ("_==_", "_!=_", "@in")
MIRRORED = {
    "_<_": "_>_",
    "_<=_": "_>=_",
    "_>_": "_<_",
    "_>=_": "_<=_",
    "_==_": "_==_",
    "_!=_": "_!=_",
}
"""The comparison that says the same of the operands in the other order."""
_CALLS = (
    # A number of 19 digits may be more than a version can have.
    (
        "semver",
        re.compile(r"(0|[1-9][0-9]{0,17})(\.(0|[1-9][0-9]{0,17})){2}([-+].+)?"),
        "semver(…)",
    ),
    # The version of a driver may have leading zeros, as 570.01.05. With `true` the function drops them.
    ("semver", re.compile(r"v?[0-9]{1,18}(\.[0-9]{1,18}){0,2}"), "semver(…, true)"),
    ("quantity", re.compile(r"[+-]?[0-9]+(\.[0-9]+)?[A-Za-z]*"), "quantity(…)"),
)
"""Which texts the functions can parse, and how."""


def parsing(text: str, functions: Collection[str]) -> str:
    """Return the call of one of these functions that can parse the text, with … for the text; "" if there is none."""
    calls = (
        call
        for function, pattern, call in _CALLS
        if function in functions and pattern.fullmatch(text)
    )
    return next(calls, "")


def calls_in(root: Expr) -> Iterator[Call]:
    """Yield all calls of an expression."""
    todo = [root]
    while todo:
        part = todo.pop()
        if isinstance(part, Call):
            yield part
        todo.extend(children(part))


def operands(call: Call) -> list[Expr]:
    """Return the target of the call, if it has one, and its arguments."""
    return [*([call.target] if call.target else ()), *call.args]


class TextBesideVersion(Struct, frozen=True):
    """A text that is compared with the version at a path, and the call that parses it, with … for the text."""

    path: DevicePath
    text: str
    call: str

    @property
    def right(self) -> str:
        """The call with the text."""
        return self.call.replace("…", literal(self.text))


def texts_beside(
    root: Expr, is_version: Callable[[DevicePath], bool], passed_over: Collection[int] = ()
) -> Iterator[TextBesideVersion]:
    """Yield each text, alone or in a list, that is equal to a version or not, if it can be parsed as one.

    No other operator and no function takes a version in the place of a text. `passed_over` are comparisons, by their numbers.
    """
    for call in calls_in(root):
        if call.function not in _EQUALITIES or call.id in passed_over:
            continue
        paths = [path for one in operands(call) if (path := path_of(one)) and is_version(path)]
        for path in paths:
            for text in _texts(operands(call)):
                how = parsing(text, ("semver",))
                if how:
                    yield TextBesideVersion(path, text, how)


def _texts(parts: Iterable[Expr]) -> Iterator[str]:
    for part in parts:
        match part:
            case Constant(value=str(text)):
                yield text
            case ListLiteral(elements=elements):
                yield from _texts(elements)
            case _:
                pass


def as_versions(parsed: ParsedAst, found: Collection[TextBesideVersion]) -> str:
    """Return the text of the expression with a call around each of these texts, where it stands beside its path."""
    macros = {number: _as_versions(call, found) for number, call in parsed.macros.items()}
    return unparse(replace(parsed, root=_as_versions(parsed.root, found), macros=macros))


def _as_versions(part: AnyNode, found: Collection[TextBesideVersion]) -> AnyNode:
    changed = parts_of(part, lambda one: _as_versions(one, found))
    if isinstance(part, Call) and part.function in _EQUALITIES:
        paths = set(map(path_of, operands(part)))
        calls = {one.text: one.call for one in found if one.path in paths}
        changed |= parts_of(replace(part, **changed), lambda one: _parsed(one, calls))
    return replace(part, **changed)


def _parsed(part: Expr, calls: Mapping[str, str]) -> Expr:
    match part:
        case Constant(value=str(text)) if text in calls:
            return called(calls[text], part)
        case ListLiteral(elements=elements):
            return replace(part, elements=tuple(_parsed(one, calls) for one in elements))
        case _:
            return part
