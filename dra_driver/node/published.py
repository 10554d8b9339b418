# SPDX-License-Identifier: Apache-2.0
"""How is a published device written into the state? As JSON that keeps each attribute's type.

What an older driver does not know of a newer one's text is passed over.
"""

import json
from collections.abc import Mapping
from typing import Any

from dra_driver.model.device import AttributeValue, Version
from dra_driver.model.ids import DeviceName
from dra_driver.model.quantity import Quantity
from dra_driver.model.slices import PublishedDevice


def dump_published(device: PublishedDevice) -> str:
    """Everything but the name."""
    return json.dumps(
        {
            "attributes": {name: _dump(value) for name, value in device.attributes.items()},
            "capacity": {name: str(value) for name, value in device.capacity.items()},
        }
    )


def load_published(name: DeviceName, text: str) -> PublishedDevice | None:
    """What `dump_published` wrote, or a newer driver; None for a text that cannot be understood."""
    try:
        content = json.loads(text)
        attributes = {key: _load(entry) for key, entry in content["attributes"].items()}
        capacity = {key: Quantity.parse(entry) for key, entry in content["capacity"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    known = {key: value for key, value in attributes.items() if value is not None}
    return PublishedDevice(name, known, capacity)


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
