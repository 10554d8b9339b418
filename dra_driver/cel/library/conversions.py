# SPDX-License-Identifier: Apache-2.0
"""Type conversions: int(x), string(x), timestamp(x), …

Strings are parsed as in Go: "0x1p-2" and "1_000" are valid doubles, " 1" is no int.
Source: cel-go common/types, Go's package strconv.
"""

import math
import re
from collections.abc import Callable

from dra_driver.cel import golang, values, work
from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.library import times
from dra_driver.cel.library.operators import signed, unsigned
from dra_driver.cel.overloads import Overload, Singleton
from dra_driver.cel.syntax.ast import Uint
from dra_driver.cel.values import Duration, Timestamp, TypeValue

FOLDED = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)

_SIGNED = re.compile(r"[+-]?[0-9]+")
_UNSIGNED = re.compile(r"[0-9]+")
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_HEX = r"[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*"
_DECIMAL_DOUBLE = re.compile(
    rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?"
)
_HEX_DOUBLE = re.compile(rf"[+-]?0[xX](?:_?{_HEX}(?:\.(?:{_HEX})?)?|\.{_HEX})[pP][+-]?{_DIGITS}")
_SPECIAL_DOUBLE = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE)
_BOOLS = dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True) | dict.fromkeys(
    ("0", "f", "F", "false", "FALSE", "False"), False
)


def _identity(value: object) -> object:
    return value


def _not_a(type_name: str) -> EvaluationError:
    return EvaluationError(f"type conversion error from 'string' to '{type_name}'")


def _integer(text: str, shape: re.Pattern[str], low: int, high: int) -> int | None:
    if not shape.fullmatch(text):
        return None
    value = golang.integer(text)
    return value if low <= value <= high else None


def _string_to_int(text: str) -> int:
    value = _integer(text, _SIGNED, values.INT_MIN, values.INT_MAX)
    if value is None:
        raise _not_a(values.INT)
    return value


def _string_to_uint(text: str) -> Uint:
    value = _integer(text, _UNSIGNED, 0, values.UINT_MAX)
    if value is None:
        raise _not_a(values.UINT)
    return Uint(value)


def _string_to_double(text: str) -> float:
    value = _parse_double(text)
    if value is None:
        raise _not_a(values.DOUBLE)
    return value


def _parse_double(text: str) -> float | None:
    work.require_parseable(text)
    if _SPECIAL_DOUBLE.fullmatch(text):
        return float(text)
    plain = text.replace("_", "")
    try:
        if _DECIMAL_DOUBLE.fullmatch(text):
            value = float(plain)
        elif _HEX_DOUBLE.fullmatch(text):
            value = float.fromhex(plain)
        else:
            return None
    except OverflowError:
        return None
    return None if math.isinf(value) else value


def _string_to_bool(text: str) -> bool:
    if text not in _BOOLS:
        raise _not_a(values.BOOL)
    return _BOOLS[text]


def _string_to_duration(text: str) -> Duration:
    duration = times.parse_duration(text)
    if duration is None:
        raise _not_a(values.DURATION)
    return duration


def _string_to_timestamp(text: str) -> Timestamp:
    timestamp = times.parse_timestamp(text)
    if timestamp is None:
        raise _not_a(values.TIMESTAMP)
    return timestamp


def _bytes_to_string(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from error


def _double_to_int(value: float) -> int:
    if math.isnan(value) or not values.INT_MIN < value < values.INT_MAX + 1:
        raise EvaluationError("integer overflow")
    return int(value)


def _double_to_uint(value: float) -> Uint:
    if math.isnan(value) or not 0 <= value < values.UINT_MAX + 1:
        raise EvaluationError("unsigned integer overflow")
    return Uint(int(value))


def _int_to_timestamp(seconds: int) -> Timestamp:
    return times.in_range(Timestamp(seconds, 0))


def _bool_to_string(value: object) -> str:
    return values.text(value)


def _number_to_string(value: int) -> str:
    return str(int(value))


def type_of(value: object) -> TypeValue:
    """Return the CEL type of a value: the function type(value)."""
    return TypeValue(values.kind(value))


def to_string(value: object) -> str:
    """Return the text of string(value), which format("%s") also writes. Raises KeyError for a type without string()."""
    return _TO_STRING[type(value)](value)


_TO_STRING: dict[type, Callable[..., str]] = {
    str: str,
    bool: _bool_to_string,
    int: _number_to_string,
    Uint: _number_to_string,
    float: golang.double,
    bytes: _bytes_to_string,
    Duration: times.duration_text,
    Timestamp: times.timestamp_text,
    TypeValue: values.text,
}

_CONVERSIONS: dict[str, dict[str, tuple[str, Callable[..., object]]]] = {
    "bool": {
        "bool_to_bool": (values.BOOL, _identity),
        "string_to_bool": (values.STRING, _string_to_bool),
    },
    "bytes": {
        "bytes_to_bytes": (values.BYTES, _identity),
        "string_to_bytes": (values.STRING, golang.utf8),
    },
    "double": {
        "double_to_double": (values.DOUBLE, _identity),
        "int64_to_double": (values.INT, float),
        "string_to_double": (values.STRING, _string_to_double),
        "uint64_to_double": (values.UINT, float),
    },
    "duration": {
        "duration_to_duration": (values.DURATION, _identity),
        "string_to_duration": (values.STRING, _string_to_duration),
    },
    "int": {
        "int64_to_int64": (values.INT, _identity),
        "double_to_int64": (values.DOUBLE, _double_to_int),
        "duration_to_int64": (values.DURATION, lambda duration: duration.nanos),
        "string_to_int64": (values.STRING, _string_to_int),
        "timestamp_to_int64": (values.TIMESTAMP, lambda timestamp: timestamp.seconds),
        "uint64_to_int64": (values.UINT, lambda value: signed(int(value))),
    },
    "string": {
        "string_to_string": (values.STRING, _identity),
        "bool_to_string": (values.BOOL, _bool_to_string),
        "bytes_to_string": (values.BYTES, _bytes_to_string),
        "double_to_string": (values.DOUBLE, golang.double),
        "duration_to_string": (values.DURATION, times.duration_text),
        "int64_to_string": (values.INT, _number_to_string),
        "timestamp_to_string": (values.TIMESTAMP, times.timestamp_text),
        "uint64_to_string": (values.UINT, _number_to_string),
    },
    "timestamp": {
        "timestamp_to_timestamp": (values.TIMESTAMP, _identity),
        "int64_to_timestamp": (values.INT, _int_to_timestamp),
        "string_to_timestamp": (values.STRING, _string_to_timestamp),
    },
    "uint": {
        "uint64_to_uint64": (values.UINT, _identity),
        "double_to_uint64": (values.DOUBLE, _double_to_uint),
        "int64_to_uint64": (values.INT, unsigned),
        "string_to_uint64": (values.STRING, _string_to_uint),
    },
}

OVERLOADS = tuple(
    Overload(name, id_, kind, convert)
    for name, conversions in _CONVERSIONS.items()
    for id_, (kind, convert) in conversions.items()
)
FUNCTIONS = (Singleton("type", type_of), Singleton("dyn", _identity))
