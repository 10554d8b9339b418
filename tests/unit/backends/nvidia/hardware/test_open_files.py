# SPDX-License-Identifier: Apache-2.0
"""/dev/null stands for the GPU, /dev/zero for the memory manager, /dev/full for a MIG device: the files of real processes are read."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dra_driver.backends.nvidia.facts import DeviceFile, Installation, Process
from dra_driver.backends.nvidia.hardware.open_files import computing_on

PROC = Path("/proc")
GPU, MANAGER, MIG = "/dev/null", "/dev/zero", "/dev/full"
MEMORY, NULL, ZERO, FULL = 1, 3, 5, 7


def an_installation(caps: dict[str, int] | None = None) -> Installation:
    manager = DeviceFile(path="/dev/nvidia-uvm", major=MEMORY, minor=ZERO)
    return Installation(
        device_files=(manager,), gpu_major=MEMORY, caps_major=MEMORY, caps=caps or {}
    )


@contextmanager
def a_process_with(*paths: str) -> Iterator[int]:
    program = "import sys; files = [open(path) for path in sys.argv[1:]]; print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, *paths]
    # Its own output and input are pipes: no device that it has not been told to open.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process.pid
        process.communicate("")


def found(pid: int, installation: Installation, minor: int = NULL) -> list[Process]:
    return [one for one in computing_on(PROC, installation, minor) if one.pid == pid]


def test_a_process_with_the_gpu_and_the_memory_manager_open_computes_on_it():
    with a_process_with(GPU, MANAGER) as pid:
        assert found(pid, an_installation()) == [Process(pid=pid)]
        assert found(pid, an_installation(), minor=FULL) == []


def test_a_monitor_that_has_only_the_gpu_open_does_not_compute():
    with a_process_with(GPU) as pid:
        assert found(pid, an_installation()) == []


def test_a_process_is_on_the_mig_devices_that_it_has_opened():
    caps = {"gpu3/gi2/ci0/access": FULL, "gpu3/gi2/access": 8, "gpu4/gi1/ci0/access": FULL}
    with a_process_with(GPU, MANAGER, MIG) as pid:
        assert found(pid, an_installation(caps)) == [
            Process(pid=pid, gpu_instance=2, compute_instance=0)
        ]


def test_without_the_drivers_numbers_nothing_is_said():
    with a_process_with(GPU, MANAGER) as pid:
        assert found(pid, Installation(gpu_major=MEMORY)) == []
        manager = DeviceFile(path="/dev/nvidia-uvm", major=MEMORY, minor=ZERO)
        assert found(pid, Installation(device_files=(manager,))) == []
        known = Installation(device_files=(manager,), gpu_major=MEMORY)
        assert found(pid, known) == [Process(pid=pid)]


def test_what_cannot_be_read_is_left_out(tmp_path: Path):
    gone = tmp_path / "12"
    (gone / "fd").mkdir(parents=True)
    (gone / "fd" / "0").symlink_to(tmp_path / "closed")
    (tmp_path / "13").mkdir()
    used = tmp_path / "14" / "fd"
    used.mkdir(parents=True)
    (used / "3").symlink_to(GPU)
    (used / "4").symlink_to(MANAGER)
    assert list(computing_on(tmp_path, an_installation(), NULL)) == [Process(pid=14)]
