# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA backend keeps the promises of a backend: with hardware that is made of files, and with each kind of recording."""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dra_driver.backends.base import Backend, BackendContext
from dra_driver.backends.nvidia.backend import NvidiaBackend
from dra_driver.backends.nvidia.config import (
    GPU,
    MIG,
    GpuConfig,
    GpuSharing,
    MigDeviceConfig,
    MigDeviceSharing,
    TimeSlicingConfig,
)
from dra_driver.backends.nvidia.facts import PciGpu
from dra_driver.backends.nvidia.options import NvidiaOptions
from dra_driver.backends.recorded import RecordedBackend, RecordedOptions
from dra_driver.testing.contract import Promise, backend_contract, crashes
from tests.support.nvidia_node import FileHardware, facts_of

SLICED = GpuSharing(strategy="TimeSlicing", time_slicing_config=TimeSlicingConfig(interval="Short"))
CONFIGS = [
    GPU.config(GpuConfig(sharing=SLICED)),
    MIG.config(MigDeviceConfig(sharing=MigDeviceSharing(strategy="TimeSlicing"))),
]


def promises_of(*made: Any, crashing: bool = False, **more: Any) -> Callable[..., None]:
    """The contract of a backend. A promise that has nothing to test is no skip here.

    Only whole GPUs have modes that a crash could leave behind, and to crash before each line takes long.
    """
    contract = backend_contract(*made, **more)

    @wraps(contract)
    def keeps(promise: Promise, tmp_path: Path) -> None:
        if promise in crashes.PROMISES and not crashing:
            return
        with suppress(pytest.skip.Exception):
            contract(promise, tmp_path)

    return keeps


def plugged_in(folder: Path, entry: PciGpu) -> None:
    place = folder / "bus" / "pci" / "devices" / entry.address
    place.mkdir(parents=True)
    for name, number in (("vendor", 0x10DE), ("class", entry.pci_class), ("device", entry.device)):
        (place / name).write_text(f"{number:#06x}\n")


def machine(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        node = facts_of(name)
        for entry in node.pci:
            plugged_in(folder, entry)
        FileHardware(folder).become(node)

    return make


def backend(folder: Path) -> Backend:
    context = BackendContext("node-1", NvidiaOptions())
    return NvidiaBackend(context, hardware=FileHardware(folder), sysfs=folder)


def modes(folder: Path) -> object:
    return FileHardware(folder).modes()


def pull_out(folder: Path, device: str) -> None:
    """Let the GPU of a device vanish; its PCI device stays, as with one that fell off the bus."""
    hardware = FileHardware(folder)
    node = hardware.look()
    gone = int(device.split("-")[1])
    hardware.become(replace(node, gpus=tuple(one for one in node.gpus if one.minor != gone)))


def of_machine(name: str, *, crashing: bool = False) -> Callable[..., None]:
    given: dict[str, Any] = {"settings": modes, "vanish": pull_out, "configs": CONFIGS}
    return promises_of(backend, hardware=machine(name), crashing=crashing, **given)


def of_recording(name: str) -> Callable[..., None]:
    return promises_of(
        lambda _folder: RecordedBackend(BackendContext("node-1", RecordedOptions(file=name))),
        configs=CONFIGS,
    )


test_gpus = of_machine("t4x2", crashing=True)
test_gpus_and_mig_devices = of_machine("h100-mig")
test_a_recording_of_gpus = of_recording("h100x8")
test_a_recording_of_mig_devices = of_recording("a100-mig")
test_a_recording_with_unified_memory = of_recording("gb10")
