# SPDX-License-Identifier: Apache-2.0
"""Which devices does the node have, if several backends find devices?

A device's name is unique on the node. If two backends return the same name, the device of the backend that had the name first stays,
and the other one is left out and reported: a claim must never move from one device to another because a backend was faster.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from dra_driver.model.api.resource_slice import CounterSet
from dra_driver.model.config_kind import ConfigKind
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.slices import Problem

_ACTION = (
    "the device was left out, all others are published; let one of the two backends name its devices in another way, or choose only one "
    "of them"
)


def combine(
    found: Mapping[str, Inventory],
    had: Mapping[DeviceName, str],
    kinds: Mapping[str, tuple[ConfigKind, ...]] = MappingProxyType({}),
) -> Inventory:
    """Return the devices of all backends, in the order of `found`, each with the name of its backend and its kinds of configuration.

    `found` are the inventories by backend, and `had` is the backend that had each name before. The result's `had` has the new names
    too.
    """
    owners = {name: backend for name, backend in had.items() if backend in found}
    unknown = {name for name in had if name not in owners}
    devices: list[AllocatableDevice] = []
    problems: list[Problem] = []
    for backend, inventory in found.items():
        problems += inventory.left_out
        mine, twice = _divided(inventory.devices, backend, owners)
        of_backend = kinds.get(backend, ())
        devices += [replace(one, backend=backend, config_kinds=of_backend) for one in mine]
        problems += twice
    sets, devices = _separate_sets(found, devices, problems)
    attribute = _one_attribute(found, problems)
    unanswered = tuple(backend for backend, inventory in found.items() if not inventory.scanned)
    return Inventory(
        tuple(devices),
        scanned=len(unanswered) < len(found) or not found,
        left_out=tuple(problems),
        counter_sets=sets,
        partition_type_attribute=attribute,
        skip_node_operations=_unneeded(found.values()),
        unanswered=unanswered,
        had={**owners, **dict.fromkeys(unknown - owners.keys(), "")},
    )


def _divided(
    devices: Iterable[AllocatableDevice], backend: str, owners: dict[DeviceName, str]
) -> tuple[list[AllocatableDevice], list[Problem]]:
    """The backend's own devices, and a problem for each name that another backend had first. Adds new names to `owners`."""
    mine: list[AllocatableDevice] = []
    twice: list[Problem] = []
    for device in devices:
        owner = owners.setdefault(device.name, backend)
        if owner == backend:
            mine.append(device)
        else:
            found = f"backend {backend} has a device of this name, and backend {owner} had the name first"
            twice.append(Problem(device.name, "name", found, _ACTION))
    return mine, twice


def _separate_sets(
    found: Mapping[str, Inventory], devices: list[AllocatableDevice], problems: list[Problem]
) -> tuple[tuple[CounterSet, ...], list[AllocatableDevice]]:
    """The counter sets of all backends, and the devices without those whose set has the name of another backend's set.

    Such a device would consume the counters of somebody else's hardware.
    """
    sets: list[CounterSet] = []
    owners: dict[str, str] = {}
    taken: dict[str, set[str]] = {}
    for backend, inventory in found.items():
        for one in inventory.counter_sets:
            if owners.setdefault(one.name, backend) == backend:
                sets.append(one)
            else:
                taken.setdefault(backend, set()).add(one.name)
                text = f"backend {backend} has a counter set of this name, and so has backend {owners[one.name]}"
                problems.append(Problem(DeviceName(one.name), "name", text, _ACTION, "counter set"))
    left = []
    for device in devices:
        used = {one.counter_set for one in device.api.consumes_counters or ()}
        if twice := used & taken.get(device.backend, set()):
            text = f"its counter set {min(twice)} has the name of another backend's counter set"
            problems.append(Problem(device.name, "consumesCounters", text, _ACTION))
        else:
            left.append(device)
    return tuple(sets), left


def _one_attribute(found: Mapping[str, Inventory], problems: list[Problem]) -> str:
    """The attribute that says what kind of partition a device is. A pool has one, so the first backend's counts."""
    named = {
        backend: inventory.partition_type_attribute
        for backend, inventory in found.items()
        if inventory.partition_type_attribute
    }
    chosen = next(iter(named.values()), "")
    for backend, name in named.items():
        if name != chosen:
            text = (
                f"backend {backend} names {name}, and another backend names {chosen}, which counts"
            )
            action = "the devices are published without it; let both backends use one name"
            problems.append(
                Problem(DeviceName(backend), "partition_type_attribute", text, action, "backend")
            )
    return chosen


def _unneeded(inventories: Iterable[Inventory]) -> tuple[str, ...]:
    """The calls of the kubelet that no backend needs ("*": all calls). An inventory without devices needs none."""
    unneeded = [one.skip_node_operations for one in inventories if one.devices]
    names = dict.fromkeys(name for names in unneeded for name in names)
    return tuple(name for name in names if all(name in other or "*" in other for other in unneeded))
