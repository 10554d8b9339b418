# SPDX-License-Identifier: Apache-2.0
"""nvidia-smi and list-gpus beside the library, and what a container sees. Needs a C compiler; device files need root."""

import os
import subprocess
from pathlib import Path

import pytest

from dra_driver.testing.nvml import boards, build, machine
from dra_driver.testing.nvml.control import Control
from dra_driver.testing.nvml.node import OPERATOR, MockNode
from tests.support.nvml_process import NvmlProcess

pytestmark = pytest.mark.real

FACTS = machine.node(boards.A100_40, 3, mig={2: "3g.20gb 2g.10gb"})
UUIDS = [gpu.uuid for gpu in FACTS.gpus]
MIGS = [device.uuid for gpu in FACTS.gpus if gpu.mig for device in gpu.mig.devices]


@pytest.fixture
def control(tmp_path: Path) -> Control:
    return Control(tmp_path / "control")


def run(
    program: Path,
    library: Path,
    *words: str,
    control: Control | None = None,
    dev: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    environment = {"LD_LIBRARY_PATH": str(library.parent)}
    environment |= control.environment() if control else {}
    environment |= {"MOCK_NVML_DEV": str(dev)} if dev else {}
    return subprocess.run(
        [program, *words], env=environment, capture_output=True, text=True, check=False, timeout=20
    )


def smi(control: Control, *words: str) -> subprocess.CompletedProcess[str]:
    return run(build.nvidia_smi(), build.library(FACTS), *words, control=control)


def test_time_slices_are_set_by_uuid_and_listed(control: Control) -> None:
    assert smi(control, "compute-policy", "-i", UUIDS[1], "--set-timeslice", "2").returncode == 0
    assert smi(control, "compute-policy", f"--id={UUIDS[2]}", "--set-timeslice=1").returncode == 0
    assert control.time_slice(UUIDS[1]) == 2
    assert control.journal() == [f"time-slice {UUIDS[1]} 2", f"time-slice {UUIDS[2]} 1"]
    listed = smi(control, "compute-policy", "-l").stdout
    assert [line.split()[3] for line in listed.splitlines() if "Timeslice" in line] == [
        "Default",
        "Medium",
        "Short",
    ]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("compute-policy", "-i", "GPU-none", "--set-timeslice", "1"), 6),
        (("compute-policy", "-i", "0", "--set-timeslice", "4"), 2),
        (("--set-timeslice", "1"), 2),
        (("-i", "0", "-c", "SOMETIMES"), 2),
        (("--surprise",), 2),
    ],
)
def test_wrong_arguments_end_with_a_code(
    control: Control, words: tuple[str, ...], code: int
) -> None:
    assert smi(control, *words).returncode == code
    assert control.journal() == []


def test_the_compute_mode_is_that_of_the_library(control: Control) -> None:
    assert smi(control, "-i", UUIDS[0], "-c", "EXCLUSIVE_PROCESS").returncode == 0
    with NvmlProcess(build.library(FACTS), control.environment()) as nvml:
        assert nvml("nvmlDeviceGetComputeMode(nvmlDeviceGetHandleByIndex(0))") == 3


def test_it_lists_gpus_and_mig_devices_as_nvidia_does(control: Control) -> None:
    lines = smi(control, "-L").stdout.splitlines()
    assert lines[0] == f"GPU 0: NVIDIA A100-SXM4-40GB (UUID: {UUIDS[0]})"
    assert lines[3] == f"  MIG 3g.20gb         Device  0: (UUID: {MIGS[0]})"
    assert "CUDA Version        : 13.0" in smi(control, "--version").stdout


def test_it_fails_with_the_code_of_the_library(control: Control) -> None:
    control.fail("mockSetTimeSlice", 1, error=4)
    refused = smi(control, "compute-policy", "-i", UUIDS[1], "--set-timeslice", "2")
    assert refused.returncode == 4
    assert "Insufficient Permissions" in refused.stdout
    control.mismatch()
    assert smi(control, "-L").returncode == 18
    control.restore("mismatch")
    control.unloaded()
    assert smi(control, "-L").returncode == 9


def seen(dev: Path) -> list[str]:
    found = run(build.list_gpus(), build.library(FACTS), dev=dev)
    assert found.returncode == 0, found.stderr
    return found.stdout.split()


def touch(dev: Path, *names: str) -> None:
    for name in names:
        (dev / name).parent.mkdir(parents=True, exist_ok=True)
        (dev / name).touch()


def test_a_process_sees_the_gpus_whose_device_files_it_can_open(tmp_path: Path) -> None:
    dev = tmp_path / "dev"
    touch(dev, "nvidiactl")
    assert seen(dev) == []
    touch(dev, "nvidia1")
    assert seen(dev) == [UUIDS[1]]
    touch(dev, "nvidia2")
    assert seen(dev) == [UUIDS[1], UUIDS[2]]
    first = 3 + (2 * 15 + 1) * 9  # GPU 2, GPU instance 1
    touch(dev, f"nvidia-caps/nvidia-cap{first}")
    assert seen(dev) == [UUIDS[1], UUIDS[2]]  # the compute instance is missing
    touch(dev, f"nvidia-caps/nvidia-cap{first + 1}")
    assert seen(dev) == [UUIDS[1], UUIDS[2], MIGS[0]]


def test_a_place_without_the_control_device_has_no_driver(tmp_path: Path) -> None:
    touch(tmp_path / "dev", "nvidia0")
    found = run(build.list_gpus(), build.library(FACTS), dev=tmp_path / "dev")
    assert found.returncode == 9


def test_a_mock_node_has_a_library_that_works(tmp_path: Path, control: Control) -> None:
    library = build.library(FACTS)
    node = MockNode(
        tmp_path / "host",
        FACTS,
        layout=OPERATOR,
        library=library,
        nvidia_smi=build.nvidia_smi(),
        character_devices=os.geteuid() == 0,
    )
    tool = node.driver_root / "usr/bin/nvidia-smi"
    listed = run(tool, node.library, "-L", control=control, dev=node.dev).stdout
    assert listed.count("GPU ") == 3
    assert listed.count("MIG ") == 2
    (node.dev / "nvidia0").unlink()
    assert run(tool, node.library, "-L", dev=node.dev).stdout.count("GPU ") == 2
