# SPDX-License-Identifier: Apache-2.0
"""What should the author write who compares a quantity or a version in a way that CEL does not have?

The hints repeat what stands in the expression: the domain, the operator and the amount.
"""

from collections.abc import Sequence

from dra_driver.cel.syntax import amounts
from dra_driver.cel.types import Kind, Type

PARSERS = {"kubernetes.Quantity": "quantity", "kubernetes.Semver": "semver"}
"""The types that are compared by functions, and the function that makes one of a text."""
METHODS = ("compareTo", "isGreaterThan", "isLessThan", "add", "sub")
_COMPARISONS = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">=", "_==_": "==", "_!=_": "!="}
_ORDER = ("_<_", "_<=_", "_>_", "_>=_")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC = {"_+_": "add", "_-_": "sub"}
_LITERALS = (Kind.STRING, Kind.INT, Kind.DOUBLE)
_LONGEST = 120
"""Characters. A longer operand is no help in an example."""
_WITH_QUANTITY = (
    "A quantity is compared with a quantity:"
    " device.capacity['…'].memory.compareTo(quantity('40Gi')) >= 0"
)
_WITH_VERSION = "A version is compared with a version: semver('1.2.3'), by compareTo, isGreaterThan or isLessThan."


def compared(wrong: str, given: Sequence[Type], written: Sequence[str]) -> str:
    """Return the hint for an operator with a quantity or a version; `written` are the texts of its two operands."""
    names = {one.name for one in given}
    if wrong in _ORDER and len(names - {"dyn"}) == 1:
        if max(map(len, written)) > _LONGEST:
            written = ("a", "b")
        first, second = written
        return f"Compare with compareTo: {first}.compareTo({second}) {_COMPARISONS[wrong]} 0"
    if wrong in _ARITHMETIC and names == {"kubernetes.Quantity"}:
        return f"Write a.{_ARITHMETIC[wrong]}(b)"
    example = _example(wrong, given, written) if wrong in _COMPARISONS else ""
    if "kubernetes.Quantity" in names:
        return f"A quantity is compared with a quantity: {example}" if example else _WITH_QUANTITY
    return f"A version is compared with a version: {example}" if example else _WITH_VERSION


def _example(wrong: str, given: Sequence[Type], written: Sequence[str]) -> str:
    """Return the comparison of a quantity or a version with a text or a number, as it is written in CEL; "" if it is none of these."""
    sign = _COMPARISONS[wrong]
    (one, other), (left, right) = given, written
    if one.name not in PARSERS:
        (one, other), (left, right), sign = (other, one), (right, left), _MIRRORED.get(sign, sign)
    argument = _parsed(one, other, left, right)
    return f"{left}.compareTo({argument}) {sign} 0" if argument and len(left) <= _LONGEST else ""


def _parsed(wanted: Type, found: Type, beside: str, text: str) -> str:
    """Return the call that makes a quantity or version of the operand with this text beside another; "" if none does."""
    if len(text) > _LONGEST:
        return ""
    if wanted.name == "kubernetes.Quantity":
        meant = amounts.quantity(beside, text.strip('"')) if found.kind in _LITERALS else ""
        if meant:
            return f'quantity("{meant}")'
    return f"{PARSERS[wanted.name]}({text})" if found.kind is Kind.STRING else ""


def called(wrong: str, given: Sequence[Type], written: Sequence[str]) -> str:
    """Return the hint for a function of quantities or versions that is called with a text or a number; "" for other arguments."""
    if wrong == "quantity":
        number = written[0] if len(written) == 1 and given[0].kind in _LITERALS else ""
        return _made_of(number) if number else ""
    if len(given) != 2 or given[0].name not in PARSERS:  # noqa: PLR2004 - the target and an argument
        return ""
    argument = _parsed(given[0], given[1], *written)
    target = written[0] if len(written[0]) <= _LONGEST else "a"
    return f"Write {target}.{wrong}({argument})" if argument else ""


def _made_of(number: str) -> str:
    """Return the hint for quantity(number); "" if it is no number. What the quantity is compared with is not known here."""
    plain, of_memory = (amounts.quantity(name, number) for name in ("", "memory"))
    if not plain:
        return ""
    with_unit = f', or an amount of memory: quantity("{of_memory}")' if of_memory != plain else ""
    return f'A quantity is made of a text: quantity("{plain}"){with_unit}'
