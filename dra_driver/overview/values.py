# SPDX-License-Identifier: Apache-2.0
"""What is a device, in the words that its driver publishes? Drivers differ in the domain before a name, so only the rest of it counts."""

from collections.abc import Mapping

from dra_driver.allocator.amounts import Amount
from dra_driver.allocator.devices import SliceDevice
from dra_driver.model.api.resource_slice import Device, DeviceAttribute
from dra_driver.model.device import plain

MEMORY = "memory"
PRODUCTS = ("productName", "model", "product")
"""Attributes that name the product; the first that a device has counts."""
PROFILE = "profile"
"""The attribute that tells partitions of one product apart."""


def bare(name: str) -> str:
    """Return the name of an attribute or a capacity without its domain."""
    return name.rpartition("/")[2]


def attribute_texts(device: Device) -> dict[str, str]:
    """Return all attributes as text, sorted by name; a list as its values with commas between."""
    return {name: _text(value) for name, value in sorted((device.attributes or {}).items())}


def product(device: Device) -> str:
    """Return what the device is called, with its profile if it is a partition; "" if its driver does not say."""
    found = {bare(name): _text(value) for name, value in (device.attributes or {}).items()}
    named = next((found[name] for name in PRODUCTS if found.get(name)), "")
    return " ".join(part for part in (named, found.get(PROFILE, "")) if part)


def memory_of(amounts: Mapping[str, Amount]) -> Amount | None:
    """Return the capacity `memory`, with or without a domain; None without one."""
    found = (one for name, one in sorted(amounts.items()) if bare(name) == MEMORY)
    return next(found, None)


def capacity_texts(device: SliceDevice) -> dict[str, str]:
    """Return all capacities as text, sorted by name."""
    return {name: str(one) for name, one in sorted(device.capacity.items())}


def _text(value: DeviceAttribute) -> str:
    found = plain(value)
    if found is None:
        return ""
    if isinstance(found, bool):
        return str(found).lower()
    return ",".join(map(str, found)) if isinstance(found, list) else str(found)
