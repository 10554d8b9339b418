# SPDX-License-Identifier: Apache-2.0
"""Does a backend's scan return values of the right types? Backends are other people's code, and Python checks no types.

Most fields of the API are checked before they are published (`dra_driver.planning.slices`). The fields that are checked here are
used by every prepare call and by `dra-driver devices`: one wrong type would make all of them fail. So a device with a wrong type is
left out, and the driver reports its name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dra_driver.model.api.resource_slice import Device
from dra_driver.model.cdi import ContainerEdits, DeviceNode, Mount
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.health import Health, HealthStatus
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.slices import Problem

_ACTION = "the device was left out, all others are published; correct it in the backend"


def as_scanned(found: object) -> Inventory:
    """Return the inventory without unusable devices; its `left_out` names them. Raises TypeError if `found` is no Inventory."""
    if not isinstance(found, Inventory):
        raise TypeError(f"scan() must return an Inventory; it returned a {type(found).__name__}")
    problems = {
        index: Problem(DeviceName(str(device.name)), *wrong, _ACTION)
        for index, device in enumerate(found.devices)
        if (wrong := next(_wrong(device), None))
    }
    if not problems:
        return found
    good = (device for index, device in enumerate(found.devices) if index not in problems)
    return replace(found, devices=tuple(good), left_out=tuple(problems.values()))


def _wrong(device: AllocatableDevice) -> Iterator[tuple[str, str]]:
    """Yield the fields of a device that have a wrong type, with their values."""
    yield from _unlike("device", device, AllocatableDevice)
    yield from _unlike("api", device.api, Device)
    yield from _unlike("name", device.name, str)
    yield from _unlike("uuid", device.uuid, str)
    for field in ("attributes", "capacity"):
        yield from _named(field, getattr(device.api, field) or {})
    yield from _unlike("health", device.health, Health)
    yield from _unlike("health.status", device.health.status, HealthStatus)
    yield from _unlike("edits", device.edits, ContainerEdits)
    yield from _edits(device.edits)


def _edits(edits: ContainerEdits) -> Iterator[tuple[str, str]]:
    yield from _named("edits.env", edits.env, of_texts=True)
    for field, kind in (("device_nodes", DeviceNode), ("mounts", Mount)):
        entries = getattr(edits, field)
        yield from _unlike(f"edits.{field}", entries, tuple)
        for index, entry in enumerate(entries):
            yield from _unlike(f"edits.{field}[{index}]", entry, kind)
            yield from _entry(entry, f"edits.{field}[{index}]")


def _entry(entry: DeviceNode | Mount, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(entry, Mount):
        texts: tuple[str, ...] = ("host_path", "container_path")
        yield from _unlike(f"{path}.options", entry.options, (tuple, list))
        for option in entry.options:
            yield from _unlike(f"{path}.options", option, str)
    else:
        texts = ("path", "type", "permissions", "host_path")
        for number in ("major", "minor", "file_mode"):
            yield from _unlike(f"{path}.{number}", getattr(entry, number), (int, type(None)))
    for text in texts:
        yield from _unlike(f"{path}.{text}", getattr(entry, text), str)


def _named(
    field: str, values: Mapping[str, object], *, of_texts: bool = False
) -> Iterator[tuple[str, str]]:
    yield from _unlike(field, values, Mapping)
    for name, value in values.items():
        yield from _unlike(f"a name in {field}", name, str)
        if of_texts:
            yield from _unlike(f"{field}[{name}]", value, str)


def _unlike(field: str, value: object, kind: type | tuple[type, ...]) -> Iterator[tuple[str, str]]:
    """Yield the field if its value has a wrong type. The caller uses only the first result, so the code after a check may rely on
    the type.
    """
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        expected = " or ".join(one.__name__ for one in kinds)
        yield field, f"{value!a:.80} is a {type(value).__name__}, it must be a {expected}"
