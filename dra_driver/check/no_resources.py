# SPDX-License-Identifier: Apache-2.0
"""Which resources of a container does nobody offer, and what was meant by each: another name, a kind of GPU, or an amount of its memory?"""

from collections.abc import Collection, Iterator

from dra_driver.cel.reasons.similar import question
from dra_driver.cel.syntax.unparse import literal
from dra_driver.check.finding import Finding
from dra_driver.check.given import Given, Object, mapping
from dra_driver.convert.kinds import meant_by, of_product, vendor_of
from dra_driver.convert.resources import Choice, usual
from dra_driver.model.memory_amounts import amount_of
from dra_driver.model.plugin_resources import (
    is_device_resource,
    is_invented_resource,
    is_memory_resource,
    likely_resource,
    model_in,
)
from dra_driver.model.printable import printable
from dra_driver.model.yaml_documents import Path

_OWN_UNITS = "-memory"
"""The end of the names that this driver's device plugin makes for units of memory (memoryUnits)."""


def names_a_kind(name: str) -> bool:
    """Return whether the resource names a kind of GPU, or an amount of its memory."""
    return is_invented_resource(name) or is_memory_resource(name)


def kind_findings(
    one: Given, path: Path, name: str, amount: str, offered: Collection[str]
) -> Iterator[Finding]:
    """Yield that a kind of GPU, or an amount of its memory, is asked for by a claim."""
    driver = usual(vendor_of(name), Choice())[1]
    if is_invented_resource(name):
        product = printable(amount)
        message = f"no plugin offers {printable(name)}, and {product} is no amount"
        yield one.finding("invented-resource", path, message, _by_product(driver, amount))
    elif name not in offered:
        yield _memory(one, path, name, amount, driver)


def _by_product(driver: str, product: str) -> str:
    read = f'device.attributes["{driver}"].productName'
    return f"ask by a claim with the selector {printable(of_product(read, product))}"


def _memory(one: Given, path: Path, name: str, amount: str, driver: str) -> Finding:
    clear = amount_of(name, amount)
    meant = printable(literal(clear or meant_by(amount)))
    read = f'device.capacity["{driver}"].memory'
    action = f"ask by a claim with the selector {read}.compareTo(quantity({meant})) >= 0"
    rule, message = "invented-resource", f"no plugin of a vendor offers {printable(name)}"
    if not clear:
        action += ", with the unit that is meant"
        if name.endswith(_OWN_UNITS):
            rule = "resource-name"
            message += ", and this driver's does only where memoryUnits is set"
    return one.finding(rule, path, message, action)


def name_findings(
    one: Given, path: Path, container: Object, offered: Collection[str]
) -> Iterator[Finding]:
    """Yield the resources that are like one of a vendor and that nobody offers."""
    resources = mapping(container.get("resources"))
    amounts = {
        str(name): field
        for field in ("requests", "limits")
        for name in mapping(resources.get(field))
    }
    for name, field in amounts.items():
        near = likely_resource(name)
        if near and name not in offered:
            is_mig = is_device_resource(name)
            what = "no GPU that is known here has" if is_mig else "no plugin of a vendor offers"
            message = f"{what} {printable(name)}"
            place = (*path, "resources", field, name)
            action = question(near)
            if model := model_in(name):
                driver = usual(vendor_of(name), Choice())[1]
                action += f" For this model {_by_product(driver, model)}"
            yield one.finding("resource-name", place, message, action)
