# SPDX-License-Identifier: Apache-2.0
"""What is taken where no backend is named: hardware that the driver knows by itself. There is none of it yet.

So the node has no devices, and that is said. Invented devices are for those who ask for them by name: a cluster in which
nobody did must not give pods devices that do not exist.
"""

from collections.abc import Iterator, Sequence
from threading import Event

from dra_driver.backends.base import BackendContext
from dra_driver.errors import Fatal, Permanent
from dra_driver.model.claim import DeviceConfig
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory

AUTO = "auto"


def next_step(installed: Sequence[str]) -> str:
    """What to do about a node without devices."""
    return (
        f"this release knows no hardware by itself; name a backend with --backend (installed: {', '.join(installed) or 'none'}; "
        "`simulated` invents devices)"
    )


class AutoBackend:
    """A node without devices."""

    def __init__(self, context: BackendContext, installed: Sequence[str]) -> None:
        if context.options:
            raise Fatal(
                f"--backend-option {', '.join(sorted(context.options))} is for a backend: name it with --backend "
                f"(installed: {', '.join(installed) or 'none'})"
            )
        self._next_step = next_step(installed)

    def scan(self) -> Inventory:
        """Nothing."""
        return Inventory(())

    def watch(self, _stop: Event) -> Iterator[None]:
        """Nothing ever changes."""
        yield from ()

    def configure(
        self, device: AllocatableDevice, _config: DeviceConfig, /, **_more: object
    ) -> None:
        """There is no device to set up."""
        raise Permanent(f"device {device.name} is not known: {self._next_step}")

    def reset(self, _device: DeviceName, /, **_more: object) -> None:
        """Nothing to undo."""
