# SPDX-License-Identifier: Apache-2.0
"""MIG: the profiles of a board, and the devices that exist."""

import ctypes
from pathlib import Path
from typing import Any

from dra_driver.backends.nvidia.facts import MigDevice, MigProfile
from dra_driver.backends.nvidia.hardware.ask import Asker, text
from dra_driver.backends.nvidia.hardware.nvml import (
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    OTHER_VERSION,
    failed,
)

_PROFILES = 18  # NVML_GPU_INSTANCE_PROFILE_COUNT
_NO_SUCH_PROFILE = frozenset(
    {INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND, OTHER_VERSION}
)
_MOST_PLACEMENTS = 64
_LARGEST_FOLDER = 4096

Instances = tuple[tuple[str, int, int], ...]
"""The path of each instance below the folder of its GPU, its inode, and the time of that."""


def profiles(nvml: Any, handle: Any, what: str) -> tuple[MigProfile, ...]:
    """Ask for each kind of GPU instance. A kind that the board does not have is an error of the library, and left out. Raises Failed.

    Boards of the generation Ampere answer only while MIG is enabled.
    """
    asker = Asker(nvml, what)
    found = []
    for number in range(_PROFILES):
        info = _profile(asker, handle, number)
        if info is None:
            continue
        starts, size = _placements(nvml, asker, handle, info.id)
        found.append(
            MigProfile(
                profile=number,
                id=info.id,
                slices=info.sliceCount,
                instances=info.instanceCount,
                memory_mib=info.memorySizeMB,
                multiprocessors=info.multiprocessorCount,
                copy_engines=info.copyEngineCount,
                decoders=info.decoderCount,
                encoders=info.encoderCount,
                jpeg_engines=info.jpegCount,
                ofa_engines=info.ofaCount,
                starts=starts,
                size=size,
            )
        )
    return tuple(found)


def _profile(asker: Asker, handle: Any, number: int) -> Any:
    function = "nvmlDeviceGetGpuInstanceProfileInfo"
    info = asker.ask(function, handle, number)
    if info is None and asker.errors[function] in {FUNCTION_NOT_FOUND, OTHER_VERSION}:
        info = asker.ask(function, handle, number, 1)
    if info is None and (code := asker.errors[function]) not in _NO_SUCH_PROFILE:
        # The table is kept, and names MIG devices: it must not lack a kind because a call failed once.
        raise failed(function, code, f"MIG profile {number}")
    return info


def _placements(
    nvml: Any, asker: Asker, handle: Any, profile_id: int
) -> tuple[tuple[int, ...], int]:
    room = (nvml.c_nvmlGpuInstancePlacement_t * _MOST_PLACEMENTS)()
    count = ctypes.c_uint(_MOST_PLACEMENTS)
    function = "nvmlDeviceGetGpuInstancePossiblePlacements"
    if asker.ask(function, handle, profile_id, room, ctypes.byref(count)) is None:
        return (), 0
    found = room[: min(count.value, _MOST_PLACEMENTS)]
    return tuple(placement.start for placement in found), found[0].size if found else 0


def devices(nvml: Any, handle: Any, what: str) -> tuple[MigDevice, ...]:
    """Ask for the MIG devices that exist: seven calls for each, and one. One that goes away meanwhile is left out."""
    asker = Asker(nvml, what)
    instances: dict[int, Any] = {}
    found = []
    for index in range(asker.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        mig = asker.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if mig is not None and (device := _device(asker, handle, mig, instances)) is not None:
            found.append(device)
    return tuple(found)


def _device(asker: Asker, handle: Any, mig: Any, instances: dict[int, Any]) -> MigDevice | None:
    uuid = asker.ask("nvmlDeviceGetUUID", mig)
    gpu_instance = asker.ask("nvmlDeviceGetGpuInstanceId", mig)
    compute_instance = asker.ask("nvmlDeviceGetComputeInstanceId", mig)
    has = asker.ask("nvmlDeviceGetAttributes_v2", mig)
    if uuid is None or gpu_instance is None or compute_instance is None or has is None:
        return None
    if gpu_instance not in instances:
        instance = asker.ask("nvmlDeviceGetGpuInstanceById", handle, gpu_instance)
        instances[gpu_instance] = instance and asker.ask("nvmlGpuInstanceGetInfo", instance)
    info = instances[gpu_instance]
    if info is None:
        return None
    return MigDevice(
        uuid=text(uuid),
        gpu_instance=gpu_instance,
        compute_instance=compute_instance,
        profile=info.profileId,
        start=info.placement.start,
        size=info.placement.size,
        gpu_slices=has.gpuInstanceSliceCount,
        compute_slices=has.computeInstanceSliceCount,
        memory_mib=has.memorySizeMB,
        multiprocessors=has.multiprocessorCount,
        copy_engines=has.sharedCopyEngineCount,
        decoders=has.sharedDecoderCount,
        encoders=has.sharedEncoderCount,
        jpeg_engines=has.sharedJpegCount,
        ofa_engines=has.sharedOfaCount,
    )


def count(seen: Instances | None) -> int | None:
    """How many MIG devices there are: one for each compute instance."""
    return None if seen is None else sum("/" in name for name, _, _ in seen)


def instances(proc: Path, minor: int | None) -> Instances | None:
    """What the kernel driver shows of the instances of a GPU, with the inode of each and its time: another value means other MIG
    devices. The kernel gives the number of an inode that has gone to the next one, so the number alone does not tell.

    The kernel gives the inode number of an instance that was destroyed to the next one; the time is when it was first seen. This costs
    no call of the library. None: there is no such folder, so it cannot be told.
    """
    folder = proc / "driver" / "nvidia" / "capabilities" / f"gpu{minor}" / "mig"
    try:
        return (
            tuple(
                (str(path.relative_to(folder)), status.st_ino, status.st_ctime_ns)
                for pattern in ("gi*", "gi*/ci*")
                for path in sorted(folder.glob(pattern))[:_LARGEST_FOLDER]
                for status in (path.stat(),)
            )
            if folder.is_dir()
            else None
        )
    except OSError:
        return None  # something in it went away meanwhile: the next look tells
