# SPDX-License-Identifier: Apache-2.0
"""Which texts in quantity(…) and semver(…) can these not parse, and what was most likely meant?

The API server takes such an expression, and its evaluation ends with the same error for every device.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.library.quantity import parse_quantity
from dra_driver.cel.library.semver import parse_normalized, parse_semver
from dra_driver.cel.reasons.corrections import Correction, correction
from dra_driver.cel.reasons.parsers import calls_in
from dra_driver.cel.reasons.rewrite import called
from dra_driver.cel.syntax import amounts
from dra_driver.cel.syntax.ast import Call, Constant, Expr, ParsedAst
from dra_driver.cel.syntax.unparse import unparse
from dra_driver.model.printable import printable

AMOUNT = "a number, as in 8 or 40Gi"
VERSION = "three numbers, as in 12.4.0"
_LONGEST = 60
"""Characters of a text that are told."""


class Mistyped(Struct, frozen=True):
    """A call whose text cannot be parsed, and what to write in its place. `corrections` are what may have been meant; none if that is not clear."""

    call: Call
    wrong: str
    write: str
    corrections: tuple[Correction, ...] = ()

    @property
    def says(self) -> str:
        """The whole sentence."""
        return f"{self.wrong}: write {self.write}"


def mistyped_texts(parsed: ParsedAst, part: Expr) -> Iterator[Mistyped]:
    """Yield each text in quantity(…) or semver(…) that is no quantity or no version."""
    for call in calls_in(part):
        match call:
            case Call(function="quantity", args=(Constant(value=str(text)) as constant,)):
                if not _parses(parse_quantity, text):
                    yield _quantity(parsed, call, constant, text)
            case Call(function="semver", args=(Constant(value=str(text)) as constant,)):
                if not _parses(parse_semver, text):
                    yield _version(parsed, call, constant, text)
            case Call(function="semver", args=(Constant(value=str(text)), Constant(value=True))):
                if not _parses(parse_normalized, text):
                    yield Mistyped(call, _no("version", text), VERSION)
            case _:
                pass


def _quantity(parsed: ParsedAst, call: Call, constant: Constant, text: str) -> Mistyped:
    meant = [one for one in amounts.readings(text) if _parses(parse_quantity, one)]
    new = (replace(call, args=(replace(constant, value=one),)) for one in meant)
    return Mistyped(
        call,
        _no("quantity", text),
        _either(meant),
        tuple(correction(parsed, call, one) for one in new),
    )


def _either(meant: Sequence[str]) -> str:
    told = [f"{one} ({amounts.bytes_in(one)})" for one in meant] if len(meant) > 1 else meant
    return " or ".join(told) or AMOUNT


def _version(parsed: ParsedAst, call: Call, constant: Constant, text: str) -> Mistyped:
    """Tell a version with fewer numbers than three or with leading zeros, as drivers have them: semver(…, true) takes both."""
    wrong = _no("version", text)
    if not _parses(parse_normalized, text):
        return Mistyped(call, wrong, VERSION)
    new = called("semver(…, true)", constant)
    return Mistyped(call, wrong, unparse(parsed, new), (correction(parsed, call, new),))


def _no(what: str, text: str) -> str:
    return f"'{printable(text, most=_LONGEST)}' is no {what}"


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except EvaluationError:
        return False
    return True
