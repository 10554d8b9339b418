# SPDX-License-Identifier: Apache-2.0
"""Does a backend's scan return values of the right types? Backends are other people's code, and Python checks no types.

Most fields of the API are checked before they are published (`dra_driver.planning.slices`). The fields that are checked here are
used by every prepare call and by `dra-driver devices`: one wrong type would make all of them fail. So a device with a wrong type is
left out, and the driver reports its name.
"""

import dataclasses
from collections.abc import Iterator, Mapping

from dra_driver.model.api.resource_slice import Device
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.health import Health, HealthStatus
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
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
    return dataclasses.replace(
        found, devices=tuple(good), left_out=(*found.left_out, *problems.values())
    )


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
    yield from _unlike("binds", device.binds, bool)
    yield from _unlike("not_clean", device.not_clean, str)
    yield from _named("errors", device.errors)
    for name, count in device.errors.items():
        yield from _unlike(f"errors[{name}]", count, int)
    yield from _unlike("status_data", device.status_data, (Mapping, type(None)))
    yield from _unlike("hardware", device.hardware, (Hardware, type(None)))
    resource = device.resource
    for field in ("parent", "profile"):
        yield from _unlike(f"hardware.{field}", getattr(resource, field), str)
    for name, values in (("hardware.parts", resource.parts), ("declares", device.declares)):
        yield from _unlike(name, values, (tuple, frozenset))
        for value in values:
            yield from _unlike(name, value, str)


def _named(field: str, values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    yield from _unlike(field, values, Mapping)
    for name in values:
        yield from _unlike(f"a name in {field}", name, str)


def _unlike(field: str, value: object, kind: type | tuple[type, ...]) -> Iterator[tuple[str, str]]:
    """Yield the field if its value has a wrong type. The caller uses only the first result, so the code after a check may rely on
    the type.
    """
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        expected = " or ".join(one.__name__ for one in kinds)
        yield field, f"{value!a:.80} is a {type(value).__name__}, it must be a {expected}"
