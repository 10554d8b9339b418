# SPDX-License-Identifier: Apache-2.0
"""Which tests of a version are tests for strings, and what says the same of a version?

`driverVersion.startsWith("550")` ends with an error for a version: it has numbers, and `driverVersion.major() == 550` asks for one.
"""

import re
from collections.abc import Callable, Iterator

from msgspec import Struct

from dra_driver.cel.reasons.corrections import Correction, correction
from dra_driver.cel.reasons.parsers import TEXT_TESTS, calls_in, operands, parsing
from dra_driver.cel.reasons.paths import DevicePath, path_of
from dra_driver.cel.reasons.rewrite import NO_ID, called
from dra_driver.cel.syntax.ast import Call, Constant, Expr, ParsedAst

_IN_WORDS = "ask .major(), .minor() or .patch(), or compare it with semver(…)"
_NUMBERS = ("major", "minor", "patch")
_FEWER = re.compile(r"v?([0-9]{1,9})(?:\.([0-9]{1,9}))?\.?")
"""The first one or two numbers of a version, which may end with a point."""
_DIGITS = 3
"""Of a driver's branch, as in 550. Fewer digits without a point may be the beginning of a number: "5" of 535 and 550."""


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
    for call in calls_in(part):
        if call.function not in TEXT_TESTS:
            continue
        read, *others = operands(call)
        path = path_of(read)
        if path and is_version(path):
            new = _asked(call.function, read, others)
            yield TestedAsText(path, call, correction(parsed, call, new) if new else None)


def _asked(function: str, read: Expr, others: list[Expr]) -> Expr | None:
    """Return the test of the numbers with which the version begins; None if the text is no such beginning."""
    match others:
        case [Constant(value=str(text))] if function == "startsWith":
            pass
        case [Constant(value=str(text))] if function == "matches" and text.startswith("^"):
            text = text[1:].removesuffix("$").removesuffix(".*").replace(r"\.", ".")
        case _:
            return None
    if "." not in text and len(text) < _DIGITS:
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
