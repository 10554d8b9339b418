# SPDX-License-Identifier: Apache-2.0
"""PCI addresses, and device names that are made of them.

A device that has a PCI address is named by it. The address is where the device is plugged in, so the name is the same after a restart,
a reboot, and when another device is added or fails; a number in the order of a scan is not.
"""

import re
from typing import Self

from msgspec import Struct

from dra_driver.errors import Permanent
from dra_driver.model.ids import DeviceName

_HEX = "[0-9a-fA-F]"
_ADDRESS = re.compile(
    rf"({_HEX}{{4,8}}):({_HEX}{{2}}):([01]{_HEX})\.([0-7])"
)  # a bus has 32 devices


class PciAddress(Struct, frozen=True, order=True):
    """Domain, bus, device and function. The text is as in sysfs and in `resource.kubernetes.io/pciBusID`: 0000:65:00.0."""

    domain: int
    bus: int
    device: int
    function: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an address with its domain, as sysfs (0000:65:00.0) or NVML (00000000:65:00.0) write it. Raises Permanent."""
        found = _ADDRESS.fullmatch(text)
        if found is None:
            raise Permanent(
                f"{text[:40]!a} is no PCI address; it must be written as in /sys/bus/pci/devices, for example 0000:65:00.0"
            )
        return cls(*(int(part, 16) for part in found.groups()))

    def name(self, prefix: str) -> DeviceName:
        """Return the name of the device at this address, a DNS label: gpu-0000-65-00-0 for the prefix "gpu"."""
        return DeviceName(f"{prefix}-{re.sub('[:.]', '-', str(self))}")

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"
