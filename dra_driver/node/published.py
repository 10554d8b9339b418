# SPDX-License-Identifier: Apache-2.0
"""How is a published device written into the state? As the API writes it, so that every field of the API is remembered.

Up to version 0.1 drivers wrote attributes, capacities and taints in a form of their own, and read nothing else. What they
know is written in that form too: after a rollback they find the devices that they must go on publishing. What a newer driver
writes and this one does not know is passed over.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from dra_driver.model.api.resource_slice import Device, DeviceAttribute
from dra_driver.model.device import Version, attribute, plain
from dra_driver.model.ids import DeviceName

_WHOLE = "device"
"""The key under which the whole device stands."""


def dump_published(device: Device) -> str:
    """The device as the API writes it, and beside it what older drivers read."""
    return msgspec.json.encode({**_in_older_form(device), _WHOLE: device}).decode()


def load_published(name: DeviceName, text: str) -> Device | None:
    """What `dump_published` wrote, or an older or newer driver; None for a text that cannot be understood."""
    try:
        content = json.loads(text)
        found = content[_WHOLE] if _WHOLE in content else _from_older_form(content)
        device = msgspec.convert(found, type=Device)
    except (ValueError, KeyError, TypeError, AttributeError, msgspec.MsgspecError):
        return None
    return msgspec.structs.replace(device, name=name)


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
    """As the API writes it, as far as this driver knows it."""
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
            return None  # of a type that this driver does not know
    as_written: Mapping[str, Any] = msgspec.to_builtins(found)
    return as_written


def _taints(entries: object) -> Iterator[Mapping[str, str]]:
    """Those that this driver knows how to write."""
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
                pass  # of a newer driver
