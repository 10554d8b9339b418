# SPDX-License-Identifier: Apache-2.0
"""Which tests of a version are tests for strings, and what says the same of a version?

`driverVersion.startsWith("550")` ends with an error for a version: it has numbers, and `driverVersion.major() == 550` asks for one.
"""

import re
from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.cel.reasons.corrections import Correction, correction
from dra_driver.cel.reasons.parsers import ORDER, TEXT_TESTS, calls_in, operands, parsing
from dra_driver.cel.reasons.paths import DevicePath, path_of
from dra_driver.cel.reasons.rewrite import NO_ID, called
from dra_driver.cel.syntax.ast import Call, Constant, Expr, ParsedAst

_IN_WORDS = "ask .major(), .minor() or .patch(), or compare it with semver(…)"
_NUMBERS = ("major", "minor", "patch")
_FEWER = re.compile(r"v?([0-9]{1,9})(?:\.([0-9]{1,9}))?\.?")
"""The first one or two numbers of a version, which may end with a point."""
_DIGITS = 3
"""Of a driver's branch, as in 550. Fewer digits without a point after them may be the beginning of a number: "5" of 535 and 550."""
_OPEN = re.compile(rf"(?:.*[^0-9])?[0-9]{{1,{_DIGITS - 1}}}|.*-.*")
"""A text after which the last number of a version, or the name of a pre-release, may go on."""
_BINDING = frozenset({"!_", "_==_", "_!=_", "@in", *ORDER})
"""Operators that bind as a comparison does, or tighter."""


class TestedAsText(Struct, frozen=True):
    """A call of a function for strings with the version at a path; `correction` is None if it is not clear which versions are meant."""

    path: DevicePath
    call: Call
    correction: Correction | None

    @property
    def write(self) -> str:
        """What to write in its place."""
        return f"write {self.correction.write}" if self.correction else _IN_WORDS


def tested_as_texts(
    parsed: ParsedAst, part: Expr, is_version: Callable[[DevicePath], bool]
) -> Iterator[TestedAsText]:
    """Yield each version that is tested by startsWith, endsWith, contains or matches."""
    calls = list(calls_in(part))
    bound = {id(one) for call in calls if call.function in _BINDING for one in operands(call)}
    for call in calls:
        if call.function not in TEXT_TESTS:
            continue
        read, *others = operands(call)
        path = path_of(read)
        if path and is_version(path):
            new = _asked(call.function, read, others)
            right = correction(parsed, call, new) if new else None
            if right and id(call) in bound:
                right = replace(right, write=f"({right.write})")
            yield TestedAsText(path, call, right)


def _asked(function: str, read: Expr, others: list[Expr]) -> Expr | None:
    """Return the test of the numbers with which the version begins; None if the text is no such beginning."""
    is_whole = False
    match others:
        case [Constant(value=str(text))] if function == "startsWith":
            pass
        case [Constant(value=str(text))] if function == "matches" and text.startswith("^"):
            is_whole = text.endswith("$") and not text.endswith(".*$")
            text = text[1:].removesuffix("$").removesuffix(".*").replace(r"\.", ".")
        case _:
            return None
    if not is_whole and _OPEN.fullmatch(text):
        return None
    found = _FEWER.fullmatch(text)
    if found is None:
        how = parsing(text, ("semver",))
        return Call(NO_ID, "_==_", (read, called(how, Constant(NO_ID, text)))) if how else None
    wanted = [int(number) for number in found.groups() if number is not None]
    tests: list[Expr] = [
        Call(NO_ID, "_==_", (Call(NO_ID, name, (), read), Constant(NO_ID, number)))
        for name, number in zip(_NUMBERS, wanted, strict=False)
    ]
    first, *more = tests
    return Call(NO_ID, "_&&_", (first, *more)) if more else first
