# SPDX-License-Identifier: Apache-2.0
"""Facts of a node become devices with the attributes of NVIDIA's driver, and what is not known costs only itself."""

from typing import Any

import pytest
from msgspec.structs import replace

from dra_driver.backends.nvidia.devices import inventory
from dra_driver.backends.nvidia.facts import (
    Fabric,
    Gpu,
    Installation,
    Memory,
    Mig,
    MigDevice,
    MigProfile,
    Node,
    NvLink,
    PciGpu,
    System,
)
from dra_driver.backends.nvidia.health import Verdict
from dra_driver.model.api.resource_slice import DeviceTaint
from dra_driver.model.device import AllocatableDevice, Version, attributes, plain
from dra_driver.model.health import HEALTHY, Health, HealthStatus
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Hardware
from dra_driver.model.vocabulary import ATTRIBUTES, CAPACITIES
from dra_driver.planning.device_values import ATTRIBUTES_AND_CAPACITIES
from dra_driver.planning.slices import plan_pool

MIB = 1024 * 1024
CLUSTER = "5c8a1f0e-7e1b-4b7a-9a5b-0f3a1d2c4e6f"
SYSTEM = System(driver_version="550.54.15", cuda_driver_version=12040, cc_feature=0)
H100 = Gpu(
    index=3,
    uuid="GPU-1",
    pci_bus_id="00000000:8B:00.0",
    minor=5,
    name="NVIDIA H100 80GB HBM3",
    brand=14,
    architecture=9,
    compute_capability=(9, 0),
    serial="1652823054710",
    addressing_mode=0,
    module_id=4,
    nvlinks=(NvLink(link=0, remote_type=2, remote_pci_bus_id="00000000:C1:00.0"),),
    numa_node=1,
    pci_path=("pci0000:85", "0000:85:01.0", "0000:8b:00.0"),
    memory=Memory(total=81559 * MIB, reserved=551 * MIB),
    fabric=Fabric(state=3, cluster_uuid=CLUSTER, clique_id=2),
)
KINDS = {term.name: term.kind for term in (*ATTRIBUTES, *CAPACITIES)}


def scan(*gpus: Gpu, system: System = SYSTEM, **more: Any) -> Inventory:
    verdicts = more.pop("verdicts", {})
    return inventory(Node(system=system, gpus=gpus, **more), verdicts)


def said(device: AllocatableDevice) -> dict[str, object]:
    return {name: plain(value) for name, value in (device.api.attributes or {}).items()}


def sizes(device: AllocatableDevice) -> dict[str, str]:
    return {name: str(size.value) for name, size in (device.api.capacity or {}).items()}


def test_a_gpu_has_every_attribute_of_nvidias_driver_and_more():
    (device,) = scan(H100).devices
    assert device.name == "gpu-5"
    assert (device.uuid, device.resource, device.health) == ("GPU-1", Hardware("GPU-1"), HEALTHY)
    assert device.api.attributes == attributes(
        {
            "type": "gpu",
            "uuid": "GPU-1",
            "productName": "NVIDIA H100 80GB HBM3",
            "brand": "Nvidia",
            "architecture": "Hopper",
            "cudaComputeCapability": Version("9.0.0"),
            "driverVersion": Version("550.54.15"),
            "cudaDriverVersion": Version("12.4.0"),
            "addressingMode": "None",
            "resource.kubernetes.io/pciBusID": "0000:8b:00.0",
            "resource.kubernetes.io/pcieRoot": "pci0000:85",
            "resource.kubernetes.io/numaNode": 1,
            "index": 3,
            "minor": 5,
            "pcieBusID": "0000:8b:00.0",
            "vendor": "nvidia",
            "memoryMiB": 81559,
            "usableMemoryMiB": 81008,
            "unifiedMemory": False,
            "serial": "1652823054710",
            "gpuModuleID": 4,
            "driverStackID": "nvidia-550.54.15",
            "ccMode": "off",
            "linkIsland": "0000:8b:00.0",
            "fabricID": f"{CLUSTER}.2",
            "cliqueID": 2,
        }
    )
    assert sizes(device) == {"memory": "81559Mi"}
    assert device.api.consumes_counters is None


def test_what_the_library_does_not_tell_is_left_out():
    bare = Gpu(index=0, uuid="GPU-1", minor=0)
    (device,) = scan(bare, system=System()).devices
    assert said(device) == {
        "type": "gpu",
        "uuid": "GPU-1",
        "vendor": "nvidia",
        "index": 0,
        "minor": 0,
    }
    assert sizes(device) == {}
    assert plan_pool(scan(bare), kept=()).problems == ()


def test_numbers_that_this_release_does_not_know_have_the_word_unknown():
    odd = replace(H100, brand=99, architecture=99, addressing_mode=99, numa_node=-1)
    (device,) = scan(odd).devices
    assert (said(device)["brand"], said(device)["architecture"]) == ("Unknown", "Unknown")
    assert "addressingMode" not in said(device)
    assert "resource.kubernetes.io/numaNode" not in said(device)


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("550.54.15", {"driverVersion": "550.54.15"}),
        ("535.183.06", {"driverVersion": "535.183.6", "driverVersionString": "535.183.06"}),
        ("r580_00-beta", {"driverVersionString": "r580_00-beta"}),
        ("", {}),
    ],
)
def test_an_odd_driver_version_costs_that_attribute(version: str, found: dict[str, str]):
    (device,) = scan(H100, system=System(driver_version=version)).devices
    names = ("driverVersion", "driverVersionString")
    assert {name: said(device)[name] for name in names if name in said(device)} == found
    assert plan_pool(scan(H100, system=System(driver_version=version)), kept=()).problems == ()


@pytest.mark.parametrize(
    ("system", "mode", "ready"),
    [
        (System(cc_feature=0, cc_ready=0), "off", None),
        (System(cc_feature=1, cc_dev_tools=0, cc_ready=1), "on", True),
        (System(cc_feature=1, cc_ready=0), "on", False),
        (System(cc_feature=1, cc_dev_tools=1), "devtools", None),
        (System(cc_ready=1), None, None),
    ],
)
def test_confidential_computing_has_a_mode_and_says_whether_gpus_take_work(
    system: System, mode: str | None, ready: bool | None
):
    (device,) = scan(H100, system=system).devices
    assert (said(device).get("ccMode"), said(device).get("ccReady")) == (mode, ready)


UNIFIED = replace(H100, memory=None, errors={"nvmlDeviceGetMemoryInfo": 3})


@pytest.mark.parametrize(
    ("gpu", "total", "size"),
    [
        (UNIFIED, 128 * 1024 * MIB, "128Gi"),
        (replace(UNIFIED, errors={"nvmlDeviceGetMemoryInfo_v2": 3}), 128 * 1024 * MIB, "128Gi"),
        (
            replace(
                UNIFIED, errors={"nvmlDeviceGetMemoryInfo_v2": 13, "nvmlDeviceGetMemoryInfo": 3}
            ),
            128 * 1024 * MIB,
            "128Gi",
        ),
        (
            replace(
                UNIFIED, errors={"nvmlDeviceGetMemoryInfo_v2": 3, "nvmlDeviceGetMemoryInfo": 15}
            ),
            128 * 1024 * MIB,
            None,
        ),
        (UNIFIED, None, None),
        (replace(UNIFIED, errors={"nvmlDeviceGetMemoryInfo": 15}), 128 * 1024 * MIB, None),
        (replace(UNIFIED, errors={}), 128 * 1024 * MIB, None),
    ],
)
def test_a_gpu_without_memory_of_its_own_has_that_of_the_node(
    gpu: Gpu, total: int | None, size: str | None
):
    (device,) = scan(gpu, system=System(memory_total=total)).devices
    assert sizes(device).get("memory") == size
    assert said(device).get("unifiedMemory") == (True if size else None)
    assert "usableMemoryMiB" not in said(device)


@pytest.mark.parametrize("reserved", [None, -1, 81559 * MIB])
def test_memory_that_the_driver_keeps_is_told_only_if_the_library_tells_it(reserved: int | None):
    (device,) = scan(replace(H100, memory=Memory(total=81559 * MIB, reserved=reserved))).devices
    assert "usableMemoryMiB" not in said(device)
    assert sizes(device) == {"memory": "81559Mi"}


def a_mig(start: int, size: int = 1, **more: Any) -> MigDevice:
    usual: dict[str, Any] = {
        "uuid": f"MIG-{start}",
        "gpu_instance": 7 + start,
        "compute_instance": 0,
        "profile": 19,
        "gpu_slices": 1,
        "compute_slices": 1,
        "memory_mib": 9984,
        "multiprocessors": 16,
        "copy_engines": 1,
        "decoders": 1,
        "jpeg_engines": 1,
    }
    return MigDevice(start=start, size=size, **{**usual, **more})


ALL_OF_IT = a_mig(
    0, 8, profile=0, gpu_slices=7, compute_slices=7, memory_mib=81152, multiprocessors=132,
    copy_engines=8, decoders=7, jpeg_engines=7, ofa_engines=1,
)  # fmt: skip
WHOLE = MigProfile(
    profile=4, id=0, slices=7, instances=1, memory_mib=81152, multiprocessors=132,
    copy_engines=8, decoders=7, jpeg_engines=7, ofa_engines=1, starts=(0,), size=8,
)  # fmt: skip


def in_mig_mode(*devices: MigDevice, **more: Any) -> Gpu:
    return replace(H100, mig=Mig(enabled=True, pending=True, devices=devices), **more)


def test_mig_devices_are_offered_instead_of_their_gpu():
    found = scan(in_mig_mode(a_mig(2), a_mig(3)), mig_profiles={H100.name: (WHOLE,)})
    assert [one.name for one in found.devices] == [
        "gpu-5-mig-1g10gb-19-2",
        "gpu-5-mig-1g10gb-19-3",
    ]
    first = found.devices[0]
    assert (first.uuid, first.resource) == (
        "MIG-2",
        Hardware("GPU-1", ("memory-slice-2", "instance-9-0"), "1g.10gb"),
    )
    assert said(first) == {
        "type": "mig",
        "uuid": "MIG-2",
        "parentUUID": "GPU-1",
        "profile": "1g.10gb",
        "memoryMiB": 9984,
        "productName": "NVIDIA H100 80GB HBM3",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "cudaComputeCapability": "9.0.0",
        "driverVersion": "550.54.15",
        "cudaDriverVersion": "12.4.0",
        "vendor": "nvidia",
        "addressingMode": "None",
        "driverStackID": "nvidia-550.54.15",
        "resource.kubernetes.io/pciBusID": "0000:8b:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:85",
        "resource.kubernetes.io/numaNode": 1,
    }
    assert first.numbers == {"index": 3, "minor": 5}
    assert sizes(first) == {
        "memory": "9984Mi",
        "multiprocessors": "16",
        "copyEngines": "1",
        "decoders": "1",
        "encoders": "0",
        "jpegEngines": "1",
        "ofaEngines": "0",
        "memorySlice2": "1",
    }
    assert found.partition_type_attribute == "profile"
    assert [one.name for one in found.counter_sets] == ["gpu-5-counter-set"]
    plan = plan_pool(found, kept=(), driver="gpu.example.com")
    assert plan.problems == ()
    assert len(plan.slices) == 2


@pytest.mark.parametrize(("code", "names"), [(999, []), (3, ["gpu-5"]), (13, ["gpu-5"])])
def test_a_gpu_that_may_be_in_mig_mode_is_not_offered_as_a_whole(
    code: int, names: list[str]
) -> None:
    found = scan(replace(H100, errors={"nvmlDeviceGetMigMode": code}))
    assert [device.name for device in found.devices] == names
    assert [one.subject for one in found.left_out] == ([] if names else ["MIG"])


def test_a_second_compute_instance_changes_neither_the_name_nor_the_hardware_of_the_first() -> None:
    pair = [
        a_mig(0, 4, gpu_instance=1, gpu_slices=3, uuid=f"MIG-{one}", compute_instance=one)
        for one in (0, 1)
    ]
    (before,) = scan(in_mig_mode(pair[0])).devices
    after, other = scan(in_mig_mode(*pair)).devices
    assert (before.name, before.resource) == (after.name, after.resource)
    assert not set(after.resource.parts) & set(other.resource.parts)


def test_the_largest_mig_device_has_room_for_all_of_its_values():
    found = scan(in_mig_mode(ALL_OF_IT))
    (device,) = found.devices
    assert plan_pool(found, kept=()).problems == ()
    assert len(said(device)) + len(sizes(device)) == ATTRIBUTES_AND_CAPACITIES


def test_a_gpu_in_mig_mode_without_mig_devices_is_told():
    found = scan(in_mig_mode())
    assert (found.devices, found.counter_sets) == ((), ())
    (problem,) = map(str, found.left_out)
    assert problem == (
        "GPU GPU-1: MIG: it is in MIG mode and has no MIG devices; make MIG devices (`nvidia-smi mig -cgi PROFILE -C`), or switch its "
        "MIG mode off: until then nothing of it is offered"
    )


def test_a_gpu_with_mig_switched_off_is_offered_as_a_whole():
    off = replace(H100, mig=Mig(enabled=False, pending=True))
    assert [one.name for one in scan(off).devices] == ["gpu-5"]


@pytest.mark.parametrize(("start", "size"), [(-1, 1), (0, -1), (16, 1), (10**12, 1)])
def test_a_mig_device_with_an_impossible_place_costs_itself(start: int, size: int):
    found = scan(in_mig_mode(a_mig(1), replace(a_mig(2), start=start, size=size)))
    assert [one.uuid for one in found.devices] == ["MIG-1"]
    (problem,) = found.left_out
    assert (problem.device, problem.subject) == ("MIG-2", "placement")


def test_a_uuid_that_no_variable_can_have_costs_its_device():
    found = scan(replace(H100, uuid="GPU\0"), in_mig_mode(a_mig(1), replace(a_mig(2), uuid="M\n")))
    assert [one.uuid for one in found.devices] == ["MIG-1"]
    first, second = map(str, found.left_out)
    assert "identity: its UUID is 'GPU\\x00', which no container can get" in first
    assert "identity: its UUID is 'M\\n'" in second


def test_two_devices_of_one_name_cost_the_second():
    found = scan(H100, replace(H100, uuid="GPU-2", index=4))
    assert [one.uuid for one in found.devices] == ["GPU-1"]
    (problem,) = map(str, found.left_out)
    assert problem.startswith("GPU GPU-2: name: the name is that of GPU-1 too; it was left out")
    twins = scan(in_mig_mode(a_mig(1), replace(a_mig(1), uuid="MIG-9", gpu_instance=2)))
    assert [one.uuid for one in twins.devices] == ["MIG-1"]


@pytest.mark.parametrize(
    ("gpu", "name", "why"),
    [
        (
            Gpu(index=0, minor=0, pci_bus_id="00000000:1A:00.0", problem="fell off the bus"),
            "00000000:1A:00.0",
            "fell off the bus",
        ),
        (Gpu(index=7, minor=0), "7", "the library does not tell its UUID"),
        (
            Gpu(index=0, uuid="GPU-1", errors={"nvmlDeviceGetMinorNumber": 3}),
            "GPU-1",
            "the library does not tell the number of its device file (errors of NVML: nvmlDeviceGetMinorNumber: 3)",
        ),
        (
            Gpu(index=0, uuid="GPU-1", minor=-1),
            "GPU-1",
            "the library does not tell the number of its device file",
        ),
    ],
)
def test_a_gpu_that_cannot_be_named_costs_itself_and_is_told(gpu: Gpu, name: str, why: str):
    found = scan(gpu, H100)
    assert [one.name for one in found.devices] == ["gpu-5"]
    (problem,) = found.left_out
    assert (problem.device, problem.found, problem.kind) == (name, why, "GPU")


ILL = Verdict(
    Health(HealthStatus.UNHEALTHY, "XID 79"),
    (DeviceTaint(key="example.com/xid", value="79", effect="NoSchedule"),),
    {"xid-79": 1},
)


def test_a_verdict_gives_health_taints_and_errors():
    (device,) = scan(H100, verdicts={"GPU-1": ILL}).devices
    assert (device.health, device.errors) == (ILL.health, {"xid-79": 1})
    assert device.api.taints == list(ILL.taints)


def test_a_mig_device_has_its_own_verdict_or_that_of_its_gpu():
    gpu = in_mig_mode(a_mig(1), a_mig(2))
    both = scan(gpu, verdicts={"GPU-1": ILL, "MIG-1": Verdict()}).devices
    assert [one.health for one in both] == [HEALTHY, ILL.health]


def test_an_empty_node_says_why_it_has_no_gpus():
    installation = Installation(
        problems=("libcuda.so is missing below /; install it", "libnvidia-ml is; too")
    )
    pci = (PciGpu(address="0000:1a:00.0"), PciGpu(address="0000:1b:00.0"))
    found = scan(
        problem="the kernel module is not loaded; load it", pci=pci, installation=installation
    )
    assert found.devices == ()
    assert list(map(str, found.left_out)) == [
        (
            "backend nvidia: library: the node has 2 GPUs: the kernel module is not loaded; load it; no GPU of it is published; the driver "
            "looks again every 10 s, and needs no restart"
        ),
        (
            "backend nvidia: driver installation: libcuda.so is missing below /; install it; libnvidia-ml is; too; a container may not be able to use its GPU; "
            "the driver looks again every 10 s"
        ),
    ]
    assert {problem.reason for problem in found.left_out} == {"HardwareNotReady"}
    (alone,) = scan(problem="it is broken").left_out
    assert alone.found == "it is broken"


def test_what_keeps_the_library_closed_is_told_once():
    why = "no NVIDIA driver was found: install the driver"
    (alone,) = scan(
        problem=f"the NVIDIA library is not opened: {why}",
        installation=Installation(problems=(why,)),
    ).left_out
    assert alone.found == f"the NVIDIA library is not opened: {why}"


@pytest.mark.parametrize(
    ("driver", "found"),
    [
        ("", "no kernel driver nvidia has it"),
        ("nouveau", "the kernel driver nouveau has it"),
        ("nvidia", "the kernel driver nvidia has it, and the library does not list it"),
    ],
)
def test_a_gpu_that_the_library_does_not_list_is_told(driver: str, found: str):
    mine = PciGpu(address="0000:8b:00.0", driver="nvidia")
    other = PciGpu(address="0000:1b:00.0", driver=driver)
    seen = scan(H100, pci=(mine, other))
    assert [one.name for one in seen.devices] == ["gpu-5"]
    (problem,) = seen.left_out
    assert (problem.device, problem.found) == ("0000:1b:00.0", found)
    assert problem.action.endswith("It is published then without a restart")


@pytest.mark.parametrize(
    "more",
    [
        {"pci": (PciGpu(address="0000:1b:00.0", driver="vfio-pci"),)},
        {"pci": (PciGpu(address="0000:1b:00.0", driver="nvgrace_gpu_vfio_pci"),)},
        {"pci": (PciGpu(address="0000:1b:00.0"),), "gpus": (replace(H100, pci_bus_id=""),)},
    ],
)
def test_a_gpu_for_a_virtual_machine_and_one_that_may_be_listed_are_no_problem(more: Any):
    gpus = more.pop("gpus", (H100,))
    assert scan(*gpus, **more).left_out == ()


def test_every_value_is_of_the_vocabulary_and_its_type():
    words = {"string": "str", "version": "str", "int": "int", "bool": "bool"}
    on = System(driver_version="535.183.06", cuda_driver_version=12040, cc_feature=1, cc_ready=1)
    for found in (scan(H100, system=on), scan(in_mig_mode(ALL_OF_IT), system=on)):
        for device in found.devices:
            for name, value in said(device).items():
                assert type(value).__name__ == words[KINDS[name]], name
            assert {KINDS[name] for name in sizes(device)} == {"quantity"}
