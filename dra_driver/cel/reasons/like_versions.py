# SPDX-License-Identifier: Apache-2.0
"""Where is a version taken for a text or a number, and what says the same of a version?

`driverVersion == "550"` is meant for every version that begins so, and semver("550", true) is 550.0.0 only. `int(driverVersion)` ends
with an error, and `driverVersion.major()` is that number.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from msgspec.structs import replace

from dra_driver.cel.reasons.corrections import (
    Correction,
    bound_in,
    correction,
    digits,
    ordered_versions,
    without_conversion,
)
from dra_driver.cel.reasons.parsers import calls_in, operands, parsing
from dra_driver.cel.reasons.paths import DevicePath, path_of
from dra_driver.cel.reasons.rewrite import NO_ID, called, written
from dra_driver.cel.reasons.version_tests import beginning, equal, first_numbers
from dra_driver.cel.syntax.ast import Call, Constant, Expr, ListLiteral, ParsedAst

Published = Callable[[DevicePath, str], bool]
"""Whether a device has a value at a path; with a version, whether one has this version there."""
_PARTS = 3
_EQUALITIES = ("_==_", "_!=_", "@in")


def like_versions(
    parsed: ParsedAst,
    part: Expr,
    is_version: Callable[[DevicePath], bool],
    is_published: Published,
) -> Iterator[tuple[DevicePath, Correction]]:
    """Yield each version that is ordered, converted, or compared with the first numbers of one, with what to write."""
    yield from ordered_versions(parsed, part, is_version)
    yield from beginnings(parsed, part, is_version, is_published)
    for call in calls_in(part):
        match call:
            case Call(function="int" | "semver", args=(read, *_), target=None):
                version = without_conversion(read)
                path = path_of(version)
                if path and is_version(path):
                    is_semver = call.function == "semver"
                    new = version if is_semver else Call(NO_ID, "major", (), version)
                    yield path, correction(parsed, call, new)
            case _:
                pass


def beginnings(
    parsed: ParsedAst,
    part: Expr,
    is_version: Callable[[DevicePath], bool],
    is_published: Published,
) -> Iterator[tuple[DevicePath, Correction]]:
    """Yield each comparison by ==, != or `in` of a version that needs more than a call around its texts, with the one that was meant.

    Texts with the first numbers of a version are tests of these, unless a device has the version with 0 for the others. `part` is no
    operand of a comparison or of !, so that it has in it all that may need parentheses.
    """
    bound = bound_in(part)
    for call in calls_in(part):
        for read, others in _equalities(call):
            version = without_conversion(read)
            path = path_of(version)
            if path is None or not is_version(path):
                continue
            tests = [_test(parsed, version, path, one, is_published) for one in others]
            needed = version is not read or any(map(_is_more, others, tests))
            told = [one for one in tests if one is not None]
            if needed and told and len(told) == len(others):
                whole = _any_of(list(dict.fromkeys(told)))
                negated = call.function == "_!=_"
                yield path, correction(parsed, call, _not(whole) if negated else whole, bound)


def texts_beside(
    parsed: ParsedAst,
    part: Expr,
    is_version: Callable[[DevicePath], bool],
    passed_over: Collection[int] = (),
) -> Iterator[tuple[DevicePath, Correction]]:
    """Yield each text, alone or in a list, that is equal to a version or not, with the call that parses it, if one can.

    The compiler takes no list of versions and others: there each must be one.
    No other operator and no function takes a version in the place of a text. `passed_over` are comparisons, by their numbers.
    """
    for call in calls_in(part):
        if call.function not in _EQUALITIES or call.id in passed_over:
            continue
        paths = [path for one in operands(call) if (path := path_of(one)) and is_version(path)]
        for path in paths:
            for text in _texts(operands(call)):
                how = parsing(str(text.value), ("semver",))
                if how:
                    because = f"because {written(path)} is a version"
                    right = correction(parsed, text, called(how, replace(text, id=NO_ID)))
                    yield path, replace(right, because=because)


def _texts(parts: Iterable[Expr]) -> Iterator[Constant]:
    for part in parts:
        match part:
            case Constant(value=str()):
                yield part
            case ListLiteral(elements=elements):
                if all(map(_is_text_of_version, elements)):
                    yield from (one for one in elements if isinstance(one, Constant))
            case _:
                pass


def _is_text_of_version(part: Expr) -> bool:
    match part:
        case Constant(value=str(text)):
            return bool(parsing(text, ("semver",)))
        case _:
            return False


def _equalities(call: Call) -> Iterator[tuple[Expr, Sequence[Expr]]]:
    match call:
        case Call(function="_==_" | "_!=_", args=(left, right)):
            yield left, (right,)
            yield right, (left,)
        case Call(function="@in", args=(read, ListLiteral(elements=elements))):
            yield read, elements
        case _:
            pass


def _test(
    parsed: ParsedAst, version: Expr, path: DevicePath, other: Expr, is_published: Published
) -> Call | None:
    """Return the test of a version that a text or number stands for; None if it stands for none."""
    if not isinstance(other, Constant):
        return None
    text = digits(parsed, other)
    numbers = first_numbers(text)
    whole = ".".join(map(str, [*numbers, 0, 0][:_PARTS]))
    if numbers and not (parsing(text, ("semver",)) and is_published(path, whole)):
        return beginning(version, numbers)
    return equal(version, text)


def _is_more(other: Expr, test: Call | None) -> bool:
    """Whether a call around the text is not enough: it is a number, or stands for several versions."""
    is_text = isinstance(other, Constant) and isinstance(other.value, str)
    return not is_text or (test is not None and not _compares(test))


def _compares(test: Call) -> bool:
    """Whether the test compares the whole version."""
    return test.function == "_==_" and path_of(test.args[0]) is not None


def _asks_major(test: Call) -> bool:
    """Whether the test compares the first number of a version, and nothing else."""
    read = test.args[0]
    return test.function == "_==_" and isinstance(read, Call) and read.function == "major"


def _any_of(tests: Sequence[Call]) -> Call:
    """Return one test for all: of first numbers, a list. Others are a tree like that of the parser: each half apart, so that it is not deep."""
    first, *others = tests
    if not others:
        return first
    if all(_asks_major(one) for one in tests):
        numbers = tuple(one.args[1] for one in tests)
        return Call(NO_ID, "@in", (first.args[0], ListLiteral(NO_ID, numbers)))
    middle = len(tests) // 2
    return Call(NO_ID, "_||_", (_any_of(tests[:middle]), _any_of(tests[middle:])))


def _not(test: Call) -> Call:
    if test.function == "_==_":
        return replace(test, function="_!=_")
    return Call(NO_ID, "!_", (test,))
