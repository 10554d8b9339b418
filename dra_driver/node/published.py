# SPDX-License-Identifier: Apache-2.0
"""How is a published device written into the state? As JSON that keeps each attribute's type.

What an older driver does not know of a newer one's text is passed over.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from dra_driver.model.device import AttributeValue, Version
from dra_driver.model.ids import DeviceName
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import PublishedDevice, Taint


def dump_published(device: PublishedDevice) -> str:
    """Everything but the name."""
    content: dict[str, Any] = {
        "attributes": {name: _dump(value) for name, value in device.attributes.items()},
        "capacity": {name: str(value) for name, value in device.capacity.items()},
    }
    if device.taints:
        content["taints"] = [asdict(taint) for taint in device.taints]
    return json.dumps(content)


def load_published(name: DeviceName, text: str) -> PublishedDevice | None:
    """What `dump_published` wrote, or a newer driver; None for a text that cannot be understood."""
    try:
        content = json.loads(text)
        attributes = {key: _load(entry) for key, entry in content["attributes"].items()}
        capacity = {key: Quantity.parse(entry) for key, entry in content["capacity"].items()}
        taints = tuple(_taints(content.get("taints")))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    known = {key: value for key, value in attributes.items() if value is not None}
    return PublishedDevice(name, known, capacity, taints)


def _dump(value: AttributeValue) -> bool | int | str | Mapping[str, str]:
    return {"version": value.text} if isinstance(value, Version) else value


def _load(entry: Any) -> AttributeValue | None:
    match entry:
        case bool() | int() | str():
            return entry
        case {"version": str(text)}:
            return Version(text)
        case _:
            return None  # of a type that this driver does not know


def _taints(entries: object) -> Iterator[Taint]:
    """Those that this driver knows how to write."""
    for entry in entries if isinstance(entries, list) else ():
        match entry:
            case {
                "key": str(key),
                "value": str(value),
                "effect": "NoSchedule" | "NoExecute" as effect,
                "time_added": str(added),
            }:
                yield Taint(key, value, effect, added)
            case _:
                pass  # of a newer driver
