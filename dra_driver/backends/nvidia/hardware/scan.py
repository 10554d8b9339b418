# SPDX-License-Identifier: Apache-2.0
"""What the library says of the node and of each GPU, with as few calls as possible.

What cannot change while a GPU runs is read once, with at most 45 calls, two for each active link, and seven for each MIG device. A
refresh has at most five: memory, temperature, one for all fields, fabric and MIG mode, and two more for each link that has come up.
Where there is no fabric or no MIG, its call reads the compute mode, which only an admin with `nvidia-smi` changes behind the driver's
back.
"""

import ctypes
import re
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
from msgspec import Struct, field

from dra_driver.backends.nvidia.facts import (
    Fabric,
    Gpu,
    Memory,
    Mig,
    MigDevice,
    MigProfile,
    RemappedRows,
    System,
)
from dra_driver.backends.nvidia.hardware import migs, pci
from dra_driver.backends.nvidia.hardware.ask import Asker, text
from dra_driver.backends.nvidia.hardware.nvlinks import Links
from dra_driver.backends.nvidia.hardware.nvml import (
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    NO_PERMISSION,
    NOT_SUPPORTED,
    OTHER_VERSION,
)
from dra_driver.backends.nvidia.hardware.values import (
    ECC_UNCORRECTED,
    RECOVERY_ACTION,
    REMAPPED,
    RETIRED_PENDING,
    fabric,
    field_values,
)

FIELDS = (RECOVERY_ACTION, ECC_UNCORRECTED, RETIRED_PENDING, *REMAPPED)
NO_MIG = frozenset({NOT_SUPPORTED, FUNCTION_NOT_FOUND})
_FINAL = frozenset(
    {INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, OTHER_VERSION}
)
NO_FABRIC = 0  # the state of a GPU without a fabric; that does not change
_MEMORY_TOTAL = re.compile(r"^MemTotal:\s+(\d{1,15}) kB", re.MULTILINE)
_GPU_SENSOR = 0
_MEMORY_V2 = 0x02000028


class _Known(Struct):
    """What is kept of a GPU. `mutex`: two requests for one GPU must not read it twice."""

    links: Links
    mutex: Lock = field(default_factory=Lock)
    handle: Any = None
    gpu: Gpu | None = None
    attempts: int = (
        3  # how often the facts that do not change are still read, while a call for them fails
    )
    second_memory: bool = True  # whether to ask the second version of the function
    fabric_version: int | None = 3
    instances: migs.Instances | None = None


class Scanner:
    """Reads facts, and keeps what cannot change. It is of no use any more when the library was closed."""

    def __init__(self, nvml: Any, *, sysfs: Path, proc: Path) -> None:
        self._nvml = nvml
        self._sysfs = sysfs
        self._proc = proc
        self._mutex = Lock()
        self._known: dict[int, _Known] = {}
        self._count: int | None = None
        self._system: System | None = None

    def count(self) -> int:
        """Return how many GPUs the library has. Raises Failed."""
        count = int(Asker(self._nvml, "the node").must("nvmlDeviceGetCount"))
        with self._mutex:
            if self._count not in (None, count):
                self._known = {}  # a GPU has come or gone: the indices mean other GPUs now
            self._count = count
        return count

    def system(self) -> System:
        """Return the versions, and whether confidential computing is on. Raises Failed."""
        asker = Asker(self._nvml, "the node")
        if self._system is None:
            state = asker.ask("nvmlSystemGetConfComputeState")
            self._system = System(
                driver_version=text(asker.ask("nvmlSystemGetDriverVersion")),
                nvml_version=text(asker.ask("nvmlSystemGetNVMLVersion")),
                cuda_driver_version=asker.ask("nvmlSystemGetCudaDriverVersion_v2"),
                cc_feature=None if state is None else state.ccFeature,
                cc_dev_tools=None if state is None else state.devToolsMode,
                cc_ready=asker.ask("nvmlSystemGetConfComputeGpusReadyState"),
                memory_total=_memory_total(self._proc),
                errors=dict(asker.errors),
            )
        elif self._system.cc_feature:
            ready = asker.ask("nvmlSystemGetConfComputeGpusReadyState")
            self._system = msgspec.structs.replace(self._system, cc_ready=ready)
        return self._system

    def gpu(self, index: int) -> Gpu:
        """Return all facts of a GPU; the processes are left out. Raises Failed if it does not answer."""
        known = self._of(index)
        with known.mutex:
            asker = Asker(self._nvml, f"the GPU with index {index}")
            if known.gpu is None or known.attempts:
                known.handle = asker.must("nvmlDeviceGetHandleByIndex", index)
                first = self._first(asker, known, index)
                failed = not _FINAL.issuperset(asker.errors.values())
                known.attempts = known.attempts - 1 if failed else 0
            else:
                asker.errors.update(known.gpu.errors)
                first = known.gpu
            known.gpu = self._refreshed(asker, known, first)
            return known.gpu

    def handle(self, index: int) -> Any:
        """Return the library's handle of a GPU. Raises Failed."""
        known = self._of(index)
        if known.handle is None:
            self.gpu(index)
        return known.handle

    def read(self) -> dict[str, Any]:
        """Return the handles of the GPUs that looks have read, by UUID. This calls nothing, so it does not hang."""
        with self._mutex:
            known = list(self._known.values())
        return {one.gpu.uuid: one.handle for one in known if one.gpu is not None}

    def mig_profiles(self, index: int) -> tuple[MigProfile, ...]:
        """Return the kinds of GPU instances of this board. Raises Failed."""
        return migs.profiles(self._nvml, self.handle(index), f"the GPU with index {index}")

    def index_of(self, uuid: str) -> int | None:
        """Return the index of the GPU with this UUID, or with a MIG device of this UUID; None if no look has seen it."""
        with self._mutex:
            known = {index: one.gpu for index, one in self._known.items() if one.gpu is not None}
        for index, gpu in known.items():
            of_mig = () if gpu.mig is None else gpu.mig.devices
            if gpu.uuid == uuid or any(device.uuid == uuid for device in of_mig):
                return index
        return None

    def mig(self, index: int) -> Mig | None:
        """Return how a GPU is divided, as of the last look at it."""
        gpu = self._of(index).gpu
        return None if gpu is None else gpu.mig

    def forget_migs(self) -> None:
        """Something changed MIG devices: the next look at each GPU reads them again."""
        with self._mutex:
            for known in self._known.values():
                known.instances = None

    def set_mode(self, index: int, mode: int) -> None:
        """Remember a compute mode that was set."""
        known = self._of(index)
        with known.mutex:
            if known.gpu is not None:
                known.gpu = msgspec.structs.replace(known.gpu, compute_mode=mode)

    def _of(self, index: int) -> _Known:
        with self._mutex:
            return self._known.setdefault(index, _Known(Links(self._nvml)))

    def _first(self, asker: Asker, known: _Known, index: int) -> Gpu:
        """All that a refresh does not read."""
        handle = known.handle
        bus = asker.ask("nvmlDeviceGetPciInfo", handle)
        address = "" if bus is None else text(bus.busId)
        before = known.gpu or Gpu(index=index)
        known.links.first(handle)
        return Gpu(
            index=index,
            uuid=text(asker.must("nvmlDeviceGetUUID", handle)),
            pci_bus_id=address,
            minor=asker.ask("nvmlDeviceGetMinorNumber", handle),
            name=text(asker.ask("nvmlDeviceGetName", handle)),
            brand=asker.ask("nvmlDeviceGetBrand", handle),
            architecture=asker.ask("nvmlDeviceGetArchitecture", handle),
            compute_capability=asker.ask("nvmlDeviceGetCudaComputeCapability", handle),
            serial=text(asker.ask("nvmlDeviceGetSerial", handle)),
            pci_device_id=None if bus is None else bus.pciDeviceId,
            pci_subsystem_id=None if bus is None else bus.pciSubSystemId,
            addressing_mode=asker.ask("nvmlDeviceGetAddressingMode", handle),
            # An argument of its own: pynvml's default is one object for all threads.
            module_id=asker.ask("nvmlDeviceGetModuleId", handle, ctypes.c_uint()),
            virtualization_mode=asker.ask("nvmlDeviceGetVirtualizationMode", handle),
            compute_mode=asker.ask("nvmlDeviceGetComputeMode", handle),
            mig=before.mig,
            numa_node=pci.numa_node(self._sysfs, address),
            pci_path=pci.place(self._sysfs, address),
        )

    def _refreshed(self, asker: Asker, known: _Known, first: Gpu) -> Gpu:
        """What can change while the GPU runs."""
        handle = known.handle
        memory = self._memory(asker, known)
        temperature = asker.ask("nvmlDeviceGetTemperature", handle, _GPU_SENSOR)
        values = field_values(asker, handle, (*FIELDS, *known.links.fields))
        action, ecc, retired, *rows = values[: len(FIELDS)]
        known.links.told(handle, values[len(FIELDS) :])
        found_fabric = self._fabric(asker, known)
        mig = self._mig(asker, known, first)
        mode = first.compute_mode
        no_fabric = found_fabric is None or found_fabric.state == NO_FABRIC
        left = known.gpu is not None and (no_fabric or mig is None)
        if left and not known.links.ask_in_turn(handle):
            mode = asker.ask("nvmlDeviceGetComputeMode", handle)
        return msgspec.structs.replace(
            first,
            memory=memory,
            mig=mig,
            fabric=found_fabric,
            compute_mode=mode,
            nvlinks=known.links.active,
            temperature=temperature,
            recovery_action=action,
            ecc_uncorrected=ecc,
            remapped_rows=_remapped(rows),
            retired_pages_pending=None if retired is None else bool(retired),
            # Its module may be loaded after the GPU was found.
            drm=pci.drm(self._sysfs, first.pci_bus_id),
            errors=dict(asker.errors),
        )

    def _memory(self, asker: Asker, known: _Known) -> Memory | None:
        function, handle = "nvmlDeviceGetMemoryInfo", known.handle
        if known.second_memory:
            found = asker.ask(function, handle, _MEMORY_V2)
            if found is not None:
                return Memory(
                    total=found.total, free=found.free, used=found.used, reserved=found.reserved
                )
            if asker.errors[function] not in {FUNCTION_NOT_FOUND, OTHER_VERSION}:
                return None
            known.second_memory = False
        found = asker.ask(function, handle)
        if found is None:
            return None
        return Memory(total=found.total, free=found.free, used=found.used)

    def _fabric(self, asker: Asker, known: _Known) -> Fabric | None:
        """Of the versions of this function, the first one that the library has; later only this one."""
        before = None if known.gpu is None else known.gpu.fabric
        if before is not None and before.state == NO_FABRIC:
            return before
        while known.fabric_version is not None:
            found, version = fabric(self._nvml, asker, known.handle, known.fabric_version)
            if found is not None or version == known.fabric_version:
                return found
            known.fabric_version = version
        return None

    def _mig(self, asker: Asker, known: _Known, first: Gpu) -> Mig | None:
        function = "nvmlDeviceGetMigMode"
        if known.gpu is not None and asker.errors.get(function) == NOT_SUPPORTED:
            return None
        modes = asker.ask(function, known.handle)
        if modes is None:
            # Otherwise a call that fails once would make a whole GPU of one in MIG mode.
            return None if asker.errors[function] in NO_MIG else first.mig
        enabled, pending = bool(modes[0]), bool(modes[1])
        return Mig(
            enabled=enabled,
            pending=pending,
            devices=self._mig_devices(known, first) if enabled else (),
        )

    def _mig_devices(self, known: _Known, first: Gpu) -> tuple[MigDevice, ...]:
        # Read before the devices: what changes meanwhile is found by the next look.
        seen = migs.instances(self._proc, first.minor)
        before = None if first.mig is None or not first.mig.enabled else first.mig.devices
        if before is not None and seen is not None and seen == known.instances:
            return before
        found = migs.devices(self._nvml, known.handle, f"the GPU with index {first.index}")
        # The kernel driver shows a compute instance before the library has it, and a call may fail: then they are read once more.
        known.instances = seen if len(found) == migs.count(seen) else None
        return found


def _remapped(rows: list[int | None]) -> RemappedRows | None:
    correctable, uncorrectable, pending, failure = rows
    if correctable is None or uncorrectable is None:
        return None
    return RemappedRows(
        correctable=correctable,
        uncorrectable=uncorrectable,
        pending=bool(pending),
        failed=bool(failure),
    )


def _memory_total(proc: Path) -> int | None:
    try:
        text_of_file = (proc / "meminfo").read_text(errors="replace")
    except OSError:
        return None
    found = _MEMORY_TOTAL.search(text_of_file)
    return None if found is None else int(found.group(1)) * 1024
