# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA backend: it asks the hardware process for facts, and lets the other files of this package decide.

`devices.py` makes devices of facts, `health.py` judges them, `leases.py` sets them up for claims.
"""

from collections.abc import Iterator
from threading import Event

from dra_driver.backends.base import BackendContext
from dra_driver.backends.nvidia.child import link_of
from dra_driver.backends.nvidia.client import HardwareProcess
from dra_driver.backends.nvidia.door import Hardware
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import InUse, Lease


class NvidiaBackend:
    """The NVIDIA GPUs of this node."""

    options = NvidiaOptions

    def __init__(self, context: BackendContext, *, hardware: Hardware | None = None) -> None:
        self._options: NvidiaOptions = context.options
        self._hardware = hardware or HardwareProcess(link_of(self._options))

    def scan(self) -> Inventory:
        """Look at all GPUs."""
        raise NotImplementedError

    def watch(self, stop: Event) -> Iterator[None]:
        """Yield at each event of the hardware."""
        raise NotImplementedError

    def configure(self, lease: Lease, /) -> ContainerEdits:
        """Set what the lease's configuration asks for."""
        raise NotImplementedError

    def reset(self, lease: Lease, /) -> None:
        """Put the modes back."""
        raise NotImplementedError

    def in_use(self, device: DeviceName, /) -> InUse:
        """Whether the library sees a process on the device."""
        raise NotImplementedError
