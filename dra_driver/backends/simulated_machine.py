# SPDX-License-Identifier: Apache-2.0
"""Which devices does a simulated machine have? Those of a recording, and those that a profile describes itself.

The GPUs of a recording are made by the backend that would find them on a real node, so their attributes and capacities are the real
ones. Each node gets UUIDs of its own. UUIDs that several nodes have in common, such as that of a fabric, are the same on all of them.
"""

import dataclasses
import uuid

from msgspec import Struct, structs
from msgspec.structs import replace

from dra_driver.backends import recording
from dra_driver.backends.base import BackendContext
from dra_driver.backends.example import NAMESPACE
from dra_driver.backends.partitions import Partitioning, divide
from dra_driver.backends.profiles import MIB, Model, Profile, Slot
from dra_driver.backends.registry import played
from dra_driver.model.api.resource_slice import CounterSet, Device
from dra_driver.model.device import (
    AllocatableDevice,
    AttributeValue,
    attributes,
    capacities,
    plain,
)
from dra_driver.model.health import Health
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.pci import PciAddress
from dra_driver.model.quantity import Quantity
from dra_driver.model.vocabulary import NUMA_NODE, PCI_BUS_ID, PCIE_ROOT


def machine_of(profile: Profile, context: BackendContext, health: Health) -> Inventory:
    """Return the devices of a profile, each with this health."""
    found = _recorded(profile, context) if profile.recording else Inventory()
    first = len(found.devices)
    more, sets = _described(profile, context.node_name, first)
    devices = (*found.devices, *more)
    return Inventory(
        tuple(replace(one, health=health, declares=frozenset()) for one in devices),
        counter_sets=(*found.counter_sets, *sets),
    )


def _recorded(profile: Profile, context: BackendContext) -> Inventory:
    snapshot = recording.named(profile.recording)

    def own(prefix: str, number: int) -> str:
        seed = {"GPU-": f"{context.node_name}/{number}", "": f"all nodes/{number}"}
        text = seed.get(prefix, f"{context.node_name}/{prefix}{number}")
        return f"{prefix}{uuid.uuid5(NAMESPACE, text)}"

    facts = recording.renamed(snapshot.facts, own)
    found = played(snapshot.backend, context, facts).scan()
    if not profile.named_by_address:
        return found
    return dataclasses.replace(found, devices=tuple(map(_named_by_address, found.devices)))


def _named_by_address(device: AllocatableDevice) -> AllocatableDevice:
    address = str(plain((device.api.attributes or {})[PCI_BUS_ID]))
    name = PciAddress.parse(address).name("gpu")
    return replace(device, api=structs.replace(device.api, name=name))


def _described(
    profile: Profile, node_name: str, first: int
) -> tuple[tuple[AllocatableDevice, ...], tuple[CounterSet, ...]]:
    placed = [(group, slot) for group in profile.groups for slot in group.slots]
    devices: list[AllocatableDevice] = []
    sets: list[CounterSet] = []
    for index, (group, slot) in enumerate(placed, first):
        known = _Known(_name(profile, slot, index), index, f"{node_name}/{index}")
        device = _device(group.model, slot, known)
        api = structs.replace(device.api, **group.fields)
        found, counters = _divided(replace(device, api=api), group.partitioning)
        devices += found
        sets += counters
    return tuple(devices), tuple(sets)


def _divided(
    device: AllocatableDevice, how: Partitioning | None
) -> tuple[tuple[AllocatableDevice, ...], tuple[CounterSet, ...]]:
    return ((device,), ()) if how is None else divide([device], how)


class _Known(Struct, frozen=True):
    """What tells a device from the others of its machine. Its UUID is made of the `seed`."""

    name: DeviceName
    index: int
    seed: str


def _name(profile: Profile, slot: Slot | None, index: int) -> DeviceName:
    if slot is None or not profile.named_by_address:
        return DeviceName(f"gpu-{index}")
    return PciAddress.parse(slot.address).name("gpu")


def _device(model: Model, slot: Slot | None, known: _Known) -> AllocatableDevice:
    name, index = known.name, known.index
    identity = model.uuid_format.format(uuid.uuid5(NAMESPACE, known.seed))
    said: dict[str, AttributeValue] = {"index": index, "uuid": identity, **model.attributes}
    if model.vendor:
        said |= {
            "vendor": model.vendor,
            "productName": model.product,
            "minor": index,
            "memoryMiB": model.memory_mib,
        }
    sizes = {key: Quantity.parse(text) for key, text in model.capacity.items()}
    return AllocatableDevice(
        Device(
            name=name,
            attributes=attributes(said | _place(slot)),
            capacity=capacities({"memory": Quantity.of_bytes(model.memory_mib * MIB), **sizes}),
        ),
        identity,
    )


def _place(slot: Slot | None) -> dict[str, AttributeValue]:
    if slot is None:
        return {}
    place: dict[str, AttributeValue] = {
        PCI_BUS_ID: slot.address,
        PCIE_ROOT: f"pci0000:{slot.root}",
    }
    # Linux has numa_node -1 for "no affinity". Such a device has no attribute: -1 would look like a NUMA node that devices share.
    if slot.numa_node is not None:
        place[NUMA_NODE] = slot.numa_node
    return place
