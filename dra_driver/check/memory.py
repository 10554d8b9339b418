# SPDX-License-Identifier: Apache-2.0
"""How is the memory of a device asked for, and is the unit of the amount there? Without a unit it is bytes."""

from collections.abc import Iterable, Iterator, Mapping

from dra_driver.cel.reasons.paths import path_of
from dra_driver.cel.syntax import amounts
from dra_driver.cel.syntax.ast import Call, Constant, Expr, Select
from dra_driver.check.finding import Finding
from dra_driver.check.given import Given, mapping
from dra_driver.check.parts import requests
from dra_driver.model.memory_amounts import too_few_bytes
from dra_driver.model.printable import printable

_MIRRORED: Mapping[str, str] = {
    "_==_": "==", "_!=_": "!=", "_<_": ">", "_<=_": ">=", "_>_": "<", "_>=_": "<=",
}  # fmt: skip
"""The operators, each as it is with its sides exchanged."""
_MEMORY = "memory"
_IN_ITS_PLACE = " in its place"


def written_as_capacity(parts: Iterable[Expr]) -> dict[int, str]:
    """Return for each read in an expression, by its id, what follows it if it becomes one of a capacity: the operator and amount that stand there."""
    found: dict[int, str] = {}
    for part in parts:
        if isinstance(part, Select) and part.test_only:
            found[part.id] = _IN_ITS_PLACE
        elif isinstance(part, Call) and part.function in _MIRRORED:
            left, right = part.args
            found[left.id] = _compared(left, part.function.strip("_"), right)
            found[right.id] = _compared(right, _MIRRORED[part.function], left)
        elif isinstance(part, Call) and part.target is not None:
            found[part.target.id] = _IN_ITS_PLACE
    return found


def _compared(read: Expr, sign: str, other: Expr) -> str:
    """Return the comparison with an amount; "" if the other side is none."""
    path = path_of(read)
    value = other.value if isinstance(other, Constant) else None
    if path is None or type(value) not in (int, str):
        return ""
    text = str(value)
    meant = amounts.quantity(path.name, text)
    if not meant:
        return ""
    more = "" if meant == text else ", with the unit that is meant"
    return f'.compareTo(quantity("{meant}")) {sign} 0{more}'


def amounts_without_unit(parts: Iterable[Expr]) -> Iterator[tuple[Expr, str, str]]:
    """Yield each amount that memory is compared with and that is so few bytes that its unit is missing: its part, text and what was meant."""
    for part in parts:
        if not isinstance(part, Call):
            continue
        each = (*part.args, *((part.target,) if part.target is not None else ()))
        paths = [path_of(one) for one in each]
        if any(path and (path.kind, path.name) == ("capacity", _MEMORY) for path in paths):
            for one in each:
                text = _quantity_in(one)
                if question := too_few_bytes(text):
                    yield one, text, question


def _quantity_in(part: Expr) -> str:
    """Return the text of quantity("…"); "" for anything else."""
    if isinstance(part, Call) and part.function == "quantity":
        first = part.args[0]
        return str(first.value) if isinstance(first, Constant) else ""
    return ""


def capacity_unit_findings(one: Given) -> Iterator[Finding]:
    """Yield the requested amounts of memory whose unit is missing."""
    for request in requests(one):
        wanted = mapping(mapping(request.body.get("capacity")).get("requests"))
        for name, amount in wanted.items():
            question = too_few_bytes(str(amount))
            if question and str(name).rpartition("/")[2] == _MEMORY:
                path = (*request.path, "capacity", "requests", name)
                yield one.finding("memory-unit", path, few_bytes(str(amount)), question)


def few_bytes(text: str) -> str:
    """Return the message for an amount without its unit."""
    shown = printable(text)
    return (
        f"memory {shown} is {shown} bytes"
        if text.isdecimal()
        else f"memory {shown} is less than 1Mi"
    )
