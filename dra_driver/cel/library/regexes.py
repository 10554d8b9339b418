# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' functions for regular expressions: find and findAll.

Source: k8s.io/apiserver pkg/cel/library/regex.go.
"""

from collections.abc import Callable

from dra_driver.cel import regex
from dra_driver.cel.failures import EvaluationError, no_such_overload
from dra_driver.cel.overloads import Implementation, Overload
from dra_driver.cel.values import Optional, TypeValue


def _compiled(pattern: str) -> regex.Pattern:
    try:
        return regex.compile_pattern(pattern)
    except EvaluationError as error:
        raise EvaluationError(f"Illegal regex: {error}") from error


def _find(text: str, pattern: str) -> str:
    return _compiled(pattern).find(text)


def _find_all(text: str, pattern: str, limit: int = -1) -> list[object]:
    return list(_compiled(pattern).find_all(text, limit))


def _native(value: object) -> object:
    """Return the value of an optional. With a constant pattern, upstream unwraps an optional text (ref.Val.Value)."""
    while isinstance(value, Optional) and value.present:
        value = value.value
    return value


def _text(optional: object) -> str:
    """Return the text to search. With a constant pattern, upstream accepts a type and searches its name."""
    value = _native(optional)
    if isinstance(value, TypeValue):
        return value.name
    if isinstance(value, str):
        return value
    raise no_such_overload()


def _limit(optional: object) -> int:
    value = _native(optional)
    if type(value) is not int:
        raise no_such_overload()
    return value


def _matches_constant(pattern: str) -> Implementation:
    compiled = regex.compile_pattern(pattern)
    return lambda text, _pattern: compiled.matches(_text(text))


def _find_constant(pattern: str) -> Implementation:
    compiled = regex.compile_pattern(pattern)
    return lambda text, _pattern: compiled.find(_text(text))


def _find_all_constant(pattern: str) -> Implementation:
    compiled = regex.compile_pattern(pattern)
    return lambda text, _pattern, limit=-1: list(compiled.find_all(_text(text), _limit(limit)))


WITH_CONSTANT: dict[str, Callable[[str], Implementation]] = {
    "matches": _matches_constant,
    "find": _find_constant,
    "findAll": _find_all_constant,
}
"""By function name: makes the implementation for a constant pattern."""

OVERLOADS = (
    Overload("find", "string_find_string", "string string", _find),
    Overload("findAll", "string_find_all_string", "string string", _find_all),
    Overload("findAll", "string_find_all_string_int", "string string int", _find_all),
)
