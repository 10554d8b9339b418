# SPDX-License-Identifier: Apache-2.0
"""A stand-in for NVIDIA's hardware that keeps its facts, modes and processes in files: they outlive the process that set them.

A node has one whole GPU and one with two MIG devices, and a driver installation as small as a container can use.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event

import msgspec
from msgspec.structs import replace

from dra_driver.backends.base import BackendContext
from dra_driver.backends.nvidia.backend import NvidiaBackend
from dra_driver.backends.nvidia.facts import (
    DeviceFile,
    Gpu,
    HardwareEvent,
    Installation,
    Memory,
    Mig,
    MigDevice,
    Node,
    Process,
)
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.errors import DriverError, Permanent
from dra_driver.model.ids import DeviceName

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


class FileHardware:
    """`door.Hardware` for a folder. `refuses` are errors by the name of a call; `calls` are those that this object got."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[tuple[object, ...]] = []
        self.refuses: dict[str, DriverError] = {}

    def look(self) -> Node:
        self._called("look")
        if not (self.folder / "node.json").exists():
            return Node()
        node = msgspec.json.decode((self.folder / "node.json").read_bytes(), type=Node)
        return replace(
            node,
            gpus=tuple(
                replace(one, compute_mode=self.modes(one.uuid)["mode"]) for one in node.gpus
            ),
        )

    def events(self, stop: Event) -> Iterator[HardwareEvent | None]:
        stop.wait()
        yield from ()

    def processes(self, uuid: str) -> tuple[Process, ...]:
        self._called("processes", uuid)
        found: Mapping[str, tuple[Process, ...]] = msgspec.json.decode(
            (self.folder / "processes.json").read_bytes(), type=dict[str, tuple[Process, ...]]
        )
        return found.get(uuid, ())

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        self._called("set_compute_mode", uuid, mode)
        self._write(uuid, mode=mode)

    def set_time_slice(self, uuid: str, interval: int) -> None:
        self._called("set_time_slice", uuid, interval)
        self._write(uuid, interval=interval)

    def let_go(self) -> None:
        self._called("let_go")

    # What a test does to the hardware.

    def has(self, node: Node) -> None:
        (self.folder / "node.json").write_bytes(msgspec.json.encode(node))

    def runs(self, **processes: tuple[Process, ...]) -> None:
        """These processes run, by UUID with underscores."""
        named = {uuid.replace("_", "-"): found for uuid, found in processes.items()}
        (self.folder / "processes.json").write_bytes(msgspec.json.encode(named))

    def uses(self, amount: int, uuid: str = "GPU-0") -> None:
        """So many bytes of the GPU's memory are used."""
        node = self.look()
        self.has(
            replace(
                node,
                gpus=tuple(
                    replace(one, memory=replace(one.memory, used=amount))
                    if one.uuid == uuid and one.memory
                    else one
                    for one in node.gpus
                ),
            )
        )
        self.calls.clear()

    def modes(self, uuid: str) -> dict[str, int]:
        path = self.folder / f"{uuid}.modes"
        found = {"mode": 0, "interval": 0}
        return found | (msgspec.json.decode(path.read_bytes()) if path.exists() else {})

    def changes(self) -> list[tuple[object, ...]]:
        """The calls that change something."""
        return [call for call in self.calls if str(call[0]).startswith("set_")]

    def _called(self, name: str, *arguments: object) -> None:
        self.calls.append((name, *arguments))
        if name in self.refuses:
            raise self.refuses[name]

    def _write(self, uuid: str, **modes: int) -> None:
        node = msgspec.json.decode((self.folder / "node.json").read_bytes(), type=Node)
        if uuid not in {one.uuid for one in node.gpus}:
            raise Permanent(f"GPU {uuid} is not found")
        fresh = self.folder / f"{uuid}.fresh"
        fresh.write_bytes(msgspec.json.encode(self.modes(uuid) | modes))
        fresh.rename(self.folder / f"{uuid}.modes")


def a_node(folder: Path) -> FileHardware:
    """Make the hardware in an empty folder."""
    hardware = FileHardware(folder)
    hardware.has(NODE)
    hardware.runs()
    return hardware


def a_backend(folder: Path, hardware: FileHardware | None = None) -> NvidiaBackend:
    """A backend for the hardware that is there, as after a restart."""
    context = BackendContext("node-1", NvidiaOptions())
    return NvidiaBackend(context, hardware=hardware or FileHardware(folder), sysfs=None)


def modes_of(folder: Path) -> object:
    """The modes of all GPUs."""
    hardware = FileHardware(folder)
    return {one.uuid: hardware.modes(one.uuid) for one in NODE.gpus}


def pull_out(folder: Path, device: DeviceName) -> None:
    """The GPU of this device is gone."""
    hardware = FileHardware(folder)
    minor = int(device.split("-")[1])
    node = hardware.look()
    hardware.has(replace(node, gpus=tuple(one for one in node.gpus if one.minor != minor)))
