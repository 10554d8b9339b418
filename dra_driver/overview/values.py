# SPDX-License-Identifier: Apache-2.0
"""What is a device, in the words that its driver publishes? Drivers differ in the domain before a name, so only the rest of it counts."""

from collections.abc import Iterable, Mapping, Sequence

from dra_driver.allocator.amounts import Amount
from dra_driver.allocator.devices import SliceDevice
from dra_driver.model.api.resource_slice import Device, DeviceAttribute
from dra_driver.model.device import plain
from dra_driver.model.vocabulary import PRODUCTS

MEMORIES = ("memory", "addressableMemory")
"""Capacities that are the memory of a device; the first that it has counts. NVIDIA's driver has the second for a GPU that is passed through."""
PROFILES = ("profile", "partitionProfile")
"""Attributes that tell partitions of one product apart: those of NVIDIA's and of AMD's driver."""


def bare(name: str) -> str:
    """Return the name of an attribute or a capacity without its domain."""
    return name.rpartition("/")[2]


def attribute_texts(device: Device) -> dict[str, str]:
    """Return all attributes as text, sorted by name; a list as its values with commas between."""
    return {name: _text(value) for name, value in sorted((device.attributes or {}).items())}


def product(device: Device) -> str:
    """Return what the device is called, with its profile if it is a partition; "" if its driver does not say."""
    said = {name: text for name, text in attribute_texts(device).items() if text}
    names = _first(said, PRODUCTS), _first(said, PROFILES)
    return " ".join(said[name] for name in names if name)


def memory_of(amounts: Mapping[str, Amount]) -> Amount | None:
    """Return the capacity that is the memory; None without one."""
    name = _first(amounts, MEMORIES)
    return amounts[name] if name else None


def _first(there: Iterable[str], wanted: Sequence[str]) -> str:
    """Return the first of the wanted names that is there, with or without a domain: without one if there are both."""
    ordered = sorted(there, key=lambda name: ("/" in name, name))
    return next((name for one in wanted for name in ordered if bare(name) == one), "")


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
