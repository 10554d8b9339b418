# SPDX-License-Identifier: Apache-2.0
"""Kubernetes' quantities in expressions: quantity("40Gi").compareTo(…), add, asInteger.

Go stores a quantity in one of two forms, and the results of an expression can depend on the form. The fast form is a
64-bit integer with a power of ten. The other form is a decimal number of any length; for it isInteger() is always false, also for
`quantity("100Ti")`. Go chooses the form by the number of digits, and this module does the same. The result of add() and
sub() is a pointer in Go. In `==` a pointer is allowed on the left but is an error on the right.
Source: k8s.io/apimachinery pkg/api/resource, k8s.io/apiserver pkg/cel/library/quantity.go.
"""

from collections.abc import Callable
from copy import copy
from decimal import Decimal
from functools import lru_cache

from dra_driver.cel import golang, values
from dra_driver.cel.failures import Aborted, EvaluationError, no_such_overload
from dra_driver.cel.overloads import Overload
from dra_driver.cel.values import INT_MAX, INT_MIN, Opaque
from dra_driver.model import quantity as canonical

TYPE = "kubernetes.Quantity"

_SUFFIX_CHARACTERS = frozenset("eEinumkKMGTP+-0123456789")
_WRONG = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_WRONG_SUFFIX = "unable to parse quantity's suffix"
_NANO = -9
_FAST_DIGITS = 18
_FAST_BINARY_DIGITS = 14
_MOST_POWERS = 5000  # Go would run out of memory for larger powers of ten.
_TABLE = 32
_LONGEST_KEPT = (
    64  # Characters. The texts of devices are shorter; a selector can make texts of megabytes.
)
_MOST_DIGITS = (
    20_000  # Converting digits takes quadratic time: a few hundredths of a second for so many.
)


class Quantity(Opaque, frozen=True, eq=False):
    """The quantity `value` times 10^`scale`. `fast` and `pointer` say which form it has in Go."""

    value: int
    scale: int = 0
    fast: bool = True
    format: canonical.Format = "DecimalSI"
    pointer: bool = False

    type_name = TYPE

    def go_type(self) -> str:
        """Return the type name in cel-go's error messages."""
        return "*cel.Quantity" if self.pointer else "cel.Quantity"

    def equals(self, other: object) -> bool:
        """Return whether the values are equal. Raises EvaluationError for another type and for a pointer on the right."""
        if not isinstance(other, Quantity) or other.pointer:
            raise no_such_overload()
        return self.compare(other) == 0

    def compare(self, other: "Quantity") -> int:
        """Return -1, 0 or 1 if this quantity is less than, equal to or greater than the other."""
        if abs(self.scale - other.scale) > _MOST_POWERS:
            return _compare_magnitudes(self, other)
        scale = min(self.scale, other.scale)
        left, right = self.at(scale), other.at(scale)
        return (left > right) - (left < right)

    def at(self, scale: int) -> int:
        """Return the value in units of 10^scale. `scale` must not exceed the quantity's own scale."""
        return self.value * _power(self.scale - scale)

    @property
    def integer(self) -> int | None:
        """The value as an int64 (Quantity.AsInt64). Returns None for the decimal form, a fraction, or an overflow."""
        if not self.fast or self.scale < 0:
            return None
        return _scaled(self.value, self.scale)

    def __str__(self) -> str:
        nanos = self.at(_NANO)
        return str(canonical.Quantity(nanos, self.format))


def _power(exponent: int) -> int:
    if exponent > _MOST_POWERS:
        raise EvaluationError("the quantity has an exponent beyond every use")
    return int(10**exponent)


def _digits(number: int) -> int:
    """The number of digits. str() raises ValueError for more than 4,300."""
    return Decimal(number).adjusted() + 1


def _scaled(value: int, powers: int) -> int | None:
    """Return `value` times 10^`powers`. Returns None if it does not fit into 64 bits."""
    if value == 0 or powers == 0:
        return value
    if powers > _FAST_DIGITS:
        return None
    result = value * int(10**powers)
    return result if INT_MIN < result <= INT_MAX else None


def _compare_magnitudes(left: Quantity, right: Quantity) -> int:
    """Compare two numbers by sign and length only. Their powers of ten differ so much that the digits do not matter."""

    def rank(quantity: Quantity) -> tuple[int, int]:
        sign = (quantity.value > 0) - (quantity.value < 0)
        return sign, sign * (_digits(abs(quantity.value)) + quantity.scale)

    return (rank(left) > rank(right)) - (rank(left) < rank(right))


# --- parsing ----------------------------------------------------------------------------------------------------------


def parse_quantity(text: str) -> Quantity:
    """Parse a quantity.

    Raises EvaluationError with the API server's message if the text is no quantity, Aborted if it has too many digits.
    """
    return _remembered(text) if len(text) <= _LONGEST_KEPT else _parsed(text)


def _parsed(text: str) -> Quantity:
    parts = canonical.scan(text) if text else None
    if parts is None or not _SUFFIX_CHARACTERS.issuperset(parts.suffix):
        raise EvaluationError(_WRONG)
    fraction, suffix = parts.fraction, parts.suffix
    whole = parts.whole.lstrip("0") or "0"
    if len(whole) + len(fraction) > _MOST_DIGITS:
        raise Aborted(f"a quantity of more than {_MOST_DIGITS} digits")
    # int(text) raises ValueError for more than 4,300 digits.
    number = int(Decimal(whole + fraction))
    if suffix in canonical.BINARY_SUFFIXES:
        parsed = _binary(number, whole, fraction, canonical.BINARY_SUFFIXES[suffix])
    else:
        exponent, form = _decimal_exponent(parts)
        parsed = _decimal(number, len(whole) + len(fraction), exponent - len(fraction), form)
    if not parsed.fast and not (parts.whole or fraction):
        raise EvaluationError("unable to parse numeric part of quantity")
    if parts.sign != "-":
        return parsed
    return Quantity(-parsed.value, parsed.scale, parsed.fast, parsed.format)


_remembered = lru_cache(maxsize=8192)(_parsed)


def _decimal_exponent(parts: canonical.Parts) -> tuple[int, canonical.Format]:
    if parts.suffix in canonical.DECIMAL_SUFFIXES:
        return canonical.DECIMAL_SUFFIXES[parts.suffix], "DecimalSI"
    exponent = None if parts.exponent is None else golang.integer(parts.exponent)
    if exponent is None or not INT_MIN <= exponent <= INT_MAX:
        raise EvaluationError(_WRONG_SUFFIX)
    return (exponent + 2**31) % 2**32 - 2**31, "DecimalExponent"


def _decimal(number: int, digits: int, scale: int, form: canonical.Format) -> Quantity:
    if digits <= _FAST_DIGITS and scale >= _NANO:
        return Quantity(number, scale, fast=True, format=form)
    if number == 0:
        return Quantity(0, 0, fast=False, format=form)
    return Quantity(_in_nanos(number, scale), _NANO, fast=False, format=form)


def _in_nanos(number: int, scale: int) -> int:
    """Return the number in billionths, rounded up: a request below one billionth becomes one billionth."""
    if scale >= _NANO:
        return number * _power(scale - _NANO)
    if _NANO - scale > _digits(number):
        return 1
    return -(-number // _power(_NANO - scale))


def _binary(number: int, whole: str, fraction: str, exponent: int) -> Quantity:
    fits = _FAST_BINARY_DIGITS - exponent * 3 // 10 - len(whole) >= 0
    if not fraction and fits and number << exponent <= INT_MAX:
        return Quantity(number << exponent, 0, fast=True, format="BinarySI")
    if number == 0:
        return Quantity(0, 0, fast=False, format="BinarySI")
    nanos = _in_nanos(number << exponent, -len(fraction))
    if nanos > INT_MAX * 10**9:
        return Quantity(INT_MAX, 0, fast=False, format="BinarySI")
    return Quantity(nanos, _NANO, False, "BinarySI" if nanos >= 10**9 else "DecimalSI")


# --- functions --------------------------------------------------------------------------------------------------------


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except Aborted:
        raise
    except EvaluationError:
        return False
    return True


def _as_integer(quantity: Quantity) -> int:
    if quantity.integer is None:
        raise EvaluationError("cannot convert value to integer")
    return quantity.integer


def _as_float(quantity: Quantity) -> float:
    try:
        base = float(quantity.value)
    except OverflowError:
        base = float("inf") if quantity.value > 0 else float("-inf")
    return base * _power_as_float(quantity.scale) if quantity.scale else base


def _power_as_float(exponent: int) -> float:
    """Return 10^exponent, rounded as Go's math.Pow10 does, which multiplies the entries of two tables."""
    rows, rest = divmod(abs(exponent), _TABLE)
    if exponent >= 0:
        return float(f"1e{rows * _TABLE}") * float(f"1e{rest}")
    return float(f"1e-{rows * _TABLE}") / float(f"1e{rest}")


def _sum(left: Quantity, right: Quantity, sign: int) -> Quantity:
    form = right.format if left.value == 0 else left.format
    if left.fast and right.fast:
        total = _fast_sum(left, right, sign)
        if total is not None:
            return Quantity(*total, fast=True, format=form, pointer=True)
    scale = min(left.scale, right.scale)
    exact = left.at(scale) + sign * right.at(scale)
    return Quantity(exact, scale, fast=False, format=form, pointer=True)


def _fast_sum(left: Quantity, right: Quantity, sign: int) -> tuple[int, int] | None:
    if right.value == 0:
        return left.value, left.scale
    if right.value == INT_MIN:
        sign = 1  # In Go the negation of the smallest int64 is the smallest int64.
    if left.value == 0:
        return sign * right.value, right.scale
    scale = min(left.scale, right.scale)
    augend = _scaled(left.value, left.scale - scale)
    addend = _scaled(right.value, right.scale - scale)
    if augend is None or addend is None or not INT_MIN <= augend + sign * addend <= INT_MAX:
        return None
    return augend + sign * addend, scale


def _from_int(value: int) -> Quantity:
    return Quantity(value, 0, fast=True, format="DecimalExponent")


def _member(name: str, id_: str, run: Callable[..., object], *others: str) -> Overload:
    return Overload(name, id_, " ".join((TYPE, *others)), run)


def _parsed_anew(text: str) -> Quantity:
    """Return another object at each call: as keys of a map, two of them are two keys."""
    return copy(parse_quantity(text))


OVERLOADS = (
    Overload("quantity", "string_to_quantity", values.STRING, _parsed_anew),
    Overload("isQuantity", "is_quantity_string", values.STRING, _is_quantity),
    _member("sign", "quantity_sign", lambda q: (q.value > 0) - (q.value < 0)),
    _member("isGreaterThan", "quantity_is_greater_than", lambda a, b: a.compare(b) > 0, TYPE),
    _member("isLessThan", "quantity_is_less_than", lambda a, b: a.compare(b) < 0, TYPE),
    _member("compareTo", "quantity_compare_to", Quantity.compare, TYPE),
    _member("asApproximateFloat", "quantity_get_float", _as_float),
    _member("asInteger", "quantity_get_int", _as_integer),
    _member("isInteger", "quantity_is_integer", lambda q: q.integer is not None),
    _member("add", "quantity_add", lambda a, b: _sum(a, b, 1), TYPE),
    _member("add", "quantity_add_int", lambda a, n: _sum(a, _from_int(n), 1), values.INT),
    _member("sub", "quantity_sub", lambda a, b: _sum(a, b, -1), TYPE),
    _member("sub", "quantity_sub_int", lambda a, n: _sum(a, _from_int(n), -1), values.INT),
)
