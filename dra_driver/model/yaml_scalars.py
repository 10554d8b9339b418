# SPDX-License-Identifier: Apache-2.0
"""Which value does an unquoted word of YAML stand for? The one that kubectl sends to the API server.

kubectl reads YAML 1.1 with exceptions of its own: `y` and `n` are booleans, `1e3` and `08` are numbers, but `12:30` is text. Its reader
is sigs.k8s.io/yaml 1.6 of Kubernetes 1.37, with go.yaml.in/yaml/v2. PyYAML differs in each of these words, so it must not decide.
"""

import math
import re
import struct
from decimal import Decimal

Scalar = str | int | float | bool | None

PREFIX = "tag:yaml.org,2002:"
TEXT = f"{PREFIX}str"
_FLOAT = f"{PREFIX}float"
_TAGS = {
    type(None): f"{PREFIX}null",
    bool: f"{PREFIX}bool",
    int: f"{PREFIX}int",
    float: _FLOAT,
    str: TEXT,
}


def _cased(*words: str) -> tuple[str, ...]:
    return tuple(form for word in words for form in (word, word.capitalize(), word.upper()))


_WORDS: dict[str, bool | float | None] = {
    **dict.fromkeys(_cased("y", "yes", "true", "on"), True),
    **dict.fromkeys(_cased("n", "no", "false", "off"), False),
    **dict.fromkeys(("", "~", *_cased("null"))),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{f"{sign}.{word}": math.inf for sign in ("", "+") for word in _cased("inf")},
    **{f"-.{word}": -math.inf for word in _cased("inf")},
}
_TOO_LONG = 2**63  # for an integer with a sign
_TOO_LARGE = 2.0**128 - 2.0**103  # for a float of 32 bits
_WITHOUT_EXPONENT = range(-4, 6)
_NUMBER_BEGINS = frozenset("+-.0123456789")
_WHOLE_NUMBER = re.compile(
    r"(?P<sign>[-+]?)"
    r"(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<binary>[01]+)|0[oO]?(?P<octal>[0-7]+)|(?P<decimal>0|[1-9][0-9]*))"
)
_BASES = {"hex": 16, "binary": 2, "octal": 8, "decimal": 10}
_SIGN_IN_BINARY = re.compile(r"0b([-+][01]+)")
_DIGITS = "[0-9]+(?:_[0-9]+)*"
_FRACTION = re.compile(rf"\.{_DIGITS}(?:[eE][-+]?{_DIGITS})?")
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")


def resolved(text: str) -> Scalar:
    """Return the value of an unquoted word, as kubectl's reader has it in memory."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_BEGINS:
        return text
    if text[0] == ".":
        number = float(text) if _FRACTION.fullmatch(text) else math.inf
    else:
        plain = text.replace("_", "")  # wherever it stands
        whole = _whole_number(plain)
        if whole is not None:
            return whole
        number = float(plain) if _NUMBER.fullmatch(plain) else math.inf
    # A number that is too large for a float stays text.
    return text if math.isinf(number) else number


def _whole_number(text: str) -> int | None:
    found = _WHOLE_NUMBER.fullmatch(text)
    if found is None:
        behind = _SIGN_IN_BINARY.fullmatch(text)
        return None if behind is None else _in_range(int(behind[1], 2), signed=True)
    base = str(found.lastgroup)
    return _in_range(int(found["sign"] + found[base], _BASES[base]), signed=bool(found["sign"]))


def _in_range(number: int, *, signed: bool) -> int | None:
    """Return the number if 64 bits can hold it. Without a sign they hold twice as much."""
    return number if -_TOO_LONG <= number < _TOO_LONG * (1 if signed else 2) else None


def tag_of(value: Scalar) -> str:
    """Return YAML's name for the type of a value that `resolved` has returned."""
    return _TAGS[type(value)]


def tagged(tag: str, text: str) -> Scalar:
    """Return the value of a word that has a tag, as in `!!int 5`. Raises ValueError if the word is of another type."""
    value = resolved(text)
    if tag == _FLOAT and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if tag_of(value) != tag:
        raise ValueError(text)
    return value


def sent(value: Scalar) -> Scalar:
    """Return the value that the API server gets. JSON has no fraction of 0, so `1.0`, `08` and `1e3` arrive as 1, 8 and 1000; above 63 bits all is float.

    Raises ValueError for `.nan` and `.inf`, which JSON does not have: kubectl refuses the file.
    """
    if isinstance(value, int):
        return float(value) if value >= _TOO_LONG else value
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        raise ValueError(value)
    # JSON has as few digits as a float needs, and zeros behind them.
    whole = int(Decimal(repr(value))) if value.is_integer() else _TOO_LONG
    return whole if abs(whole) < _TOO_LONG else value


def key_text(value: Scalar) -> str | None:
    """Return the key of a mapping as the API server gets it; None for null, which cannot be a key."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _short(value)
    return None if value is None else str(value)


def _short(value: float) -> str:
    """Return a number with the fewest digits that a 32-bit float needs: kubectl writes a key so."""
    if math.isnan(value):
        return ".nan"
    if abs(value) >= _TOO_LARGE:
        return ".inf" if value > 0 else "-.inf"
    wanted = struct.pack("f", value)
    (rounded,) = struct.unpack("f", wanted)
    tries = (f"{rounded:.{digits}e}" for digits in range(9))
    text = next(one for one in tries if struct.pack("f", float(one)) == wanted)
    exponent = int(text.partition("e")[2])
    return f"{Decimal(text):f}" if exponent in _WITHOUT_EXPONENT else text
