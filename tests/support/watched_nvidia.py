# SPDX-License-Identifier: Apache-2.0
"""NVIDIA hardware whose calls are written down: one whole GPU, one with two MIG devices, and a driver installation as small as a
container can use.
"""

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from dra_driver.backends.base import BackendContext
from dra_driver.backends.nvidia.backend import NvidiaBackend
from dra_driver.backends.nvidia.door import Hardware
from dra_driver.backends.nvidia.facts import (
    DeviceFile,
    Gpu,
    Installation,
    Memory,
    Mig,
    MigDevice,
    Node,
    Process,
)
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.backends.nvidia.recorded import RecordedHardware
from dra_driver.errors import DriverError
from tests.support.nvidia_node import FileHardware

GIB = 2**30
WHOLE = Gpu(
    index=0,
    uuid="GPU-0",
    pci_bus_id="00000000:65:00.0",
    minor=0,
    name="NVIDIA H100 80GB HBM3",
    memory=Memory(total=80 * GIB, reserved=GIB, used=4 * 2**20),
    compute_mode=0,
)
PARTS = tuple(
    MigDevice(
        uuid=f"MIG-{number}",
        gpu_instance=7 + number,
        compute_instance=0,
        profile=9,
        start=4 * number,
        size=4,
        gpu_slices=3,
        compute_slices=3,
        memory_mib=40448,
    )
    for number in range(2)
)
DIVIDED = replace(
    WHOLE,
    index=1,
    uuid="GPU-1",
    pci_bus_id="00000000:66:00.0",
    minor=1,
    mig=Mig(enabled=True, devices=PARTS),
)
INSTALLATION = Installation(
    driver_root="/",
    kernel_version="550.54.15",
    library_version="550.54.15",
    libraries=("/usr/lib64/libcuda.so.550.54.15",),
    links={"/usr/lib64/libcuda.so.550.54.15": ("libcuda.so.1", "libcuda.so")},
    device_files=(
        DeviceFile("/dev/nvidia0", 195, 0),
        DeviceFile("/dev/nvidia1", 195, 1),
        DeviceFile("/dev/nvidiactl", 195, 255),
    ),
    caps_major=235,
    caps={
        f"gpu1/gi{one.gpu_instance}{ci}/access": 2 * number + bool(ci)
        for number, one in enumerate(PARTS)
        for ci in ("", "/ci0")
    },
)
NODE = Node(gpus=(WHOLE, DIVIDED), installation=INSTALLATION)


class WatchedHardware(FileHardware):
    """Hardware in a folder that writes down its calls. `refuses` are errors by the name of a call."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.calls: list[tuple[object, ...]] = []
        self.refuses: dict[str, DriverError] = {}

    def look(self) -> Node:
        self._called("look")
        return super().look()

    def processes(self, uuid: str) -> tuple[Process, ...]:
        self._called("processes", uuid)
        return RecordedHardware(super().look()).processes(uuid)

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        self._called("set_compute_mode", uuid, mode)
        super().set_compute_mode(uuid, mode)

    def set_time_slice(self, uuid: str, interval: int) -> None:
        self._called("set_time_slice", uuid, interval)
        super().set_time_slice(uuid, interval)

    def changes(self) -> list[tuple[object, ...]]:
        """The calls that change something."""
        return [call for call in self.calls if str(call[0]).startswith("set_")]

    def runs(self, *processes: Process, on: str = "GPU-0") -> None:
        """These processes run on the GPU, and no others."""
        self._change(on, processes=processes)

    def uses(self, amount: int, on: str = "GPU-0") -> None:
        """So many bytes of the GPU's memory are used."""
        self._change(on, memory=Memory(total=80 * GIB, reserved=GIB, used=amount))

    def _change(self, uuid: str, **fields: Any) -> None:
        node = super().look()
        gpus = (replace(one, **fields) if one.uuid == uuid else one for one in node.gpus)
        self.become(replace(node, gpus=tuple(gpus)))

    def _called(self, name: str, *arguments: object) -> None:
        self.calls.append((name, *arguments))
        if name in self.refuses:
            raise self.refuses[name]


def a_node(folder: Path) -> WatchedHardware:
    """Make the hardware in an empty folder."""
    hardware = WatchedHardware(folder)
    hardware.become(NODE)
    return hardware


def a_backend(hardware: Hardware, sysfs: Path | None = None) -> NvidiaBackend:
    """A backend for the hardware that is there, as after a restart."""
    return NvidiaBackend(BackendContext("node-1", NvidiaOptions()), hardware=hardware, sysfs=sysfs)
