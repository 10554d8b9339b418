# SPDX-License-Identifier: Apache-2.0
"""Which quantity did the author mean who wrote an amount in another way: 40Gi without quotes, "40GB", or a bare 40960?"""

import re

from dra_driver.model.memory_amounts import MIB
from dra_driver.model.quantity import Quantity

_AMOUNT = re.compile(r"\s*([+-]?[0-9]+(?:\.[0-9]+)?)\s*(([kKmMgGtTpPeE])[iI]?[bB]?)\s*")
_UNIT = re.compile(r"[kKmMgGtTpPeE][iI]?[bB]?")
_BARE = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,9})?")
_RIGHT_UNIT = re.compile(r"[KMGTPE]i|[kMGTPE]")
_COMPARED = re.compile(
    r"""(?:device\.(?:attributes|capacity)\[(?P<quote>["'])(?P<domain>[^"']{1,63})(?P=quote)\]\.|(?<![\w.])(?:device\.)?)"""
    r"""(?P<name>[A-Za-z_]\w{0,31})\s*(?P<sign>[<>]=?|==)\s*\Z"""
)
_UNITS = "KMGTPE"
_ANY_DOMAIN = "driver.example.com"
_LONGEST = 200
"""Characters of the expression before an amount that are looked at."""


def quantity(name: str, text: str) -> str:
    """Return the quantity that a number or a text stands for beside a capacity; "" if it is none.

    `name` is the name of the capacity, or an expression that reads it. Only memory has a unit that may be missing: 40 engines are 40.
    """
    likely = of_memory(text) if is_memory(name) else ""
    return likely or (text if _is_quantity(text) else of_text(text))


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except ValueError:
        return False
    return True


def of_memory(text: str) -> str:
    """Return the amount of memory that a text stands for, whose unit may be missing or wrong; "" if it is clear or has no number."""
    number = float(text) if _BARE.fullmatch(text) else 0
    if not number:
        return of_text(text)
    if number >= MIB.stop:
        return ""
    return f"{text}{'Mi' if number >= MIB.start else 'Gi'}"


def is_memory(name: str) -> bool:
    """Return whether a capacity with this name, or an expression that reads it, is an amount of memory. Others have no bytes."""
    return "memory" in name.lower()


def of_text(text: str) -> str:
    """Return the quantity that a text stands for, whose unit may be wrong; "" if it has no number or no unit."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return ""
    return f"{found[1]}{found[2] if _RIGHT_UNIT.fullmatch(found[2]) else f'{found[3].upper()}i'}"


def readings(text: str) -> tuple[str, ...]:
    """Return the quantities that a text may stand for, whose unit is wrong; () if it has no number or no unit.

    80GB is 80G as the label of a card has it, and 80Gi as programs count. The smaller one comes first, which a card has that is sold as 80 GB.
    """
    binary = of_text(text)
    if not binary.endswith("i") or "i" in text.lower():
        return (binary,) if binary else ()
    return binary[:-1].replace("K", "k"), binary


def bytes_in(quantity: str) -> str:
    """Return in words how many bytes a quantity has that `readings` returns."""
    binary = quantity.endswith("i")
    decimal = quantity.removesuffix("i")
    power = _UNITS.index(decimal[-1].upper()) + 1
    return f"{decimal[:-1]} x {1024 if binary else 1000}^{power} bytes"


def is_unit(word: str) -> bool:
    """Return whether the word looks like the unit of an amount."""
    return bool(_UNIT.fullmatch(word))


def unquoted(before: str, amount: str) -> str:
    """Return the hint for an amount without quotes, such as 40Gi; "" if it is not clear which. `before` is the expression up to it."""
    meant = of_text(amount)
    if not meant:  # such as 0x40Gi and 1e3Gi
        return ""
    right = f'quantity("{meant}")'
    how = f"A quantity is written {right}"
    found = _COMPARED.search(before[-_LONGEST:])
    if found is None:
        return f"{how}, and compared by compareTo, isGreaterThan or isLessThan."
    path = f'device.capacity["{found["domain"] or _ANY_DOMAIN}"].{found["name"]}'
    return f"{how}, and compared by compareTo: {path}.compareTo({right}) {found['sign']} 0"
