# SPDX-License-Identifier: Apache-2.0
"""Which tests of a version are tests for strings, and what says the same of a version?

`driverVersion.startsWith("550")` ends with an error for a version: it has numbers, and `driverVersion.major() == 550` asks for one.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from dra_driver.cel.reasons.corrections import Correction, bound_in, correction, without_conversion
from dra_driver.cel.reasons.parsers import TEXT_TESTS, calls_in, operands, parsing
from dra_driver.cel.reasons.paths import DevicePath, path_of
from dra_driver.cel.reasons.rewrite import NO_ID, called
from dra_driver.cel.syntax.ast import Call, Constant, Expr, ParsedAst

_IN_WORDS = "ask .major(), .minor() or .patch(), or compare it with semver(…)"
_NUMBERS = ("major", "minor", "patch")
_FEWER = re.compile(r"v?([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.[xX*]){0,2}\.?")
"""The first one or two numbers of a version, which may end with a point, or with letters for the other numbers: 550.54.x."""
_DIGITS = 3
"""Of a driver's branch, as in 550. Fewer digits without a point after them may be the beginning of a number: "5" of 535 and 550."""
_OPEN = re.compile(rf"(?:.*[^0-9])?[0-9]{{1,{_DIGITS - 1}}}|.*-.*")
"""A text after which the last number of a version, or the name of a pre-release, may go on."""


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
    bound = bound_in(part)
    for call in calls_in(part):
        if call.function not in TEXT_TESTS:
            continue
        read, *others = operands(call)
        read = without_conversion(read)
        path = path_of(read)
        if path and is_version(path):
            new = _asked(call.function, read, others)
            right = correction(parsed, call, new, bound) if new else None
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
    numbers = first_numbers(text)
    return beginning(read, numbers) if numbers else equal(read, text)


def first_numbers(text: str) -> list[int]:
    """Return the numbers of a text that has only the first one or two of a version; none of any other text."""
    found = _FEWER.fullmatch(text)
    return [int(number) for number in found.groups() if number is not None] if found else []


def beginning(read: Expr, numbers: Sequence[int]) -> Call:
    """Return the test that a version begins with these numbers, at least one."""
    tests = [
        Call(NO_ID, "_==_", (Call(NO_ID, name, (), read), Constant(NO_ID, number)))
        for name, number in zip(_NUMBERS, numbers, strict=False)
    ]
    first, *more = tests
    return Call(NO_ID, "_&&_", (first, *more)) if more else first


def equal(read: Expr, text: str) -> Call | None:
    """Return the comparison of a version with the one of a text; None if the text is none."""
    how = parsing(text, ("semver",))
    return Call(NO_ID, "_==_", (read, called(how, Constant(NO_ID, text)))) if how else None
