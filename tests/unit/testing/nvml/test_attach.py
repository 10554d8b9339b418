# SPDX-License-Identifier: Apache-2.0
"""The script that ends the making of a mock in a machine that mounts it: what does it call there?"""

import subprocess
from pathlib import Path

import pytest

from dra_driver.testing.nvml import attach, boards, machine

TOOLS = ("mkdir", "mknod", "mount", "mountpoint", "stat")
STAND_IN = """#!/bin/sh
echo "${0##*/} $*" >> "$CALLS"
case "${0##*/}" in stat) echo "$MAJOR" ;; mountpoint) exit "$MOUNTED" ;; esac
"""


class Machine:
    """Runs the script with stand-ins of its tools. Its /dev is a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls = folder, folder / "calls"
        self.dev, self.place = folder / "dev", folder / "mock"
        for path in (self.dev, self.place / "host/run/nvidia", folder / "bin"):
            path.mkdir(parents=True)
        for tool in TOOLS:
            (folder / "bin" / tool).write_text(STAND_IN)
            (folder / "bin" / tool).chmod(0o755)

    def run(self, *, major: str = "78", mounted: bool = False) -> subprocess.CompletedProcess[str]:
        facts = machine.node(boards.A100_40, 1, mig="1g.5gb")
        text = attach.script(facts, self.place).replace("made /dev/", f"made {self.dev}/")
        variables = {"PATH": str(self.folder / "bin"), "CALLS": str(self.calls), "MAJOR": major}
        return subprocess.run(
            ["/bin/sh", "-c", text],
            env={**variables, "MOUNTED": "0" if mounted else "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    def called(self, tool: str) -> list[str]:
        lines = self.calls.read_text().replace(str(self.folder), "").splitlines()
        return [line for line in lines if line.startswith(f"{tool} ")]


@pytest.fixture
def node(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_it_makes_the_device_files_of_the_gpus_and_of_their_mig_devices(node: Machine) -> None:
    assert node.run().returncode == 0
    made = node.called("mknod")
    assert "mknod -m 666 /dev/nvidia0 c 120 0" in made
    assert "mknod -m 666 /dev/nvidiactl c 120 255" in made
    assert len([line for line in made if "/dev/nvidia-caps/nvidia-cap" in line]) == 4
    assert not [line for line in made if "/dev/dri/" in line]
    assert "mkdir -p /dev/nvidia-caps" in node.called("mkdir")


def test_it_mounts_the_folders_of_the_driver_where_a_driver_has_them(node: Machine) -> None:
    assert node.run().returncode == 0
    assert node.called("mount") == ["mount --bind /mock/host/run/nvidia /run/nvidia"]


def test_what_it_did_before_it_does_not_do_again(node: Machine) -> None:
    (node.dev / "nvidia0").touch()
    assert node.run(mounted=True).returncode == 0
    assert not [line for line in node.called("mknod") if "nvidia0" in line]
    assert node.called("mount") == []


def test_it_stops_on_a_machine_with_gpus_of_its_own(node: Machine) -> None:
    (node.dev / "nvidia0").touch()
    ended = node.run(major="c3")
    assert ended.returncode == 1
    assert "nvidia0 is there already: this machine has NVIDIA GPUs of its own" in ended.stderr
    assert not [line for line in node.calls.read_text().splitlines() if "mknod" in line]
