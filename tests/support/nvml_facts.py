# SPDX-License-Identifier: Apache-2.0
"""Read facts through pynvml in the plainest way, call by call: what the mock library is checked with."""

import uuid
from collections.abc import Callable, Sequence
from typing import Any

from dra_driver.backends.nvidia.facts import (
    Fabric,
    Gpu,
    Memory,
    Mig,
    MigDevice,
    MigProfile,
    NvLink,
    Process,
    RemappedRows,
    System,
)
from tests.support.nvml_process import NvmlError, NvmlProcess

_MISSING = {3, 13, 25}


class Reader:
    """Calls, and the errors of those that had no answer."""

    def __init__(self, nvml: NvmlProcess) -> None:
        self.nvml = nvml
        self.errors: dict[str, int] = {}

    def __call__(self, function: str, *arguments: object) -> Any:
        try:
            return self.nvml(f"{function}({', '.join(map(str, arguments))})")
        except NvmlError as error:
            if error.code not in _MISSING:
                raise
            self.errors[function] = error.code
            return None


def read_system(nvml: NvmlProcess) -> System:
    read = Reader(nvml)
    state = read("nvmlSystemGetConfComputeState")
    return System(
        driver_version=read("nvmlSystemGetDriverVersion"),
        nvml_version=read("nvmlSystemGetNVMLVersion"),
        cuda_driver_version=read("nvmlSystemGetCudaDriverVersion_v2"),
        cc_feature=state and state["ccFeature"],
        cc_dev_tools=state and state["devToolsMode"],
        cc_ready=read("nvmlSystemGetConfComputeGpusReadyState"),
        errors=read.errors,
    )


def read_gpu(nvml: NvmlProcess, index: int) -> Gpu:
    """All facts of a GPU that NVML has."""
    nvml(f"gpu = nvmlDeviceGetHandleByIndex({index})")
    read = Reader(nvml)
    pci = read("nvmlDeviceGetPciInfo", "gpu")
    capability = read("nvmlDeviceGetCudaComputeCapability", "gpu")
    return Gpu(
        index=read("nvmlDeviceGetIndex", "gpu"),
        uuid=read("nvmlDeviceGetUUID", "gpu"),
        name=read("nvmlDeviceGetName", "gpu"),
        minor=read("nvmlDeviceGetMinorNumber", "gpu"),
        brand=read("nvmlDeviceGetBrand", "gpu"),
        architecture=read("nvmlDeviceGetArchitecture", "gpu"),
        compute_capability=tuple(capability),
        serial=read("nvmlDeviceGetSerial", "gpu") or "",
        pci_bus_id=pci["busId"],
        pci_device_id=pci["pciDeviceId"],
        pci_subsystem_id=pci["pciSubSystemId"],
        addressing_mode=read("nvmlDeviceGetAddressingMode", "gpu"),
        module_id=read("nvmlDeviceGetModuleId", "gpu"),
        virtualization_mode=read("nvmlDeviceGetVirtualizationMode", "gpu"),
        nvlinks=tuple(_links(nvml)),
        memory=_memory(read),
        mig=_mig(read, nvml),
        fabric=_fabric(read, nvml),
        compute_mode=read("nvmlDeviceGetComputeMode", "gpu"),
        temperature=read("nvmlDeviceGetTemperatureV", "gpu", 0),
        recovery_action=_recovery_action(read),
        ecc_uncorrected=_ecc(read),
        remapped_rows=_rows(read),
        retired_pages_pending=_retired(read),
        processes=_processes(read),
        errors=read.errors,
    )


def _memory(read: Reader) -> Memory | None:
    function = "nvmlDeviceGetMemoryInfo"
    if (found := read(function, "gpu", "nvmlMemory_v2")) is not None:
        found.pop("version")
        return Memory(**found)
    if read.errors[function] != 13:
        return None
    found = read(function, "gpu")
    read.errors.pop(function)
    return Memory(**found)


def _links(nvml: NvmlProcess) -> Sequence[NvLink]:
    found = []
    for link in range(36):
        code = nvml.code(f"active = nvmlDeviceGetNvLinkState(gpu, {link})")
        assert nvml(f"nvmlDeviceGetFieldValues(gpu, [(165, {link})])[0].nvmlReturn") == (
            3 if code else 0
        )
        if code:
            assert code in {2, 3}
            break
        if nvml("active"):
            found.append(
                NvLink(
                    link=link,
                    remote_pci_bus_id=nvml(f"nvmlDeviceGetNvLinkRemotePciInfo(gpu, {link})")[
                        "busId"
                    ],
                    remote_type=nvml(f"nvmlDeviceGetNvLinkRemoteDeviceType(gpu, {link})"),
                )
            )
    return found


def _mig(read: Reader, nvml: NvmlProcess) -> Mig | None:
    if (mode := read("nvmlDeviceGetMigMode", "gpu")) is None:
        return None
    found = [
        _mig_device(nvml)
        for number in range(nvml("nvmlDeviceGetMaxMigDeviceCount(gpu)"))
        if nvml.code(f"mig = nvmlDeviceGetMigDeviceHandleByIndex(gpu, {number})") == 0
    ]
    return Mig(enabled=bool(mode[0]), pending=bool(mode[1]), devices=tuple(found))


def _mig_device(nvml: NvmlProcess) -> MigDevice:
    attributes = nvml("nvmlDeviceGetAttributes_v2(mig)")
    instance = nvml("nvmlDeviceGetGpuInstanceId(mig)")
    nvml(f"instance = nvmlDeviceGetGpuInstanceById(gpu, {instance})")
    profile, start, size = nvml(
        "[(i.profileId, i.placement.start, i.placement.size) for i in [nvmlGpuInstanceGetInfo(instance)]][0]"
    )
    return MigDevice(
        uuid=nvml("nvmlDeviceGetUUID(mig)"),
        gpu_instance=instance,
        compute_instance=nvml("nvmlDeviceGetComputeInstanceId(mig)"),
        profile=profile,
        start=start,
        size=size,
        gpu_slices=attributes["gpuInstanceSliceCount"],
        compute_slices=attributes["computeInstanceSliceCount"],
        memory_mib=attributes["memorySizeMB"],
        multiprocessors=attributes["multiprocessorCount"],
        copy_engines=attributes["sharedCopyEngineCount"],
        decoders=attributes["sharedDecoderCount"],
        encoders=attributes["sharedEncoderCount"],
        jpeg_engines=attributes["sharedJpegCount"],
        ofa_engines=attributes["sharedOfaCount"],
    )


def read_profiles(nvml: NvmlProcess, index: int) -> tuple[MigProfile, ...]:
    """All profiles of a GPU, with their placements."""
    nvml(f"gpu = nvmlDeviceGetHandleByIndex({index})")
    found = []
    for number in range(18):
        if nvml.code(f"info = nvmlDeviceGetGpuInstanceProfileInfo(gpu, {number})"):
            continue
        info = nvml("info")
        nvml(
            f"count = c_uint(); nvmlDeviceGetGpuInstancePossiblePlacements(gpu, {info['id']}, None, byref(count))"
        )
        nvml("places = (c_nvmlGpuInstancePlacement_t * count.value)()")
        nvml(f"nvmlDeviceGetGpuInstancePossiblePlacements(gpu, {info['id']}, places, byref(count))")
        places = nvml("places")
        found.append(
            MigProfile(
                profile=number,
                id=info["id"],
                slices=info["sliceCount"],
                instances=info["instanceCount"],
                memory_mib=info["memorySizeMB"],
                multiprocessors=info["multiprocessorCount"],
                copy_engines=info["copyEngineCount"],
                decoders=info["decoderCount"],
                encoders=info["encoderCount"],
                jpeg_engines=info["jpegCount"],
                ofa_engines=info["ofaCount"],
                starts=tuple(place["start"] for place in places),
                size=places[0]["size"],
            )
        )
    return tuple(found)


def _fabric(read: Reader, nvml: NvmlProcess) -> Fabric | None:
    def attempt(structure: str, function: str) -> int:
        return nvml.code(f"fabric = {structure}(); {function}(gpu, byref(fabric))")

    tries: list[tuple[str, str, Callable[[Any], dict[str, Any]]]] = [
        (
            "c_nvmlGpuFabricInfo_v3_t",
            "nvmlDeviceGetGpuFabricInfoV",
            lambda f: {"health_mask": f["healthMask"], "health_summary": f["healthSummary"]},
        ),
        (
            "c_nvmlGpuFabricInfo_v2_t",
            "nvmlDeviceGetGpuFabricInfoV",
            lambda f: {"health_mask": f["healthMask"]},
        ),
        ("c_nvmlGpuFabricInfo_t", "nvmlDeviceGetGpuFabricInfo", lambda _: {}),
    ]
    for structure, function, more in tries:
        code = attempt(structure, function)
        if code:
            read.errors["nvmlDeviceGetGpuFabricInfo"] = code
            continue
        read.errors.pop("nvmlDeviceGetGpuFabricInfo", None)
        fabric = nvml("fabric")
        cluster = bytes(fabric["clusterUuid"])
        return Fabric(
            state=fabric["state"],
            status=fabric["status"],
            cluster_uuid=str(uuid.UUID(bytes=cluster)),
            clique_id=fabric["cliqueId"],
            **more(fabric),
        )
    return None


def _field(read: Reader, number: int) -> tuple[int | None, int]:
    """The value of a field, and the code that it has instead."""
    (field,) = read("nvmlDeviceGetFieldValues", "gpu", [number])
    if field["nvmlReturn"]:
        return None, field["nvmlReturn"]
    kind = {1: "uiVal", 3: "ullVal"}[field["valueType"]]
    return int(field["value"][kind]), 0


def _recovery_action(read: Reader) -> int | None:
    action, code = _field(read, 230)
    if code:
        read.errors["nvmlDeviceGetFieldValues"] = code
    return action


def _rows(read: Reader) -> RemappedRows | None:
    """The function and the fields say the same."""
    rows = read("nvmlDeviceGetRemappedRows", "gpu")
    fields = [_field(read, number) for number in (142, 143, 144, 145)]
    code = read.errors.get("nvmlDeviceGetRemappedRows", 0)
    assert fields == [(row, code) for row in rows or [None] * 4]
    if rows is None:
        return None
    return RemappedRows(
        correctable=rows[0],
        uncorrectable=rows[1],
        pending=bool(rows[2]),
        failed=bool(rows[3]),
    )


def _ecc(read: Reader) -> int | None:
    count = read("nvmlDeviceGetTotalEccErrors", "gpu", 1, 0)
    assert _field(read, 4) == (count, read.errors.get("nvmlDeviceGetTotalEccErrors", 0))
    return None if count is None else int(count)


def _retired(read: Reader) -> bool | None:
    pending = read("nvmlDeviceGetRetiredPagesPendingStatus", "gpu")
    code = read.errors.pop("nvmlDeviceGetRetiredPagesPendingStatus", 0)
    assert _field(read, 31) == (pending, code)
    return None if pending is None else bool(pending)


def _processes(read: Reader) -> tuple[Process, ...] | None:
    found = []
    for kind, name in (("compute", "Compute"), ("graphics", "Graphics"), ("mps", "MPSCompute")):
        infos = read(f"nvmlDeviceGet{name}RunningProcesses_v3", "gpu")
        if infos is None:
            return None
        for info in infos:
            instances = [
                None if number == 0xFFFFFFFF else number
                for number in (info["gpuInstanceId"], info["computeInstanceId"])
            ]
            found.append(
                Process(
                    pid=info["pid"],
                    kind=kind,
                    used_memory=info["usedGpuMemory"],
                    gpu_instance=instances[0],
                    compute_instance=instances[1],
                )
            )
    return tuple(found) or None
