# SPDX-License-Identifier: Apache-2.0
"""How far is a device's value from what a condition asks for, from 0 to 1?

Of 40Gi and 79Gi the second is nearer to 80Gi; of the products of a cluster, those with "H100" in their name are nearer to "H100".
"""

from decimal import Decimal

from msgspec import Struct

from dra_driver.cel.failures import EvaluationError
from dra_driver.cel.library.quantity import Quantity, parse_quantity
from dra_driver.cel.library.semver import Semver, parse_semver
from dra_driver.cel.reasons.comparisons import sides
from dra_driver.cel.reasons.conditions import Meant
from dra_driver.cel.reasons.paths import DevicePath, path_of
from dra_driver.cel.reasons.rewrite import presence
from dra_driver.cel.reasons.similar import MOST_LOOKED_UP, unlikeness
from dra_driver.cel.syntax.ast import Call, Constant, Expr, ListLiteral
from dra_driver.cel.syntax.unparse import literal
from dra_driver.model.api.resource_slice import DeviceAttribute, DeviceCapacity

FAR = 1.0
ABSENT = 2.0
"""A device that has no value is farther than each one that has another value."""
_MEANT = 0.125


class Wanted(Struct, frozen=True, eq=False):
    """The values that a condition compares the path with, the first MOST_LOOKED_UP of them."""

    path: DevicePath
    numbers: tuple[Decimal, ...]
    texts: tuple[str, ...]


def wanted(part: Expr) -> Wanted | None:
    """Return what a condition asks for; None if it compares no path with constants, and asks for none with has(…)."""
    asked = presence(part)
    if asked is not None:
        return Wanted(asked, (), ())
    match part:
        case Call(function="!_", args=(inner,)):
            return wanted(inner)
        case Call(function="@in", args=(item, ListLiteral(elements=elements))):
            path, others = path_of(item), elements[:MOST_LOOKED_UP]
        case _:
            compared = sides(part)
            if compared is None:
                return None
            _, left, right = compared
            path, others = path_of(left), (right,)
            if path is None:
                path, others = path_of(right), (left,)
    if path is None:
        return None
    texts = tuple(
        one.value for one in others if isinstance(one, Constant) and isinstance(one.value, str)
    )
    numbers = tuple(number for one in others if (number := _number_in(one)) is not None)
    return Wanted(path, numbers, texts)


def distance(asked: Wanted, published: object, meant: Meant) -> float:
    """Return how far a published value is from the nearest of what is asked for."""
    if published is None:
        return ABSENT
    number = _number_of(published)
    if number is not None:
        return min((_between(number, one) for one in asked.numbers), default=FAR)
    text = published.string_value if isinstance(published, DeviceAttribute) else published
    if not isinstance(text, str):
        return FAR
    return min((_unlike(asked.path, one, text, meant) for one in asked.texts), default=FAR)


def _unlike(path: DevicePath, asked: str, text: str, meant: Meant) -> float:
    far = unlikeness(asked, text)
    return _MEANT if far > _MEANT and meant(path, literal(asked)) == literal(text) else far


def _between(one: Decimal, other: Decimal) -> float:
    """Return the difference as a part of the larger number."""
    largest = max(abs(one), abs(other))
    # Each part by itself: the difference of two numbers can be too large for a Decimal.
    return min(float(abs(one / largest - other / largest)), FAR) if largest else 0.0


def _number_in(part: Expr) -> Decimal | None:
    match part:
        case Constant(value=bool()):
            return None
        case Constant(value=int() | float() as number):
            return Decimal(number)
        case Call(function="quantity" | "semver" as function, args=(Constant(value=str(text)), *_)):
            return _parsed(function, text)
        case _:
            return None


def _number_of(published: object) -> Decimal | None:
    match published:
        case DeviceCapacity():
            return _parsed("quantity", str(published.value))
        case DeviceAttribute(int_value=int(number)):
            return Decimal(number)
        case DeviceAttribute(version_value=str(text)):
            return _parsed("semver", text)
        case _:
            return None


def _parsed(function: str, text: str) -> Decimal | None:
    try:
        return _as_number(parse_semver(text) if function == "semver" else parse_quantity(text))
    except (EvaluationError, ArithmeticError):  # its exponent may be beyond those of Decimal
        return None


def _as_number(parsed: Quantity | Semver) -> Decimal:
    """Return a number that is larger for what is larger. Of a version, only the difference of the first other part counts for much."""
    if isinstance(parsed, Quantity):
        return Decimal(parsed.value).scaleb(parsed.scale)
    patch = Decimal(parsed.patch)
    minor = parsed.minor + patch / (patch + 1)
    return parsed.major + minor / (minor + 1)
