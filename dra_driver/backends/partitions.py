# SPDX-License-Identifier: Apache-2.0
"""Partitions of simulated GPUs, as data: what each kind of partition takes, and where it may be.

The tables are those of multi-instance GPUs: a GPU has eight memory slices, and a partition takes some that lie side by side, from a
start that its kind allows. Each GPU is published as a whole, and as every partition that could be made of it. Counters let the
scheduler choose: a GPU has one counter set, the whole device consumes all of it, and a partition what its kind takes. The names of
fields, counters and devices are those of KEP-4815.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, structs
from msgspec.structs import replace

from dra_driver.model.api.resource_slice import (
    Counter,
    CounterSet,
    DeviceCounterConsumption,
)
from dra_driver.model.device import AllocatableDevice, AttributeValue, attributes, capacities, plain
from dra_driver.model.lease import Hardware
from dra_driver.model.quantity import Quantity

MIB = 1024 * 1024
MEMORY_SLICES = 8
TYPE_ATTRIBUTE = "profile"
"""The attribute with the kind of a partition, for `Inventory.partition_type_attribute`."""
WHOLE = "whole"
"""The kind of a device that is no partition."""


class Kind(Struct, frozen=True):
    """One kind of partition: the memory slices from each of its starts, and how much of the GPU it gets."""

    name: str
    slices: int
    starts: tuple[int, ...]
    multiprocessors: int
    copy_engines: int


class Partitioning(Struct, frozen=True):
    """How one model of GPU can be divided."""

    multiprocessors: int
    copy_engines: int
    kinds: tuple[Kind, ...]


MIG_80GB = Partitioning(
    multiprocessors=132,
    copy_engines=8,
    kinds=(
        Kind("1g.10gb", 1, (0, 1, 2, 3, 4, 5, 6), 16, 1),
        Kind("1g.20gb", 2, (0, 2, 4, 6), 26, 1),
        Kind("2g.20gb", 2, (0, 2, 4), 32, 2),
        Kind("3g.40gb", 4, (0, 4), 60, 3),
        Kind("4g.40gb", 4, (0,), 64, 4),
        Kind("7g.80gb", 8, (0,), 132, 8),
    ),
)
"""The kinds of a GPU with 80 GB."""


def divide(
    devices: Iterable[AllocatableDevice], how: Partitioning
) -> tuple[tuple[AllocatableDevice, ...], tuple[CounterSet, ...]]:
    """Return each device as a whole and as all its partitions, and the counter sets that they consume.

    A partition has the health of its GPU, and its own name, UUID and amounts. Its hardware is its memory slices of the GPU.
    """
    found: list[AllocatableDevice] = []
    sets: list[CounterSet] = []
    for device in devices:
        memory = _memory(device)
        counters = _counters(memory, how.multiprocessors, how.copy_engines, range(MEMORY_SLICES))
        name = f"{device.name}-counter-set"
        sets.append(CounterSet(name=name, counters=counters))
        found.append(_whole(device, DeviceCounterConsumption(counter_set=name, counters=counters)))
        found += (
            _part(device, kind, start, memory // MEMORY_SLICES) for kind, start in places(how)
        )
    return tuple(found), tuple(sets)


def places(how: Partitioning) -> Iterator[tuple[Kind, int]]:
    """Yield every partition that can be made: its kind and its first memory slice."""
    return ((kind, start) for kind in how.kinds for start in kind.starts)


def _whole(device: AllocatableDevice, consumed: DeviceCounterConsumption) -> AllocatableDevice:
    said = {**(device.api.attributes or {}), **attributes({TYPE_ATTRIBUTE: WHOLE})}
    api = structs.replace(device.api, attributes=said, consumes_counters=[consumed])
    return replace(device, api=api)


def _part(device: AllocatableDevice, kind: Kind, start: int, slice_mib: int) -> AllocatableDevice:
    taken = range(start, start + kind.slices)
    memory = slice_mib * kind.slices
    uuid = f"MIG-{device.uuid.partition('-')[2]}-{kind.name}-{start}"
    said: dict[str, AttributeValue] = {
        "type": "mig",
        TYPE_ATTRIBUTE: kind.name,
        "uuid": uuid,
        "parentUUID": device.uuid,
        "memoryMiB": memory,
    }
    counters = _counters(memory, kind.multiprocessors, kind.copy_engines, taken)
    amounts = {
        "memory": Quantity.of_bytes(memory * MIB),
        "multiprocessors": Quantity.parse(str(kind.multiprocessors)),
        "copyEngines": Quantity.parse(str(kind.copy_engines)),
    }
    api = structs.replace(
        device.api,
        name=f"{device.name}-mig-{kind.name.replace('.', '-')}-{start}",
        attributes={**_of_the_gpu(device), **attributes(said)},
        capacity=capacities(amounts),
        consumes_counters=[
            DeviceCounterConsumption(counter_set=f"{device.name}-counter-set", counters=counters)
        ],
    )
    parts = tuple(f"memory-slice-{number}" for number in taken)
    hardware = Hardware(device.resource.parent, parts, kind.name)
    return replace(device, api=api, uuid=uuid, hardware=hardware)


def _of_the_gpu(device: AllocatableDevice) -> Mapping[str, object]:
    """The attributes that a partition has from its GPU. It has no number of its own, because it does not exist yet."""
    own = ("index", "minor")
    return {name: one for name, one in (device.api.attributes or {}).items() if name not in own}


def _counters(
    memory_mib: int, multiprocessors: int, copy_engines: int, slices: range
) -> dict[str, Counter]:
    return {
        "memory": Counter(value=str(Quantity.of_bytes(memory_mib * MIB))),
        "multiprocessors": Counter(value=str(multiprocessors)),
        "copy-engines": Counter(value=str(copy_engines)),
        **{f"memory-slice-{number}": Counter(value="1") for number in slices},
    }


def _memory(device: AllocatableDevice) -> int:
    found = plain((device.api.attributes or {}).get("memoryMiB"))
    return found if isinstance(found, int) else 0
