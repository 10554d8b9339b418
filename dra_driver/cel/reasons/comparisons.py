# SPDX-License-Identifier: Apache-2.0
"""Which two values does a condition compare, and how? a < b, a.compareTo(b) < 0 and a.isLessThan(b) are the same comparison."""

from dra_driver.cel.reasons.paths import DevicePath, path_of
from dra_driver.cel.syntax.ast import Call, Constant, Expr

OPPOSITE = {"_<_": ">=", "_<=_": ">", "_>_": "<=", "_>=_": "<", "_==_": "is not", "_!=_": "is"}
TOLD_BY = {"isGreaterThan": "_>_", "isLessThan": "_<_"}


def compared(part: Expr) -> DevicePath | None:
    """Return the path that a comparison reads. Returns None if the condition is no comparison of a device path."""
    both = sides(part)
    return (path_of(both[1]) or path_of(both[2])) if both else None


def sides(part: Expr) -> tuple[str, Expr, Expr] | None:
    """Return a comparison as (operator, left, right), or None. a.compareTo(b) > 0 and a.isLessThan(b) are comparisons, too."""
    match part:
        case Call(
            function=sign,
            args=(Call(function="compareTo", target=left, args=(right,)), Constant(value=0)),
        ) if sign in OPPOSITE and left is not None:
            return sign, left, right
        case Call(function=sign, args=(left, right), target=None) if sign in OPPOSITE:
            return sign, left, right
        case Call(function=told, args=(right,), target=left) if (
            told in TOLD_BY and left is not None
        ):
            return TOLD_BY[told], left, right
    return None
