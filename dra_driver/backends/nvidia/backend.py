# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA backend: it asks the hardware process for facts, and lets the other files of this package decide.

`devices.py` makes devices of facts, `health.py` judges them, `leases.py` sets them up for claims. A node without NVIDIA's GPUs costs a
look into sysfs: no process is started there.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Lock
from typing import Self

from dra_driver.backends.base import BackendContext
from dra_driver.backends.nvidia.devices import inventory
from dra_driver.backends.nvidia.door import Hardware
from dra_driver.backends.nvidia.health import HealthBook, Rules
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.backends.nvidia.recorded import RecordedHardware, node_of
from dra_driver.backends.sysfs import has_pci_device
from dra_driver.errors import DriverError
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import InUse, Lease

SYSFS = Path("/sys")
ABSENT_SECONDS = 10.0
"""How often a node without GPUs is looked at again: one may be plugged in."""
_VENDOR, _DISPLAY = 0x10DE, 0x03


class NvidiaBackend:
    """The NVIDIA GPUs of this node. `sysfs` None: they are there, whatever the machine has."""

    options = NvidiaOptions

    def __init__(
        self,
        context: BackendContext,
        *,
        hardware: Hardware | None = None,
        sysfs: Path | None = SYSFS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options: NvidiaOptions = context.options
        self._connected = hardware
        self._connecting = Lock()
        self._sysfs = sysfs
        self._book = HealthBook(Rules(), clock=clock)

    @classmethod
    def recorded(cls, context: BackendContext, facts: object) -> Self:
        """Make a backend that plays the facts of a snapshot. Raises Permanent if they cannot be read."""
        own = BackendContext(context.node_name, NvidiaOptions(), context.driver_name)
        return cls(own, hardware=RecordedHardware(node_of(facts)), sysfs=None)

    @property
    def _hardware(self) -> Hardware:
        """The hardware process. On a node without GPUs nobody asks for it, and not even its code is imported."""
        with self._connecting:
            if self._connected is None:
                self._connected = _hardware_of(self._options)
            return self._connected

    def scan(self) -> Inventory:
        """Look at all GPUs."""
        if not self._is_there():
            return Inventory()
        node = self._hardware.look()
        return inventory(node, self._book.judge(node))

    def watch(self, stop: Event) -> Iterator[None]:
        """Yield at each event of the hardware."""
        while not stop.is_set():
            if self._is_there():
                yield from self._events(stop)
            stop.wait(ABSENT_SECONDS)

    def _events(self, stop: Event) -> Iterator[None]:
        try:
            for event in self._hardware.events(stop):
                if event is not None:
                    self._book.note(event)
                yield
        except DriverError:
            return  # the scan that fails for the same reason says it

    def _is_there(self) -> bool:
        return self._sysfs is None or has_pci_device(self._sysfs, _VENDOR, _DISPLAY)

    def configure(self, lease: Lease, /) -> ContainerEdits:
        """Set what the lease's configuration asks for."""
        raise NotImplementedError

    def reset(self, lease: Lease, /) -> None:
        """Put the modes back."""
        raise NotImplementedError

    def in_use(self, device: DeviceName, /) -> InUse:
        """Whether the library sees a process on the device."""
        raise NotImplementedError


def _hardware_of(options: NvidiaOptions) -> Hardware:
    """Return the door to the hardware process, which starts with the first question."""
    # Not at the top: a node without GPUs never needs them.
    from dra_driver.backends.nvidia.child import link_of  # noqa: PLC0415
    from dra_driver.backends.nvidia.client import HardwareProcess  # noqa: PLC0415

    return HardwareProcess(link_of(options))
