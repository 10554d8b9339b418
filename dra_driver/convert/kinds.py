# SPDX-License-Identifier: Apache-2.0
"""Which selector asks for what a resource names that no plugin offers: a kind of GPU, or an amount of its memory?

Such a resource says something of the devices of its vendor that the container asks for.
"""

import re
from collections.abc import Mapping

from dra_driver.cel.syntax import amounts
from dra_driver.cel.syntax.unparse import literal
from dra_driver.model.memory_amounts import amount_of, likely_amount
from dra_driver.model.plugin_resources import is_invented_resource, is_memory_resource
from dra_driver.model.quantity import Quantity

_OF_PARTS = "a part of a GPU has the memory that its profile says; it stays"


def vendor_of(name: str) -> str:
    """Return the vendor whose devices a resource is about, as far as such a resource can say something of them."""
    domain = name.partition("/")[0]
    return {"aliyun.com": "nvidia", "nvidia.com": "nvidia", "amd.com": "amd"}.get(domain, domain)


def says_a_kind(name: str, amount: str) -> bool:
    """Return whether the resource becomes a selector."""
    return is_invented_resource(name) or bool(is_memory_resource(name) and amount_of(name, amount))


def selector_of(name: str, amount: str, driver: str) -> str:
    """Return the selector for a device of the driver. has(…) comes first: reading what a device does not have would end the scheduling."""
    if is_memory_resource(name):
        read = f'device.capacity["{driver}"].memory'
        return f'has({read}) && {read}.compareTo(quantity("{amount_of(name, amount)}")) >= 0'
    read = f'device.attributes["{driver}"].productName'
    return f"has({read}) && {of_product(read, _plain(amount))}"


def of_product(read: str, product: str) -> str:
    """Return the condition that a name, which `read` reads, has this product in it."""
    if "-" not in product:
        return f"{read}.contains({literal(product)})"
    return f"{read}.matches({literal(spelled(product))})"


def spelled(product: str) -> str:
    """Return the pattern of the names that a product has as a label: there, a blank became a hyphen; either may have been there."""
    parts = (re.escape(part).replace(r"\ ", " ") for part in product.split("-"))
    return "[ -]".join(parts)


def why_it_stays(name: str, amount: str, driver: str, *, of_part: bool) -> str:
    """Return why an amount of memory becomes no selector, and what to write; "" if it becomes one."""
    if not amount_of(name, amount):
        read = f'device.capacity["{driver}"].memory'
        return f'its unit is not clear; write a claim with the selector {read}.compareTo(quantity("{meant_by(amount)}")) >= 0, with the unit that is meant; it stays'
    return _OF_PARTS if of_part else ""


def meant_by(amount: str) -> str:
    """Return the quantity that was most likely meant by an amount of memory, as 40Gi by 40 or 40GB; … if nothing like one stands there."""
    likely = amounts.of_text(amount) or likely_amount(amount)
    try:
        Quantity.parse(likely)
    except ValueError:
        return "…"
    return likely


def each_has(names: Mapping[str, str], count: int) -> tuple[str, ...]:
    """Return what must be known of an amount of memory beside a number of devices: it may have been meant of all together."""
    return tuple(
        f"each of the {count} devices has {name}: {amount}; if that was meant of all together, write less"
        for name, amount in names.items()
        if count > 1 and is_memory_resource(name)
    )


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9 ._+-]", "", text)
