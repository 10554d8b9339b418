# SPDX-License-Identifier: Apache-2.0
"""Which devices does the node have, if several backends find devices?

A device's name is unique on the node. If two backends return the same name, the device of the backend that had the name first stays,
and the other one is left out and reported: a claim must never move from one device to another because a backend was faster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

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
    unanswered = tuple(backend for backend, inventory in found.items() if not inventory.scanned)
    return Inventory(
        tuple(devices),
        scanned=len(unanswered) < len(found) or not found,
        left_out=tuple(problems),
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
