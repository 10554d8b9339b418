# SPDX-License-Identifier: Apache-2.0
"""The library that is built from a node's facts answers with these facts. Needs a C compiler."""

import msgspec
import pytest

from dra_driver.backends.nvidia.facts import Gpu, Memory, Mig, Node, Process, RemappedRows
from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.layouts import profile_name
from tests.support.nvml_facts import read_gpu, read_profiles, read_system
from tests.support.nvml_process import NvmlProcess

pytestmark = pytest.mark.real
MIB = 1024 * 1024

LAYOUTS = {"a30": "2g.12gb 1g.6gb", "rtx-pro-6000": "2g.48gb 1g.24gb+gfx"}


def nodes() -> dict[str, Node]:
    found = {name: machine.node(board, 2) for name, board in boards.BOARDS.items()}
    for name, board in boards.BOARDS.items():
        if board.profiles:
            layout = LAYOUTS.get(name) or _layout(name)
            found[f"{name}-mig"] = machine.node(board, 2, mig={0: layout, 1: "empty"})
    found["h100-old"] = machine.node(boards.H100, driver=machine.R550)
    found["t4-old"] = machine.node(boards.T4, driver=machine.R470)
    found["a100-mesh"] = machine.node(boards.A100_40, 4, links="mesh")
    found["h100-cc"] = machine.node(boards.H100, cc=True)
    found["mixed"] = machine.joined(
        machine.node(boards.A100_40, 1, mig="1g.5gb"), machine.node(boards.H100, 1)
    )
    found["busy"] = _busy()
    return found


def _layout(name: str) -> str:
    board = boards.BOARDS[name]
    names = [_name(board, number) for number in (2, 1, 0)]
    return f"{names[0]}:1c+2c {names[1]} {names[2]}"


def _name(board: boards.Board, number: int) -> str:
    return next(
        profile_name(profile, board.memory_mib or 0)
        for profile in board.profiles
        if profile.profile == number
    )


def _busy() -> Node:
    node = machine.node(boards.A100_40)
    (gpu,) = node.gpus
    ill = msgspec.structs.replace(
        gpu,
        minor=5,
        memory=Memory(total=100 * MIB, free=69 * MIB, used=30 * MIB, reserved=MIB),
        mig=Mig(pending=True),
        compute_mode=3,
        temperature=95,
        recovery_action=4,
        ecc_uncorrected=7,
        remapped_rows=RemappedRows(correctable=1, uncorrectable=2, pending=True, failed=True),
        processes=(
            Process(pid=4711, used_memory=3 << 30),
            Process(pid=4712, used_memory=None),
            Process(pid=4713, kind="graphics", used_memory=1),
            Process(pid=4714, kind="mps", used_memory=2, gpu_instance=1, compute_instance=0),
        ),
        nvlinks=(gpu.nvlinks[0], msgspec.structs.replace(gpu.nvlinks[4], remote_type=255)),
    )
    return msgspec.structs.replace(node, gpus=(ill,))


NODES = nodes()


@pytest.mark.parametrize("node", NODES.values(), ids=NODES)
def test_every_fact_of_the_description_is_read_back(node: Node) -> None:
    with NvmlProcess(build.library(node)) as nvml:
        assert read_system(nvml) == node.system
        assert nvml("nvmlDeviceGetCount()") == len(node.gpus)
        for index, gpu in enumerate(node.gpus):
            assert read_gpu(nvml, index) == _of_nvml(gpu)
            known = gpu.mig and (gpu.mig.enabled or (gpu.architecture or 0) >= boards.HOPPER)
            expected = node.mig_profiles.get(gpu.name, ()) if known else ()
            assert read_profiles(nvml, index) == expected


def _of_nvml(gpu: Gpu) -> Gpu:
    """The facts without those of sysfs."""
    return msgspec.structs.replace(gpu, numa_node=None, pci_path=(), drm=())


def test_a_gpu_is_found_by_its_uuid_and_by_its_pci_address_in_both_forms() -> None:
    node = machine.node(boards.H100, 4)
    with NvmlProcess(build.library(node)) as nvml:
        wanted = node.gpus[2]
        for search in (
            f"nvmlDeviceGetHandleByUUID(b'{wanted.uuid}')",
            f"nvmlDeviceGetHandleByPciBusId(b'{wanted.pci_bus_id}')",
            f"nvmlDeviceGetHandleByPciBusId(b'{wanted.pci_path[-1]}')",
        ):
            nvml(f"one = {search}")
            assert nvml("nvmlDeviceGetIndex(one)") == 2
        assert nvml.code("nvmlDeviceGetHandleByUUID(b'GPU-none')") == 6
        assert nvml.code("nvmlDeviceGetHandleByPciBusId(b'0000:00:1f.0')") == 6
        assert nvml.code("nvmlDeviceGetHandleByIndex(4)") == 2


def test_errors_are_those_of_the_original() -> None:
    node = machine.node(boards.A100_40, 2, mig={0: "3g.20gb 1g.5gb"})
    with NvmlProcess(build.library(node)) as nvml:
        nvml("gpu, other = nvmlDeviceGetHandleByIndex(0), nvmlDeviceGetHandleByIndex(1)")
        assert nvml.code("nvmlDeviceGetMigDeviceHandleByIndex(gpu, 2)") == 6
        assert nvml.code("nvmlDeviceGetMigDeviceHandleByIndex(gpu, 7)") == 2
        assert nvml.code("nvmlDeviceGetGpuInstanceProfileInfo(other, 0)") == 3  # MIG is off
        assert nvml.code("nvmlDeviceGetGpuInstanceProfileInfo(gpu, 18)") == 2
        assert nvml.code("nvmlDeviceGetGpuInstanceProfileInfo(gpu, 5)") == 3
        assert nvml.code("nvmlDeviceGetGpuInstanceById(gpu, 5)") == 6
        assert nvml.code("nvmlDeviceGetMemoryInfo(gpu, 0x01000028)") == 25
        assert nvml.code("nvmlDeviceGetAttributes_v2(gpu)") == 3
        assert nvml.code("nvmlDeviceGetTemperature(gpu, 1)") == 2
        assert nvml.code("nvmlDeviceSetComputeMode(gpu, 4)") == 2
        assert nvml.code("nvmlDeviceGetName(ctypes.cast(1234, c_nvmlDevice_t))") == 2
        nvml("mig = nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)")
        assert nvml("nvmlDeviceGetName(mig)") == "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
        assert nvml.code("nvmlDeviceGetTemperature(mig, 0)") == 2
        assert nvml("nvmlDeviceGetIndex(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig))") == 0


def test_a_buffer_that_is_too_small_is_refused() -> None:
    with NvmlProcess(build.library(_busy())) as nvml:
        nvml(
            "gpu = nvmlDeviceGetHandleByIndex(0); text = ctypes.create_string_buffer(8); size = c_uint(1)"
        )
        nvml("call = lambda name, *words: nvmlLib[name](gpu, *words)")
        nvml("nvmlLib = ctypes.CDLL('libnvidia-ml.so.1')")
        assert nvml("call('nvmlDeviceGetUUID', text, 8)") == 7
        assert nvml("call('nvmlDeviceGetComputeRunningProcesses_v3', byref(size), (c_nvmlProcessInfo_v2_t * 1)())") == 7  # fmt: skip
        assert nvml("size.value") == 2
    mig = machine.node(boards.A100_40, mig="empty")
    with NvmlProcess(build.library(mig)) as nvml:
        nvml("gpu = nvmlDeviceGetHandleByIndex(0); room = (c_nvmlGpuInstancePlacement_t * 2)()")
        nvml("size = c_uint(2)")
        ask = "nvmlDeviceGetGpuInstancePossiblePlacements(gpu, 19, room, byref(size))"
        assert nvml.code(ask) == 7
        assert nvml("size.value") == 7


def test_a_call_before_the_start_and_after_the_end_is_refused() -> None:
    with NvmlProcess(build.library(machine.node(boards.T4)), start=False) as nvml:
        nvml("import pynvml; pynvml._LoadNvmlLibrary()")
        assert nvml.code("nvmlDeviceGetCount()") == 1
        nvml("nvmlInit()")
        assert nvml("nvmlDeviceGetCount()") == 1
        nvml("nvmlShutdown()")
        assert nvml.code("nvmlDeviceGetCount()") == 1
        assert nvml.code("nvmlShutdown()") == 1


def test_an_old_library_has_no_such_function() -> None:
    library = build.library(machine.node(boards.T4), without=["nvmlDeviceGetAddressingMode"])
    with NvmlProcess(library) as nvml:
        nvml("gpu = nvmlDeviceGetHandleByIndex(0)")
        assert nvml.code("nvmlDeviceGetAddressingMode(gpu)") == 13
        assert nvml("nvmlDeviceGetTemperature(gpu, 0)") == 33
        assert not nvml("hasattr(ctypes.CDLL('libnvidia-ml.so.1'), 'nvmlDeviceGetAddressingMode')")


def test_a_node_without_gpus_starts_only_if_that_is_allowed() -> None:
    with NvmlProcess(build.library(Node()), start=False) as nvml:
        assert nvml.code("nvmlInitWithFlags(0)") == 9
        nvml("nvmlInitWithFlags(1)")
        assert nvml("nvmlDeviceGetCount()") == 0


def test_a_structure_of_another_version_is_refused() -> None:
    with NvmlProcess(build.library(machine.node(boards.H100))) as nvml:
        nvml("gpu = nvmlDeviceGetHandleByIndex(0); fabric = c_nvmlGpuFabricInfo_v3_t()")
        assert nvml.code("nvmlDeviceGetGpuFabricInfoV(gpu, byref(fabric))") == 0
        nvml("fabric.version = 0x01000028")
        assert nvml.code("nvmlDeviceGetGpuFabricInfoV(gpu, byref(fabric))") == 25
