# SPDX-License-Identifier: Apache-2.0
"""The operators of CEL: + - * / %, comparisons, `in`, negation; and size().

Integers have 64 bits, and an overflow is an error. Both operands of an arithmetic operator must have the same type.
Source: cel-go common/stdlib/standard.go, common/types/overflow.go.
"""

import math
import operator
from collections.abc import Callable, Sized

from dra_driver.cel import values, work
from dra_driver.cel.failures import Aborted, EvaluationError, no_such_overload
from dra_driver.cel.library import times
from dra_driver.cel.overloads import Singleton
from dra_driver.cel.syntax.ast import Uint
from dra_driver.cel.values import ConcatenatedList, Duration, MutableList, Timestamp

# In cel-go a sum of lists shares its parts and needs no memory, so it has no limit.
MAX_ELEMENTS = 2_000_000

Arithmetic = Callable[[object, object], object]

_NUMBERS = frozenset({values.INT, values.UINT, values.DOUBLE})
_INTEGERS = frozenset({values.INT, values.UINT})
_SPANS = frozenset({values.DURATION, values.TIMESTAMP})
_TEXTS = frozenset({values.STRING, values.BYTES})
_ORDERED = _NUMBERS | _SPANS | _TEXTS | {values.BOOL}


def signed(value: int) -> int:
    """Return the value. Raises EvaluationError if it does not fit into an int."""
    if values.INT_MIN <= value <= values.INT_MAX:
        return value
    raise EvaluationError("integer overflow")


def unsigned(value: int) -> Uint:
    """Return the value as a uint. Raises EvaluationError if it does not fit."""
    if 0 <= value <= values.UINT_MAX:
        return Uint(value)
    raise EvaluationError("unsigned integer overflow")


def _on_numbers(
    integers: Callable[[int, int], int], doubles: Callable[[float, float], float] | None
) -> Arithmetic:
    def apply(left: object, right: object) -> object:
        if type(left) is not type(right):
            raise no_such_overload()
        if isinstance(left, Uint) and isinstance(right, Uint):
            return unsigned(integers(int(left), int(right)))
        if isinstance(left, int) and isinstance(right, int):
            return signed(integers(left, right))
        if doubles is not None and isinstance(left, float) and isinstance(right, float):
            return doubles(left, right)
        raise no_such_overload()

    return apply


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise EvaluationError("modulus by zero")
    if right == -1:
        signed(-left)  # Go reports an overflow of the quotient also for %.
    return left - right * _quotient(left, right)


def _divided(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


_add_numbers = _on_numbers(operator.add, operator.add)
_subtract_numbers = _on_numbers(operator.sub, operator.sub)


def add(left: object, right: object) -> object:
    """Return `left + right`, also for strings, bytes, lists and times. Raises EvaluationError on an overflow."""
    if isinstance(left, list):
        return _add_lists(left, right)
    if isinstance(left, Duration | Timestamp):
        return times.add(left, right)
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    if isinstance(left, bytes) and isinstance(right, bytes):
        return left + right
    return _add_numbers(left, right)


def _add_lists(left: list[object], right: object) -> object:
    if not isinstance(right, list):
        raise no_such_overload()
    if isinstance(left, MutableList):
        left.extend(right)
        return left
    if not left or not right:
        return left or right
    if len(left) + len(right) > MAX_ELEMENTS:
        raise Aborted(f"a list of more than {MAX_ELEMENTS:,} elements is not made")
    work.current().elements(len(left) + len(right))
    return ConcatenatedList([*left, *right])


def subtract(left: object, right: object) -> object:
    """Return `left - right`, also for times. Raises EvaluationError on an overflow."""
    if isinstance(left, Duration | Timestamp):
        return times.subtract(left, right)
    return _subtract_numbers(left, right)


def negate(value: object) -> object:
    """Return `-value`, which is not defined for a uint."""
    if isinstance(value, Duration):
        return Duration(signed(-value.nanos))
    if isinstance(value, float):
        return -value
    if type(value) is int:
        return signed(-value)
    raise no_such_overload()


def _not(value: object) -> object:
    if isinstance(value, bool):
        return not value
    raise no_such_overload()


def not_strictly_false(value: object) -> object:
    """Return the loop condition of all() and exists(). For an error it is true, so that the loop continues."""
    return value if isinstance(value, bool) else True


def contains(element: object, collection: object) -> object:
    """Return whether `element` is an element of a list or a key of a map. An element that cannot be compared is not in a list."""
    if isinstance(collection, list):
        return values.contains(collection, element)
    if isinstance(collection, dict):
        return values.contains_key(collection, element)
    raise no_such_overload()


def _size(value: Sized) -> int:
    return len(value)


def equal(left: object, right: object) -> bool:
    """Return `left == right`. Raises EvaluationError if values of these types cannot be compared."""
    return values.equal(left, right)


def not_equal(left: object, right: object) -> bool:
    """Return `left != right`. Values that cannot be compared are unequal; `==` would be an error."""
    try:
        return not values.equal(left, right)
    except Aborted:
        raise
    except EvaluationError:
        return True


def _ordering(holds: Callable[[int, int], bool]) -> Arithmetic:
    return lambda left, right: holds(values.compare(left, right), 0)


FUNCTIONS = (
    Singleton("_+_", add, _NUMBERS | _SPANS | _TEXTS | {values.LIST}),
    Singleton("_-_", subtract, _NUMBERS | _SPANS),
    Singleton("_*_", _on_numbers(operator.mul, operator.mul), _NUMBERS),
    Singleton("_/_", _on_numbers(_quotient, _divided), _NUMBERS),
    Singleton("_%_", _on_numbers(_remainder, None), _INTEGERS),
    Singleton("-_", negate, frozenset({values.BOOL, values.INT, values.DOUBLE, values.DURATION})),
    Singleton("!_", _not),
    Singleton("@not_strictly_false", not_strictly_false),
    Singleton("_<_", _ordering(operator.lt), _ORDERED),
    Singleton("_<=_", _ordering(operator.le), _ORDERED),
    Singleton("_>_", _ordering(operator.gt), _ORDERED),
    Singleton("_>=_", _ordering(operator.ge), _ORDERED),
    Singleton("_==_", equal),
    Singleton("_!=_", not_equal),
    Singleton("@in", contains),
    Singleton("size", _size, _TEXTS | {values.LIST, values.MAP}),
)
