# SPDX-License-Identifier: Apache-2.0
"""The function format(): `"%s has %d".format(["gpu-0", 8])`, with the verbs s d f e b x X o of ext.Strings, version 2.

%f and %e write numbers for English readers: with commas between thousands, and the exponent as a power of ten (10⁶).
Source: cel-go ext/formatting.go, golang.org/x/text/message.
"""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple

from dra_driver.cel import golang, values, work
from dra_driver.cel.failures import Aborted, EvaluationError
from dra_driver.cel.library import conversions
from dra_driver.cel.syntax.ast import Uint
from dra_driver.cel.values import Timestamp, TypeValue

Clause = Callable[[object], str]

_PRECISION = 6
_FILLED = 255
_SMALLEST_DIGIT = 1100  # No double has a digit further behind the decimal point.
_LONGEST = 10**6
_QUOTED_AT_ONCE = 50_000
_TIMES = "\N{MULTIPLICATION SIGN}"
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_DIGITS = re.compile(r"\.([0-9]*)")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_CLAUSE_ERROR = "could not parse formatting clause: "
_FORMAT_ERROR = "error during formatting: "


def format_text(template: str, arguments: list[object]) -> str:
    """Return the template with each clause replaced by its argument. Raises EvaluationError if they do not match."""
    counter = work.current()
    written: list[str] = []
    position, used, whole = 0, 0, 0
    while position < len(template):
        if template.startswith("%%", position):
            length, shown = len("%%"), "%"
        elif template[position] == "%":
            length, shown = _clause(template, position, arguments, used)
            used += 1
        else:
            end = template.find("%", position)
            shown = template[position : end if end >= 0 else None]
            length = len(shown)
        # All parts can be one long text, so the length is checked before they are put together.
        whole += len(shown)
        counter.text(whole, added=len(shown))
        counter.steps(1)
        written.append(shown)
        position += length
    return "".join(written)


class Verb(NamedTuple):
    """The parsed form of a clause."""

    letter: str
    precision: int


def parse(template: str) -> list[str | Verb]:
    """Return the texts and the clauses of a template, in order. Raises EvaluationError."""
    parts: list[str | Verb] = []
    position = 0
    while position < len(template):
        if template[position] != "%" or template.startswith("%%", position):
            parts.append(template[position])
            position += 1 + (template[position] == "%")
            continue
        if position + 1 == len(template):
            raise EvaluationError("unexpected end of string")
        length, verb, precision = _verb(template, position)
        parts.append(Verb(verb, precision))
        position += length
    return parts


def write(verb: Verb, argument: object) -> str:
    """Return the argument as a clause writes it. Raises EvaluationError."""
    return _write(verb.letter, verb.precision, argument)


def _clause(template: str, start: int, arguments: list[object], used: int) -> tuple[int, str]:
    """Return the length of the clause that starts here, and the text that it becomes."""
    if used >= len(arguments):
        raise EvaluationError(f"index {used} out of range")
    if start + 1 == len(template):
        raise EvaluationError("unexpected end of string")
    length, verb, precision = _verb(template, start)
    try:
        return length, _write(verb, precision, arguments[used])
    except Aborted:
        raise
    except EvaluationError as error:
        raise EvaluationError(_FORMAT_ERROR + error.message) from error


def _verb(template: str, start: int) -> tuple[int, str, int]:
    """Return the length of the clause that starts here with a percent sign, its verb and its precision."""
    position, precision = start + 1, _PRECISION
    found = _DIGITS.match(template, position)
    if found:
        position = found.end()
        if position >= len(template):
            raise EvaluationError(_precision_error("could not find end of precision specifier"))
        precision = _precision(found[1])
    # cel-go reads bytes, so its message shows only the first byte of a letter outside ASCII.
    verb = chr(golang.utf8(template[position])[0])
    if verb not in _VERBS:
        raise EvaluationError(f'{_CLAUSE_ERROR}unrecognized formatting clause "{verb}"')
    return position + 1 - start, verb, precision


def _precision(digits: str) -> int:
    parsing = f"error while converting precision to integer: strconv.Atoi: parsing {golang.quote(digits)}: "
    if not digits:
        raise EvaluationError(_precision_error(parsing + "invalid syntax"))
    precision = golang.integer(digits)
    if precision > values.INT_MAX:
        raise EvaluationError(_precision_error(parsing + "value out of range"))
    return precision


def _precision_error(problem: str) -> str:
    return f"{_CLAUSE_ERROR}error while parsing precision: {problem}"


def _write(verb: str, precision: int, argument: object) -> str:
    if verb in ("f", "e"):
        return _double(verb, precision, argument)
    return _VERBS[verb](argument)


# --- %s ---------------------------------------------------------------------------------------------------------------


def _string(argument: object) -> str:
    if isinstance(argument, list):
        return _list(argument)
    if isinstance(argument, dict):
        return _map(argument)
    if argument is None:
        return "null"
    try:
        return conversions.to_string(argument)
    except EvaluationError as error:
        raise EvaluationError(f'could not convert argument "{error}" to string') from error
    except KeyError:
        raise EvaluationError(
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, "
            f"durations, and timestamps, was given {values.kind(argument)}"
        ) from None


def _list(elements: list[object]) -> str:
    work.current().elements(len(elements))
    return "[" + ", ".join(map(_element, elements)) + "]"


def _map(mapping: dict[object, object]) -> str:
    work.current().elements(len(mapping))
    pairs = [(_key(values.key_value(key)), _element(value)) for key, value in mapping.items()]
    pairs.sort(key=lambda pair: golang.utf8(pair[0]))
    return "{" + ", ".join(f"{key}:{value}" for key, value in pairs) + "}"


def _key(key: object) -> str:
    if type(key) is str:
        return _quoted(key)
    if isinstance(key, int):
        return conversions.to_string(key)
    raise EvaluationError(f"no formatting function for map key of type {values.kind(key)}")


def _quoted(text: str) -> str:
    """Return the text as a literal. Each character takes a while, so a long text is written in pieces, which are counted."""
    pieces: list[str] = []
    for start in range(0, len(text), _QUOTED_AT_ONCE):
        piece = text[start : start + _QUOTED_AT_ONCE]
        work.current().characters(len(piece))
        pieces.append(golang.quote(piece)[1:-1])
    return f'"{"".join(pieces)}"'


def _element(value: object) -> str:
    """Return a value inside a list or map, written like a CEL literal."""
    if type(value) is str:
        return _quoted(value)
    if isinstance(value, bytes):
        return "b" + _quoted(_string(value))
    if isinstance(value, float):
        return _fixed(value) if math.isfinite(value) else golang.quote(golang.double(value))
    if isinstance(value, Timestamp | values.Duration):
        name = "timestamp" if isinstance(value, Timestamp) else "duration"
        return f'{name}("{conversions.to_string(value)}")'
    if isinstance(value, bool | int | list | dict | TypeValue) or value is None:
        return _string(value)
    raise EvaluationError(f"no formatting function for {values.kind(value)}")


# --- numbers ----------------------------------------------------------------------------------------------------------


def _decimal(argument: object) -> str:
    if type(argument) in (int, Uint):
        return conversions.to_string(argument)
    raise EvaluationError(
        f"decimal clause can only be used on integers, was given {values.kind(argument)}"
    )


def _binary(argument: object) -> str:
    if isinstance(argument, int):
        return f"{int(argument):b}"
    raise EvaluationError(
        f"only integers and bools can be formatted as binary, was given {values.kind(argument)}"
    )


def _octal(argument: object) -> str:
    if type(argument) in (int, Uint):
        return f"{argument:o}"
    raise EvaluationError(
        f"octal clause can only be used on integers, was given {values.kind(argument)}"
    )


def _hex(argument: object) -> str:
    if type(argument) in (int, Uint):
        return f"{argument:x}"
    if isinstance(argument, str):
        return golang.utf8(argument).hex()
    if isinstance(argument, bytes):
        return argument.hex()
    raise EvaluationError(
        f"only integers, byte buffers, and strings can be formatted as hex, was given {values.kind(argument)}"
    )


def _double(verb: str, precision: int, argument: object) -> str:
    value = _SPECIAL.get(argument) if isinstance(argument, str) else argument
    if not isinstance(value, float):
        name = "fixed-point" if verb == "f" else "scientific"
        raise EvaluationError(
            f"{name} clause can only be used on doubles, was given {values.kind(argument)}"
        )
    value = value or 0.0  # -0.0 becomes 0.0
    if precision // 10 > _LONGEST:
        return "%!(NOVERB)"
    if verb == "e":
        # A bug of cel-go, kept: %e takes the precision as the width and always writes six digits.
        return _scientific(value).rjust(precision)
    return _grouped(value, precision)


def _special(value: float) -> str:
    return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"


def _fixed(value: float) -> str:
    return f"{Decimal(value):.{_PRECISION}f}"


def _grouped(value: float, precision: int) -> str:
    """Return the number with `precision` digits. golang.org/x/text adds zeros modulo 256, and so does this function."""
    if not math.isfinite(value):
        return _special(value)
    text = f"{Decimal(value):,.{min(precision, _SMALLEST_DIGIT)}f}"
    if precision <= _FILLED:
        return text
    whole, _, fraction = text.partition(".")
    fraction = fraction.rstrip("0").ljust(precision % (_FILLED + 1), "0")
    return f"{whole}.{fraction}" if fraction else whole


def _scientific(value: float) -> str:
    if not math.isfinite(value):
        return _special(value)
    mantissa, exponent = f"{value:.{_PRECISION}e}".split("e")
    return f"{mantissa}{_TIMES}10{exponent.removeprefix('+').translate(_SUPERSCRIPTS)}"


_VERBS: dict[str, Clause] = {
    "s": _string,
    "d": _decimal,
    "b": _binary,
    "o": _octal,
    "x": _hex,
    "X": lambda argument: _hex(argument).upper(),
    "f": _string,
    "e": _string,
}
