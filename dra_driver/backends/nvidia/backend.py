# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA backend: it asks the hardware process for facts, and lets the other files of this package decide.

`devices.py` makes devices of facts, `health.py` judges them, `leases.py` sets them up for claims, and `edits.py` says what their
containers get. A node without NVIDIA's GPUs costs a look into sysfs: no process is started there.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Self

import msgspec

from dra_driver.backends.base import BackendContext
from dra_driver.backends.nvidia.child import link_of
from dra_driver.backends.nvidia.client import HardwareProcess
from dra_driver.backends.nvidia.config import KINDS
from dra_driver.backends.nvidia.devices import LEFT_OUT, LEFT_OUT_OF_RECORDING, inventory
from dra_driver.backends.nvidia.door import Hardware
from dra_driver.backends.nvidia.edits import edits_for
from dra_driver.backends.nvidia.facts import Node
from dra_driver.backends.nvidia.findings import says_nothing
from dra_driver.backends.nvidia.hardware.pci import gpus
from dra_driver.backends.nvidia.health import HealthBook
from dra_driver.backends.nvidia.leases import Leases
from dra_driver.backends.nvidia.options import HealthOptions, NvidiaOptions
from dra_driver.backends.nvidia.plugin.choice import ConfigOfNode
from dra_driver.backends.nvidia.plugin.config import ignored_xids
from dra_driver.backends.nvidia.recorded import PlayedHardware, node_of
from dra_driver.backends.nvidia.usage import UsageOfGpus
from dra_driver.backends.recording import Snapshot
from dra_driver.backends.sysfs import pci_address
from dra_driver.errors import DriverError, Permanent
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import InUse, Lease
from dra_driver.model.names import HARDWARE_NOT_READY
from dra_driver.model.slices import Problem
from dra_driver.model.usage import DeviceUsage

NAME = "nvidia"
"""Of the entry point, for snapshots."""
SYSFS = Path("sys")
"""Below the host's root."""
ABSENT_SECONDS = 10.0
"""How often a node without GPUs is looked at again: one may be plugged in."""
_BUSES = Path("bus")
"""Below sysfs: a kernel always has it, with or without PCI."""
_MIB = 1024 * 1024
_ALL_MIB = 2**30


class NvidiaBackend:
    """The NVIDIA GPUs of this node. `sysfs` None: they are there, whatever the machine has."""

    options = NvidiaOptions
    config_kinds = KINDS

    def __init__(
        self,
        context: BackendContext,
        *,
        hardware: Hardware | None = None,
        sysfs: Path | None = SYSFS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        options: NvidiaOptions = context.options
        self._hardware = hardware or HardwareProcess(link_of(options))
        self._sysfs = None if sysfs is None else Path(options.host_root) / sysfs
        self._left_out = LEFT_OUT
        self._answered = Node()
        self._devices: tuple[AllocatableDevice, ...] = ()
        self._usage = UsageOfGpus(self._hardware, clock=clock)
        self.plugin_policy = ConfigOfNode(options.device_plugin, os.environ)
        self._options = _with_variables(options.health)
        self._book = HealthBook(self._options, clock=clock)
        self._leases = Leases(
            self._hardware,
            idle_bytes=options.idle_memory * _MIB,
            edits=edits_for(options.capabilities, groups=options.additional_gids),
        )

    @classmethod
    def recorded(cls, context: BackendContext, facts: object) -> Self:
        """Make a backend that plays the facts of a snapshot. Raises Permanent if they cannot be read."""
        # What used the memory at that time is not there now.
        options = NvidiaOptions(idle_memory=_ALL_MIB)
        own = BackendContext(context.node_name, options, context.driver_name)
        made = cls(own, hardware=PlayedHardware(node_of(facts)), sysfs=None)
        made._left_out = LEFT_OUT_OF_RECORDING
        return made

    def close(self) -> None:
        """End the hardware process, if this backend has started it. A command that looks once calls this; the driver just ends."""
        close = getattr(self._hardware, "close", None)
        if callable(close):
            close()

    def snapshot(self) -> Snapshot:
        """Return what the hardware answers, for a file. Raises Permanent if there is none, and Temporary if it does not answer."""
        if not self._is_there():
            if wrong := self._no_host():
                raise Permanent(f"there is nothing to record: {wrong.found}; {wrong.action}")
            raise Permanent(
                f"there is nothing to record: no PCI device of NVIDIA in {self._sysfs} is a GPU; run this on a node that has one"
            )
        return Snapshot(
            backend=NAME, facts=msgspec.json.decode(msgspec.json.encode(self._hardware.look()))
        )

    def scan(self) -> Inventory:
        """Look at all GPUs."""
        if not self._is_there():
            wrong = self._no_host()
            return Inventory(left_out=() if wrong is None else (wrong,))
        leased = self._leases.leased()
        node = self._hardware.look()
        known = self._with_silent_gpus(node)
        found = inventory(known, self._book.judge(known), left_out=self._left_out)
        self._devices = found.devices
        return self._leases.judged(node, found, leased)

    def _with_silent_gpus(self, node: Node) -> Node:
        """While the library answers for no GPU (its kernel driver is replaced), those of the last look stay, as far as they are plugged
        in: as ill ones. A shorter list of devices would look like another kind of node to an autoscaler, and free their counters.
        """
        if not node.problem:
            self._answered = node
            return node
        there = {one.address for one in node.pci}
        silent = tuple(
            msgspec.structs.replace(gpu, problem=node.problem)
            for gpu in self._answered.gpus
            if pci_address(gpu.pci_bus_id) in there
        )
        last = self._answered
        return msgspec.structs.replace(
            node, gpus=silent, system=last.system, mig_profiles=last.mig_profiles
        )

    def usage(self) -> Mapping[DeviceName, DeviceUsage]:
        """Return what is measured on the devices of the last scan; a GPU that does not answer is left out."""
        return self._usage.read(self._devices) if self._is_there() else {}

    def watch(self, stop: Event) -> Iterator[None]:
        """Yield at each event of the hardware that may change the health of a device. The others are counted at the next look."""
        while not stop.is_set():
            if self._is_there():
                yield from self._events(stop)
            stop.wait(ABSENT_SECONDS)

    def _events(self, stop: Event) -> Iterator[None]:
        try:
            for event in self._hardware.events(stop):
                if event is not None:
                    self._book.note(event)
                if event is None or not says_nothing(event, self._options):
                    yield
        except DriverError:
            return  # the scan that fails for the same reason says it

    def configure(self, lease: Lease, /) -> ContainerEdits:
        """Set what the lease's configuration asks for, and return what a container needs of the device and of the driver installation."""
        return self._leases.configure(lease)

    def reset(self, lease: Lease, /) -> None:
        """Put the modes back. A node without GPUs has none, whosever device this is."""
        if self._is_there():
            self._leases.reset(lease)

    def in_use(self, device: DeviceName, /) -> InUse:
        """Whether the library sees a process that computes on the device."""
        return self._leases.in_use(device) if self._is_there() else InUse.CANNOT_TELL

    def _is_there(self) -> bool:
        return self._sysfs is None or bool(gpus(self._sysfs))

    def _no_host(self) -> Problem | None:
        """What is wrong with `hostRoot`, if nobody can tell there whether the node has GPUs."""
        if self._sysfs is None or (self._sysfs / _BUSES).is_dir():
            return None
        return Problem(
            DeviceName(NAME),
            "hostRoot",
            f"there is no folder {self._sysfs / _BUSES}, so nobody can tell which GPUs the node has",
            "set the option hostRoot to the folder where the host's / is, with its /sys mounted in it",
            "backend",
            HARDWARE_NOT_READY,
        )


def _with_variables(options: HealthOptions) -> HealthOptions:
    """The options, with the XIDs that a variable of NVIDIA's device plugin says to ignore."""
    ignored = (*options.ignored_xids, *ignored_xids(os.environ))
    return msgspec.structs.replace(options, ignored_xids=tuple(dict.fromkeys(ignored)))
