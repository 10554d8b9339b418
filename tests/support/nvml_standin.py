# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA library as Python functions, made from the facts of a node. It counts its calls, and fails where a test says so.

It has the functions of the module pynvml that the hardware process calls; everything else is taken from pynvml itself.
"""

from collections import Counter
from collections.abc import Callable
from queue import Empty, Queue
from threading import Event
from types import SimpleNamespace
from typing import Any

import pynvml

from dra_driver.backends.nvidia.facts import Gpu, HardwareEvent, Memory, MigDevice, Node

NOT_SUPPORTED, NOT_FOUND, TIMEOUT, FUNCTION_NOT_FOUND = 3, 6, 10, 13
RECOVERY, ECC, RETIRED, LINK_COUNT, LINK_STATE = 230, 4, 31, 91, 165
ROWS = {142: "correctable", 143: "uncorrectable", 144: "pending", 145: "failed"}
_UNSIGNED = 1  # NVML_VALUE_TYPE_UNSIGNED_INT
_WHOLE = 0xFFFFFFFF
# Named by other functions in `Gpu.errors`.
_SAME = {
    "nvmlDeviceGetFieldValues": "",
    "nvmlDeviceGetGpuFabricInfoV": "nvmlDeviceGetGpuFabricInfo",
}


class StandIn:
    """`node` may be replaced while a test runs.

    `fail["nvmlDeviceGetName"]` is the number of the error of this function, `fail["nvmlDeviceGetName", 3]` only for the GPU with index 3.
    `hang` has such keys too: these calls wait until `go` is set. `missing` are functions that the library does not have.
    `down` are links that are not active now: the number of the GPU and of the link.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.calls: Counter[str] = Counter()
        self.by_gpu: Counter[int] = Counter()
        self.fail: dict[object, int] = {}
        self.hang: set[object] = set()
        self.missing: set[str] = set()
        self.go = Event()
        self.happening: Queue[HardwareEvent] = Queue()
        self.modes: dict[str, int] = {}
        self.registered: dict[str, int] = {}
        self.event_types = 0x2 | 0x4 | 0x8 | 0x10 | 0x100
        self.down: set[tuple[int, int]] = set()
        self.link_field = True
        self.link_count = True

    def __getattr__(self, name: str) -> Any:
        own: Callable[..., Any] | None = getattr(type(self), f"_{name}", None)
        if own is None:
            if name.startswith("nvml") and callable(getattr(pynvml, name)):
                raise AssertionError(f"the stand-in has no {name}")
            return getattr(pynvml, name)

        def call(*arguments: Any) -> Any:
            return self._call(name, own, arguments)

        return call

    def _call(self, name: str, own: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        self.calls[name] += 1
        handle = next((one for one in arguments if isinstance(one, Handle)), None)
        if handle is not None:
            self.by_gpu[handle.gpu] += 1
        if name == "nvmlDeviceGetHandleByIndex":
            handle = Handle(arguments[0])
            self.by_gpu[handle.gpu] += 1
        keys = (name, (name, None if handle is None else handle.gpu))
        if self.hang.intersection(keys):
            self.go.wait()
        if name in self.missing:
            raise pynvml.NVMLError(FUNCTION_NOT_FOUND)
        for key in keys:
            if key in self.fail:
                raise pynvml.NVMLError(self.fail[key])
        if handle is not None and handle.mig is None and name not in _SAME:
            code = self._gpu(handle).errors.get(name, 0)
            if code:
                raise pynvml.NVMLError(code)
        return own(self, *arguments)

    def _gpu(self, handle: "Handle") -> Gpu:
        if handle.gpu >= len(self.node.gpus):
            raise pynvml.NVMLError(2)
        return self.node.gpus[handle.gpu]

    def _mig(self, handle: "Handle") -> MigDevice:
        mig = self._gpu(handle).mig
        if mig is None or handle.mig is None or handle.mig >= len(mig.devices):
            raise pynvml.NVMLError(NOT_FOUND)
        return mig.devices[handle.mig]

    def _nvmlInitWithFlags(self, flags: int) -> None:  # noqa: N802
        if self.node.problem:
            raise pynvml.NVMLError(999)

    def _nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return self.node.system.driver_version

    def _nvmlSystemGetNVMLVersion(self) -> str:  # noqa: N802
        return self.node.system.nvml_version

    def _nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        return _there(self.node.system.cuda_driver_version)

    def _nvmlSystemGetConfComputeState(self) -> Any:  # noqa: N802
        system = self.node.system
        return SimpleNamespace(
            ccFeature=_there(system.cc_feature), devToolsMode=system.cc_dev_tools
        )

    def _nvmlSystemGetConfComputeGpusReadyState(self) -> int:  # noqa: N802
        return _there(self.node.system.cc_ready)

    def _nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.node.gpus)

    def _nvmlDeviceGetHandleByIndex(self, index: int) -> "Handle":  # noqa: N802
        handle = Handle(index)
        self._gpu(handle)
        return handle

    def _nvmlDeviceGetHandleByUUID(self, uuid: str) -> "Handle":  # noqa: N802
        for gpu in self.node.gpus:
            if gpu.uuid == uuid:
                return Handle(gpu.index)
            for number, device in enumerate(gpu.mig.devices if gpu.mig else ()):
                if device.uuid == uuid:
                    return Handle(gpu.index, number)
        raise pynvml.NVMLError(NOT_FOUND)

    def _nvmlDeviceGetUUID(self, handle: "Handle") -> str:  # noqa: N802
        return self._gpu(handle).uuid if handle.mig is None else self._mig(handle).uuid

    def _nvmlDeviceGetPciInfo(self, handle: "Handle") -> Any:  # noqa: N802
        gpu = self._gpu(handle)
        return SimpleNamespace(
            busId=gpu.pci_bus_id.encode(),
            pciDeviceId=gpu.pci_device_id,
            pciSubSystemId=gpu.pci_subsystem_id,
        )

    def _nvmlDeviceGetMinorNumber(self, handle: "Handle") -> int:  # noqa: N802
        return _there(self._gpu(handle).minor)

    def _nvmlDeviceGetName(self, handle: "Handle") -> str:  # noqa: N802
        return self._gpu(handle).name

    def _nvmlDeviceGetBrand(self, handle: "Handle") -> int:  # noqa: N802
        return _there(self._gpu(handle).brand)

    def _nvmlDeviceGetArchitecture(self, handle: "Handle") -> int:  # noqa: N802
        return _there(self._gpu(handle).architecture)

    def _nvmlDeviceGetCudaComputeCapability(self, handle: "Handle") -> Any:  # noqa: N802
        return _there(self._gpu(handle).compute_capability)

    def _nvmlDeviceGetSerial(self, handle: "Handle") -> str:  # noqa: N802
        return self._gpu(handle).serial

    def _nvmlDeviceGetAddressingMode(self, handle: "Handle") -> int:  # noqa: N802
        return _there(self._gpu(handle).addressing_mode)

    def _nvmlDeviceGetModuleId(self, handle: "Handle", room: Any) -> int:  # noqa: N802
        return _there(self._gpu(handle).module_id)

    def _nvmlDeviceGetVirtualizationMode(self, handle: "Handle") -> int:  # noqa: N802
        return _there(self._gpu(handle).virtualization_mode)

    def _nvmlDeviceGetComputeMode(self, handle: "Handle") -> int:  # noqa: N802
        gpu = self._gpu(handle)
        return self.modes.get(gpu.uuid, _there(gpu.compute_mode))

    def _nvmlDeviceSetComputeMode(self, handle: "Handle", mode: int) -> None:  # noqa: N802
        self.modes[self._nvmlDeviceGetUUID(handle)] = mode

    def _nvmlDeviceGetTemperature(self, handle: "Handle", sensor: int) -> int:  # noqa: N802
        return _there(self._gpu(handle).temperature)

    def _nvmlDeviceGetUtilizationRates(self, handle: "Handle") -> Any:  # noqa: N802
        return SimpleNamespace(gpu=50, memory=25)

    def _nvmlDeviceGetPowerUsage(self, handle: "Handle") -> int:  # noqa: N802
        return 350_500

    def _nvmlDeviceGetEnforcedPowerLimit(self, handle: "Handle") -> int:  # noqa: N802
        return 400_000

    def _nvmlDeviceGetClockInfo(self, handle: "Handle", clock: int) -> int:  # noqa: N802
        return {1: 1410, 2: 1215}[clock]

    def _nvmlDeviceGetCurrentClocksEventReasons(self, handle: "Handle") -> int:  # noqa: N802
        return 0x4

    def _nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: "Handle") -> int:  # noqa: N802
        return 0x8

    def _nvmlDeviceGetTotalEccErrors(self, handle: "Handle", kind: int, counter: int) -> int:  # noqa: N802
        return {(0, 0): 3, (1, 0): 1}[kind, counter]

    def _nvmlDeviceGetMemoryInfo(self, handle: "Handle", version: int = 0) -> Any:  # noqa: N802
        memory = _there(self._gpu(handle).memory)
        if handle.mig is not None:
            return Memory(total=self._mig(handle).memory_mib << 20, used=1 << 30)
        if version and memory.reserved is None:
            raise pynvml.NVMLError(FUNCTION_NOT_FOUND)
        return memory

    def _nvmlDeviceGetFieldValues(self, handle: "Handle", fields: list[Any]) -> list[Any]:  # noqa: N802
        return [self._field(self._gpu(handle), one) for one in fields]

    def _field(self, gpu: Gpu, asked: Any) -> Any:
        field, scope = asked if isinstance(asked, tuple) else (asked, 0)
        rows = gpu.remapped_rows
        links = {link.link for link in gpu.nvlinks}
        value: int | None
        if field in ROWS:
            value = None if rows is None else int(getattr(rows, ROWS[field]))
        elif field == LINK_STATE:
            active = scope in links and (gpu.index, scope) not in self.down
            value = int(active) if self.link_field else None
        else:
            value = {
                RECOVERY: gpu.recovery_action,
                ECC: gpu.ecc_uncorrected,
                RETIRED: gpu.retired_pages_pending,
                LINK_COUNT: max(links, default=-1) + 1 if self.link_count else None,
            }[field]
        return SimpleNamespace(
            nvmlReturn=NOT_SUPPORTED if value is None else 0,
            valueType=_UNSIGNED,
            value=SimpleNamespace(uiVal=value),
        )

    def _nvmlDeviceGetNvLinkState(self, handle: "Handle", link: int) -> int:  # noqa: N802
        links = {one.link for one in self._gpu(handle).nvlinks}
        if link > max(links, default=-1):
            raise pynvml.NVMLError(2)
        return int(link in links and (handle.gpu, link) not in self.down)

    def _nvmlDeviceGetNvLinkRemotePciInfo(self, handle: "Handle", link: int) -> Any:  # noqa: N802
        found = next(one for one in self._gpu(handle).nvlinks if one.link == link)
        return SimpleNamespace(busId=found.remote_pci_bus_id)

    def _nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: "Handle", link: int) -> int:  # noqa: N802
        found = next(one for one in self._gpu(handle).nvlinks if one.link == link)
        return _there(found.remote_type)

    def _nvmlDeviceGetGpuFabricInfoV(self, handle: "Handle", room: Any) -> int:  # noqa: N802
        fabric = _there(self._gpu(handle).fabric)
        found = room._obj  # what ctypes.byref refers to
        if hasattr(found, "healthSummary") and fabric.health_summary is None:
            raise pynvml.NVMLError(25)
        digits = bytes.fromhex(fabric.cluster_uuid.replace("-", "")) or bytes(16)
        found.clusterUuid[:] = digits
        found.state, found.status, found.cliqueId = fabric.state, fabric.status, fabric.clique_id
        found.healthMask = fabric.health_mask or 0
        if fabric.health_summary is not None:
            found.healthSummary = fabric.health_summary
        return 0

    def _nvmlDeviceGetMigMode(self, handle: "Handle") -> list[int]:  # noqa: N802
        mig = _there(self._gpu(handle).mig)
        return [int(mig.enabled), int(mig.pending)]

    def _nvmlDeviceGetMaxMigDeviceCount(self, handle: "Handle") -> int:  # noqa: N802
        return 7

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, handle: "Handle", index: int) -> "Handle":  # noqa: N802
        found = Handle(handle.gpu, index)
        self._mig(found)
        return found

    def _nvmlDeviceGetGpuInstanceId(self, handle: "Handle") -> int:  # noqa: N802
        return self._mig(handle).gpu_instance

    def _nvmlDeviceGetComputeInstanceId(self, handle: "Handle") -> int:  # noqa: N802
        return self._mig(handle).compute_instance

    def _nvmlDeviceGetAttributes_v2(self, handle: "Handle") -> Any:  # noqa: N802
        device = self._mig(handle)
        return SimpleNamespace(
            multiprocessorCount=device.multiprocessors,
            sharedCopyEngineCount=device.copy_engines,
            sharedDecoderCount=device.decoders,
            sharedEncoderCount=device.encoders,
            sharedJpegCount=device.jpeg_engines,
            sharedOfaCount=device.ofa_engines,
            gpuInstanceSliceCount=device.gpu_slices,
            computeInstanceSliceCount=device.compute_slices,
            memorySizeMB=device.memory_mib,
        )

    def _nvmlDeviceGetGpuInstanceById(self, handle: "Handle", number: int) -> "Handle":  # noqa: N802
        mig = _there(self._gpu(handle).mig)
        at = next(at for at, one in enumerate(mig.devices) if one.gpu_instance == number)
        return Handle(handle.gpu, at)

    def _nvmlGpuInstanceGetInfo(self, instance: "Handle") -> Any:  # noqa: N802
        device = self._mig(instance)
        placement = SimpleNamespace(start=device.start, size=device.size)
        return SimpleNamespace(profileId=device.profile, placement=placement)

    def _nvmlDeviceGetGpuInstanceProfileInfo(  # noqa: N802
        self, handle: "Handle", number: int, version: int = 2
    ) -> Any:
        for one in self.node.mig_profiles.get(self._gpu(handle).name, ()):
            if one.profile == number:
                return SimpleNamespace(
                    id=one.id,
                    sliceCount=one.slices,
                    instanceCount=one.instances,
                    memorySizeMB=one.memory_mib,
                    multiprocessorCount=one.multiprocessors,
                    copyEngineCount=one.copy_engines,
                    decoderCount=one.decoders,
                    encoderCount=one.encoders,
                    jpegCount=one.jpeg_engines,
                    ofaCount=one.ofa_engines,
                )
        raise pynvml.NVMLError(NOT_SUPPORTED)

    def _nvmlDeviceGetGpuInstancePossiblePlacements(  # noqa: N802
        self, handle: "Handle", profile_id: int, room: Any, count: Any
    ) -> int:
        profiles = self.node.mig_profiles[self._gpu(handle).name]
        profile = next(one for one in profiles if one.id == profile_id)
        for place, start in zip(room, profile.starts, strict=False):
            place.start, place.size = start, profile.size
        count._obj.value = len(profile.starts)
        return 0

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle: "Handle") -> list[Any]:  # noqa: N802
        return self._processes(handle, "compute")

    def _nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle: "Handle") -> list[Any]:  # noqa: N802
        return self._processes(handle, "graphics")

    def _nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle: "Handle") -> list[Any]:  # noqa: N802
        return self._processes(handle, "mps")

    def _processes(self, handle: "Handle", kind: str) -> list[Any]:
        instance = None if handle.mig is None else self._mig(handle).gpu_instance
        return [
            SimpleNamespace(
                pid=one.pid,
                usedGpuMemory=one.used_memory,
                gpuInstanceId=_WHOLE if one.gpu_instance is None else one.gpu_instance,
                computeInstanceId=_WHOLE if one.compute_instance is None else one.compute_instance,
            )
            for one in self._gpu(handle).processes or ()
            if one.kind == kind and instance in {None, one.gpu_instance}
        ]

    def _nvmlEventSetCreate(self) -> object:  # noqa: N802
        return object()

    def _nvmlEventSetFree(self, waiting: object) -> None:  # noqa: N802
        self.registered.clear()

    def _nvmlDeviceGetSupportedEventTypes(self, handle: "Handle") -> int:  # noqa: N802
        return self.event_types

    def _nvmlDeviceRegisterEvents(self, handle: "Handle", kinds: int, waiting: object) -> None:  # noqa: N802
        self.registered[self._gpu(handle).uuid] = kinds

    def _nvmlEventSetWait_v2(self, waiting: object, milliseconds: int) -> Any:  # noqa: N802
        try:
            event = self.happening.get(timeout=min(milliseconds, 50) / 1000)
        except Empty:
            raise pynvml.NVMLError(TIMEOUT) from None
        handle = self._nvmlDeviceGetHandleByUUID(event.uuid)
        return SimpleNamespace(
            device=handle,
            eventType=event.type,
            eventData=event.data,
            gpuInstanceId=_WHOLE if event.gpu_instance is None else event.gpu_instance,
            computeInstanceId=_WHOLE if event.compute_instance is None else event.compute_instance,
        )


class Handle(SimpleNamespace):
    """A handle of a GPU, or of the MIG device with this number."""

    gpu: int
    mig: int | None

    def __init__(self, gpu: int, mig: int | None = None) -> None:
        super().__init__(gpu=gpu, mig=mig)

    def __hash__(self) -> int:
        return hash((self.gpu, self.mig))


def _there(value: Any) -> Any:
    if value is None:
        raise pynvml.NVMLError(NOT_SUPPORTED)
    return value
