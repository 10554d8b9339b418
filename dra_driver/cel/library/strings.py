# SPDX-License-Identifier: Apache-2.0
"""The functions of strings, from the standard library and from ext.Strings, version 2.

A position is a number of code points. lowerAscii() and upperAscii() change ASCII letters only.
Source: cel-go ext/strings.go, common/types/string.go.
"""

from collections.abc import Callable

from dra_driver.cel import regex, values, work
from dra_driver.cel.failures import EvaluationError, no_such_overload
from dra_driver.cel.library import formatting
from dra_driver.cel.overloads import Overload, Singleton

_SHORT = 64  # Characters. No string of a device is longer.
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
# The characters of Go's unicode.IsSpace. Python's str.strip() also removes some control characters.
_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_QUOTED = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
    | dict.fromkeys(map(chr, range(0xDC80, 0xDD00)), "\ufffd")
)


def _out_of_range(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if offset < 0:
        raise _out_of_range(offset)
    if part == "":
        return min(offset, len(text))
    return text.find(part, offset)


def _last_index_of(text: str, part: str) -> int:
    """As str.rfind(). That can take quadratic time, in one call that no signal interrupts. str.find() takes linear time."""
    if len(part) <= _SHORT or len(part) > len(text):
        return text.rfind(part)
    found = text[::-1].find(part[::-1])
    return len(text) - len(part) - found if found >= 0 else -1


def _last_index_of_before(text: str, part: str, offset: int) -> int:
    if offset < 0:
        raise _out_of_range(offset)
    if part == "":
        return min(offset, len(text))
    if offset >= len(text):
        return -1
    return _last_index_of(text[: offset + len(part)], part)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    limit = max(count, -1)
    found = text.count(old) if limit < 0 else min(text.count(old), limit)
    work.current().text(len(text) + found * max(len(new) - len(old), 0))
    return text.replace(old, new, limit)


def _split(text: str, separator: str, count: int = -1) -> list[object]:
    if count == 0:
        return []
    if separator:
        return list(text.split(separator, count - 1 if count > 0 else -1))
    if 0 < count < len(text):
        return [*text[: count - 1], text[count - 1 :]]
    return list(text)


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, len(text) if end is None else end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


def _join(parts: list[object], separator: str = "") -> str:
    texts: list[str] = []
    for part in parts:
        if not isinstance(part, str):
            raise EvaluationError(f"join: invalid input: {values.text(part)}")
        texts.append(part)
    work.current().text(sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0))
    return separator.join(texts)


def _quote(text: str) -> str:
    return f'"{text.translate(_QUOTED)}"'


def _test(holds: Callable[[str, str], bool]) -> Callable[[object, object], bool]:
    def check(text: object, part: object) -> bool:
        if isinstance(text, str) and isinstance(part, str):
            return holds(text, part)
        raise no_such_overload()

    return check


def _matches(text: str, pattern: object) -> bool:
    if not isinstance(pattern, str):
        raise no_such_overload()
    return regex.compile_pattern(pattern).matches(text)


def _overload(function: str, id_: str, signature: str, run: Callable[..., object]) -> Overload:
    return Overload(function, id_, signature, run)


FUNCTIONS = (Singleton("matches", _matches, frozenset({values.STRING})),)
OVERLOADS = (
    Overload(
        "contains", "contains_string", "string string", _test(lambda a, b: b in a), guarded=False
    ),
    Overload("endsWith", "ends_with_string", "string string", _test(str.endswith), guarded=False),
    Overload(
        "startsWith", "starts_with_string", "string string", _test(str.startswith), guarded=False
    ),
    _overload("charAt", "string_char_at_int", "string int", _char_at),
    _overload("indexOf", "string_index_of_string", "string string", _index_of),
    _overload("indexOf", "string_index_of_string_int", "string string int", _index_of),
    _overload("lastIndexOf", "string_last_index_of_string", "string string", _last_index_of),
    _overload(
        "lastIndexOf", "string_last_index_of_string_int", "string string int", _last_index_of_before
    ),
    _overload("lowerAscii", "string_lower_ascii", "string", lambda text: text.translate(_LOWER)),
    _overload("upperAscii", "string_upper_ascii", "string", lambda text: text.translate(_UPPER)),
    _overload("replace", "string_replace_string_string", "string string string", _replace),
    _overload("replace", "string_replace_string_string_int", "string string string int", _replace),
    _overload("split", "string_split_string", "string string", _split),
    _overload("split", "string_split_string_int", "string string int", _split),
    _overload("substring", "string_substring_int", "string int", _substring),
    _overload("substring", "string_substring_int_int", "string int int", _substring),
    _overload("trim", "string_trim", "string", lambda text: text.strip(_SPACES)),
    _overload("format", "string_format", "string list", formatting.format_text),
    _overload("strings.quote", "strings_quote", "string", _quote),
    _overload("join", "list_join", "list(string)", _join),
    _overload("join", "list_join_string", "list(string) string", _join),
)
