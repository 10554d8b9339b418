# SPDX-License-Identifier: Apache-2.0
"""Which devices have equal values for what selectors read? They have one number, and one answer of each selector.

A large fleet has many devices and few kinds of them. The numbers are made once for all requests whose selectors read the same.
"""

from collections.abc import Iterable, Sequence

import msgspec

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.reasons.paths import DevicePath, value_at


class DeviceValues:
    """Numbers the devices by their driver and the values at these paths, from 0 on; None stands for all that a selector can read."""

    def __init__(self, paths: Sequence[DevicePath] | None, devices: Iterable[SliceDevice]) -> None:
        self._paths = paths
        numbers: dict[bytes, int] = {}
        self._by_device = {
            device: numbers.setdefault(self._key(device), len(numbers)) for device in devices
        }
        self.count = len(numbers)
        """How many different numbers the devices have."""

    def of(self, device: SliceDevice) -> int:
        """Return the number of one of the devices."""
        return self._by_device[device]

    def _key(self, device: SliceDevice) -> bytes:
        driver, published = device.id.driver, device.device
        if self._paths is None:
            shared = published.allow_multiple_allocations
            return msgspec.json.encode((driver, published.attributes, published.capacity, shared))
        values = [value_at(path, driver, published) for path in self._paths]
        return msgspec.json.encode((driver, values))
