# SPDX-License-Identifier: Apache-2.0
"""A simulated machine with many devices, as a backend of a package of its own: 28 GPUs with 504 partitions, and a device for shares.

`installed_in` makes the package: this file under another name, so that a driver finds it that was installed without this tree.
"""

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs
from msgspec.structs import replace

from dra_driver.backends.base import BackendContext
from dra_driver.backends.partitions import MIG_80GB, divide
from dra_driver.backends.simulated import SimulatedBackend
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.device import AllocatableDevice, attributes, capacities
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.model.quantity import Quantity

NAME, MODULE = "many", "dra_bench_machine"
GPUS = 28
MEMORY_MIB = 81_920
SHARED = "pool-0"
SMALL = "1g.10gb"
SMALL_PER_GPU = 7


class ManyDevices(SimulatedBackend):
    """The simulated backend with other devices; its fault file can name each of them."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        whole = [_gpu(f"gpu-{number}") for number in range(GPUS)]
        devices, self._sets = divide(whole, MIG_80GB)
        shared = _gpu(SHARED)
        shared = replace(shared, api=structs.replace(shared.api, allow_multiple_allocations=True))
        self._devices = (*map(_placed, devices), shared)
        self._minors = {device.name: minor for minor, device in enumerate(self._devices)}

    def scan(self) -> Inventory:
        """All devices with their counter sets."""
        return dataclasses.replace(super().scan(), counter_sets=self._sets)


def small_partitions() -> Iterator[str]:
    """The names of partitions that can all be used at once."""
    for number in range(GPUS):
        for start in range(SMALL_PER_GPU):
            yield f"gpu-{number}-mig-{SMALL.replace('.', '-')}-{start}"


def installed_in(folder: Path) -> str:
    """Make the package below a folder; returns what PYTHONPATH must be."""
    place = folder / "packages"
    metadata = place / "dra_bench_machine-1.0.dist-info"
    metadata.mkdir(parents=True)
    shutil.copy(__file__, place / f"{MODULE}.py")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1.0\n")
    entry = f"[dra_driver.backends]\n{NAME} = {MODULE}:ManyDevices\n"
    (metadata / "entry_points.txt").write_text(entry)
    return str(place)


def _gpu(name: str) -> AllocatableDevice:
    uuid = f"GPU-{name}"
    size = Quantity.parse(f"{MEMORY_MIB}Mi")
    said = attributes({"uuid": uuid, "memoryMiB": MEMORY_MIB, "productName": "NVIDIA H100 80GB"})
    return AllocatableDevice(
        Device(name=name, attributes=said, capacity=capacities({"memory": size})), uuid
    )


def _placed(device: AllocatableDevice) -> AllocatableDevice:
    """The device with the parts of the GPU that it takes, by the names of its counters."""
    (consumed,) = device.api.consumes_counters or ()
    parts = tuple(name for name in consumed.counters or {} if name.startswith("memory-slice-"))
    is_whole = "-mig-" not in device.name
    return replace(device, hardware=Hardware(consumed.counter_set, () if is_whole else parts))
