# SPDX-License-Identifier: Apache-2.0
"""Are the literals of an expression valid?

This check needs no device. All elements of a list or map literal must have one type; only inside the arguments of format()
may they differ. A literal duration, timestamp, regular expression or format string must have valid syntax.
Source: cel-go cel/validator.go, ext/formatting.go.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from dra_driver.cel import golang, regex, types
from dra_driver.cel.checked_ast import CheckedAst
from dra_driver.cel.checking import hints
from dra_driver.cel.errors import Issue
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.library import times
from dra_driver.cel.syntax.ast import Call, Constant, Expr, ListLiteral, MapLiteral, children
from dra_driver.cel.types import Kind, Type
from dra_driver.cel.values import Timestamp


def literals(checked: CheckedAst) -> list[Issue]:
    """Return the issues of all literals, in the order of cel-go's validators."""
    calls: dict[str, list[Call]] = {}
    found: list[_Problem] = []
    for node, in_format in _nodes(checked.parsed.root):
        if isinstance(node, Call):
            calls.setdefault(node.function, []).append(node)
        elif isinstance(node, ListLiteral) and not in_format:
            found += _mixed_list(checked, node)
        elif isinstance(node, MapLiteral) and not in_format:
            found += _mixed_map(checked, node)
    # cel-go runs one validator after the other over the whole expression, so issues are grouped by function.
    for function, is_good in _MEANINGS.items():
        found += _malformed(calls.get(function, ()), is_good)
    found += _templates(checked, calls.get("format", ()))
    return [Issue(message, checked.parsed.offsets[node], hint) for node, message, hint in found]


_Problem = tuple[int, str, str]
_Found = Iterator[_Problem]


def _nodes(root: Expr) -> Iterator[tuple[Expr, bool]]:
    """Return all nodes, and whether each is inside a call of format()."""
    todo = [(root, False)]
    while todo:
        node, in_format = todo.pop()
        yield node, in_format
        inside = in_format or (isinstance(node, Call) and node.function == "format")
        todo.extend([(child, inside) for child in reversed(children(node))])


# --- lists and maps of one type ---------------------------------------------------------------------------------------


def _mixed_list(checked: CheckedAst, node: ListLiteral) -> _Found:
    first: Type | None = None
    for index, element in enumerate(node.elements):
        found = checked.types[element.id]
        if index in node.optional_indices:
            if not found.parameters:
                yield _unknown_optional(element)
                return
            found = found.parameters[0]
        first = first or found
        if found != first:
            yield _mismatch(element, first, found)
            return


def _mixed_map(checked: CheckedAst, node: MapLiteral) -> _Found:
    first: tuple[Type, Type] | None = None
    for entry in node.entries:
        key, value = checked.types[entry.key.id], checked.types[entry.value.id]
        if entry.optional:
            if not value.parameters:
                yield _unknown_optional(entry.value)
                return
            value = value.parameters[0]
        first = first or (key, value)
        if key != first[0]:
            yield _mismatch(entry.key, first[0], key)
        if value != first[1]:
            yield _mismatch(entry.value, first[1], value)


def _mismatch(node: Expr, wanted: Type, found: Type) -> tuple[int, str, str]:
    message = f"expected type '{wanted}' but found '{found}'"
    return node.id, message, hints.mismatch(wanted, found)


def _unknown_optional(node: Expr) -> tuple[int, str, str]:
    """Return the issue for an optional element of type dyn. cel-go panics here, so the message is this project's."""
    message = "an element marked with ? must have the type optional_type, not dyn"
    return node.id, message, "Without dyn(…) the element's type is known."


# --- text that means something ----------------------------------------------------------------------------------------


def _malformed(calls: Iterable[Call], is_good: Callable[[object], bool]) -> _Found:
    for call in calls:
        literal = call.args[0] if call.args else None
        if isinstance(literal, Constant) and not is_good(literal.value):
            yield literal.id, f"invalid {call.function} argument", _SHAPES[call.function]


def _is_duration(value: object) -> bool:
    return isinstance(value, str) and times.parse_duration(value) is not None


def _is_timestamp(value: object) -> bool:
    try:
        if isinstance(value, str):
            return times.parse_timestamp(value) is not None
        return isinstance(value, int) and bool(times.in_range(Timestamp(value, 0)))
    except EvaluationError:
        return False


def _is_pattern(value: object) -> bool:
    """Return whether the first argument is a valid pattern. In matches(text, pattern) this is the text: a bug of cel-go, kept."""
    try:
        regex.check(str(value))
    except EvaluationError:
        return False
    return True


_MEANINGS: dict[str, Callable[[object], bool]] = {
    "duration": _is_duration,
    "timestamp": _is_timestamp,
    "matches": _is_pattern,
}
_SHAPES = {
    "duration": "A duration is written duration('1h30m'), with the units h, m, s, ms, us and ns.",
    "timestamp": "A timestamp is written timestamp('2026-01-31T12:00:00Z').",
    "matches": "The pattern is no regular expression of RE2 (https://github.com/google/re2/wiki/Syntax).",
}


# --- templates --------------------------------------------------------------------------------------------------------


class _TemplateError(Exception):
    """An invalid clause of a format string, or one with a wrong argument (`node` is its ID)."""

    def __init__(self, message: str, node: int | None = None) -> None:
        super().__init__(message)
        self.node = node


def _templates(checked: CheckedAst, calls: Iterable[Call]) -> _Found:
    for node in calls:
        template, arguments = node.target, node.args[0]
        if not (isinstance(template, Constant) and isinstance(template.value, str)):
            continue
        if isinstance(arguments, ListLiteral):
            yield from _template(checked, node.id, template.value, arguments.elements)


def _template(checked: CheckedAst, node: int, template: str, arguments: Sequence[Expr]) -> _Found:
    used = 0
    try:
        for clause in _CLAUSE.finditer(template):
            if clause.group() != "%%":
                _check_clause(checked, clause, arguments, used)
                used += 1
    except _TemplateError as error:
        yield error.node or node, str(error), _CLAUSES
        return
    if len(arguments) > used:
        message = (
            f"too many arguments supplied to string.format (expected {used}, got {len(arguments)})"
        )
        yield node, message, _CLAUSES


_CLAUSE = re.compile(r"%%|%(?P<precision>\.[0-9]*)?(?P<verb>[\s\S])?")
_CLAUSES = (
    "In a template each of %s %d %f %e %b %x %X %o takes one argument, and %% is a percent sign."
)


def _check_clause(
    checked: CheckedAst, clause: re.Match[str], arguments: Sequence[Expr], used: int
) -> None:
    if clause.group() == "%":
        raise _TemplateError("unexpected end of string")
    if used >= len(arguments):
        raise _TemplateError(f"index {used} out of range")
    problem = _precision_problem(clause) if clause["precision"] else ""
    if problem:
        raise _TemplateError(
            f"could not parse formatting clause: error while parsing precision: {problem}"
        )
    # cel-go reads bytes, so its message shows only the first byte of a letter outside ASCII.
    verb = chr(golang.utf8(clause["verb"])[0])
    if verb not in _VERBS:
        raise _TemplateError(
            f'could not parse formatting clause: unrecognized formatting clause "{verb}"'
        )
    kinds, message = _VERBS[verb]
    wrong = _wrong_argument(checked, arguments[used], kinds, deep=verb == "s")
    if wrong is not None:
        name = checked.types[wrong.id].name
        raise _TemplateError(f"error during formatting: {message}, was given {name}", wrong.id)


def _precision_problem(clause: re.Match[str]) -> str:
    digits = clause["precision"][1:]
    if clause["verb"] is None:
        return "could not find end of precision specifier"
    parsing = f'error while converting precision to integer: strconv.Atoi: parsing "{digits}": '
    if not digits:
        return f"{parsing}invalid syntax"
    if golang.integer(digits) >= 2**63:
        return f"{parsing}value out of range"
    return ""


def _wrong_argument(
    checked: CheckedAst, node: Expr, kinds: frozenset[Kind], *, deep: bool
) -> Expr | None:
    """Return the argument of the wrong type, or an element of it if it is a literal. Returns None if the verb accepts all."""
    todo = [node]
    while todo:
        part = todo.pop()
        found = checked.types[part.id]
        if found != types.DYN and found.kind not in kinds:
            return part
        # %s also formats the elements of a list or map, so cel-go checks their types, too.
        if deep and isinstance(part, ListLiteral | MapLiteral):
            todo.extend(reversed(children(part)))
    return None


_INTEGERS = frozenset({Kind.INT, Kind.UINT})
_DOUBLES = frozenset({Kind.DOUBLE, Kind.STRING})
_PRINTED = frozenset(
    {
        *_INTEGERS,
        *_DOUBLES,
        Kind.BOOL,
        Kind.BYTES,
        Kind.DURATION,
        Kind.LIST,
        Kind.MAP,
        Kind.NULL,
        Kind.TIMESTAMP,
        Kind.TYPE,
    }
)
_HEX = (
    _INTEGERS | {Kind.STRING, Kind.BYTES},
    "only integers, byte buffers, and strings can be formatted as hex",
)
_ON_PRINTED = (
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types,"
    " durations, and timestamps"
)
_VERBS: dict[str, tuple[frozenset[Kind], str]] = {
    "s": (
        _PRINTED,
        _ON_PRINTED,
    ),
    "d": (_INTEGERS, "decimal clause can only be used on integers"),
    "f": (_DOUBLES, "fixed-point clause can only be used on doubles"),
    "e": (_DOUBLES, "scientific clause can only be used on doubles"),
    "b": (_INTEGERS | {Kind.BOOL}, "only integers and bools can be formatted as binary"),
    "x": _HEX,
    "X": _HEX,
    "o": (_INTEGERS, "octal clause can only be used on integers"),
}
