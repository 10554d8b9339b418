# SPDX-License-Identifier: Apache-2.0
"""How is a published device written into the state? As the API writes it, with every field of the API.

Drivers up to version 0.1 used a form of their own, and can read nothing else. This driver also writes that form, so that an older
driver finds, after a rollback, the devices that must stay published. This driver ignores unknown fields of a newer driver.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from dra_driver.model.api.resource_slice import Device, DeviceAttribute
from dra_driver.model.device import Version, attribute, plain
from dra_driver.model.ids import DeviceName

_WHOLE = "device"
"""The JSON key under which the device stands as the API writes it."""
_BACKEND = "backend"
"""The JSON key of the name of the device's backend."""


def dump_published(device: Device, backend: str = "") -> str:
    """Return the text of the device as the API writes it, and also in the form that older drivers read."""
    of_backend = {_BACKEND: backend} if backend else {}
    return msgspec.json.encode({**_in_older_form(device), **of_backend, _WHOLE: device}).decode()


def load_backend_name(text: str) -> str:
    """Return the name of the device's backend; "" if the text has none, because an older driver wrote it."""
    try:
        backend = json.loads(text)[_BACKEND]
    except (ValueError, KeyError, TypeError):
        return ""
    return backend if isinstance(backend, str) else ""


def load_published(name: DeviceName, text: str) -> Device | None:
    """Return the device that `dump_published` of this driver, an older or a newer one wrote; None if the text cannot be read.

    A newer driver may give a field another type. Then the older form is read, which has only some of the fields.
    """
    device = _loaded(text, lambda content: content[_WHOLE]) or _loaded(text, _from_older_form)
    return None if device is None else msgspec.structs.replace(device, name=name)


def _loaded(text: str, choose: Callable[[Mapping[str, Any]], object]) -> Device | None:
    try:
        return msgspec.convert(choose(json.loads(text)), type=Device)
    except (ValueError, KeyError, TypeError, AttributeError, msgspec.MsgspecError):
        return None


def _in_older_form(device: Device) -> Mapping[str, Any]:
    """{"attributes": {"index": 0, "driverVersion": {"version": "1.0.0"}}, "capacity": {"memory": "80Gi"}, "taints": [...]}."""
    content: dict[str, Any] = {
        "attributes": {name: _old(value) for name, value in (device.attributes or {}).items()},
        "capacity": {name: str(size.value) for name, size in (device.capacity or {}).items()},
    }
    if device.taints:
        content["taints"] = [
            {
                "key": taint.key,
                "value": taint.value,
                "effect": taint.effect,
                "time_added": taint.time_added or "",
            }
            for taint in device.taints
        ]
    return content


def _old(value: DeviceAttribute) -> object:
    text = value.version_value
    return plain(value) if text is None else {"version": text}


def _from_older_form(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of the older form, as the API writes them. Values of unknown types are left out."""
    attributes = {name: _new(value) for name, value in content["attributes"].items()}
    return {
        "attributes": {name: value for name, value in attributes.items() if value is not None}
        or None,
        "capacity": {name: {"value": value} for name, value in content["capacity"].items()} or None,
        "taints": list(_taints(content.get("taints"))) or None,
    }


def _new(entry: object) -> Mapping[str, Any] | None:
    match entry:
        case bool() | int() | str():
            found = attribute(entry)
        case {"version": str(text)}:
            found = attribute(Version(text))
        case _:
            return None  # a type that this driver does not know
    as_written: Mapping[str, Any] = msgspec.to_builtins(found)
    return as_written


def _taints(entries: object) -> Iterator[Mapping[str, str]]:
    """Yield the taints of the older form that this driver can read."""
    for entry in entries if isinstance(entries, list) else ():
        match entry:
            case {
                "key": str(key),
                "value": str(value),
                "effect": "NoSchedule" | "NoExecute" as effect,
                "time_added": str(added),
            }:
                yield {"key": key, "value": value, "effect": effect, "timeAdded": added}
            case _:
                pass  # a taint of a newer driver
