# SPDX-License-Identifier: Apache-2.0
"""Device files, MIG capabilities, and the numbers of both."""

import os
import stat
from pathlib import Path

import pytest

from dra_driver.backends.nvidia.facts import DeviceFile
from dra_driver.backends.nvidia.hardware.device_files import (
    capabilities,
    device_files,
    drm_links,
    gpu_major,
    majors,
    wrong_files,
)
from dra_driver.backends.nvidia.hardware.tree import Tree

DEVICES = """\
Character devices:
  1 mem
  5 /dev/tty
195 nvidia
195 nvidia-modeset
195 nvidiactl
226 drm
236 nvidia-caps
511 nvidia-uvm

Block devices:
  7 loop
511 nvidia-caps
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    write(tmp_path / "proc/devices", DEVICES)
    return tmp_path


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def files_of(host: Path) -> dict[str, DeviceFile]:
    tree = Tree(host)
    return {file.path: file for file in device_files(tree, tree, majors(tree))}


def test_majors_are_those_of_character_devices(host: Path) -> None:
    numbers = majors(Tree(host))
    assert numbers["nvidia-caps"] == 236
    assert numbers["/dev/tty"] == 5
    assert "loop" not in numbers
    assert gpu_major(numbers) == 195
    assert gpu_major({"nvidia-frontend": 195}) == 195
    assert gpu_major({"nvidiactl": 195}) == 195
    assert gpu_major({}) is None


def test_a_broken_line_costs_itself(host: Path) -> None:
    write(host / "proc/devices", "Character devices:\nx nvidia\n\n99999999 y\n195 nvidia\n7\n")
    assert majors(Tree(host)) == {"nvidia": 195}


def test_control_files_are_known_before_somebody_makes_them(host: Path) -> None:
    found = files_of(host)
    assert {path: (file.major, file.minor) for path, file in found.items()} == {
        "/dev/nvidia-modeset": (195, 254),
        "/dev/nvidia-uvm": (511, 0),
        "/dev/nvidia-uvm-tools": (511, 1),
        "/dev/nvidiactl": (195, 255),
    }
    assert {file.mode for file in found.values()} == {0o666}


def test_a_module_that_is_not_loaded_has_no_file(host: Path) -> None:
    write(host / "proc/devices", "Character devices:\n195 nvidia-frontend\n")
    assert list(files_of(host)) == ["/dev/nvidiactl"]
    write(host / "proc/devices", "Character devices:\n  1 mem\n")
    assert files_of(host) == {}


class WithNull(Tree):
    """A tree whose device files are all /dev/null: making another one needs root."""

    def stat(self, path: str) -> os.stat_result | None:
        return Path("/dev/null").stat() if path.startswith("/dev/") else super().stat(path)


def test_a_character_device_says_its_own_numbers(host: Path) -> None:
    write(host / "dev/nvidia0")
    tree = WithNull(host)
    found = {file.path: file for file in device_files(tree, tree, majors(tree))}
    null = Path("/dev/null").stat()
    assert found["/dev/nvidia0"] == DeviceFile(
        path="/dev/nvidia0", major=1, minor=3, mode=stat.S_IMODE(null.st_mode), gid=null.st_gid
    )


def test_ordinary_files_stand_for_the_device_that_belongs_there(host: Path) -> None:
    names = ("nvidia0", "nvidia12", "nvidia-caps/nvidia-cap21", "dri/card1", "dri/renderD128")
    for name in (*names, "nvidia-nvswitch0", "nvidiaX", "dri/by-path", "nvidia-caps/x"):
        write(host / "dev" / name)
    (host / "dev/dri/card1").chmod(0o660)
    found = files_of(host)
    assert {(found[f"/dev/{name}"].major, found[f"/dev/{name}"].minor) for name in names} == {
        (195, 0),
        (195, 12),
        (236, 21),
        (226, 1),
        (226, 128),
    }
    assert found["/dev/dri/card1"].mode == 0o660
    assert len(found) == len(names) + 4


def test_an_ordinary_file_of_a_driver_that_is_not_loaded_is_nothing(host: Path) -> None:
    write(host / "dev/nvidia0")
    write(host / "proc/devices", "")
    assert files_of(host) == {}


def test_a_directory_in_the_place_of_a_device_is_told_and_costs_itself(host: Path) -> None:
    (host / "dev/nvidia0").mkdir(parents=True)
    write(host / "dev/nvidia1")
    (told,) = wrong_files(Tree(host))
    assert told.startswith("/dev/nvidia0 is a directory")
    assert "remove the directory (rmdir)" in told
    found = files_of(host)
    assert "/dev/nvidia0" not in found
    assert found["/dev/nvidia1"].minor == 1


def test_a_link_that_leads_nowhere_costs_itself(host: Path) -> None:
    (host / "dev").mkdir()
    (host / "dev/nvidia0").symlink_to("nvidia0")
    assert "/dev/nvidia0" not in files_of(host)
    assert list(wrong_files(Tree(host))) == []


def test_links_by_path_are_those_of_pci_devices(host: Path) -> None:
    folder = host / "dev/dri/by-path"
    folder.mkdir(parents=True)
    (folder / "pci-0000:65:00.0-card").symlink_to("../card1")
    (folder / "platform-vga-card").symlink_to("../card0")
    write(folder / "pci-0000:66:00.0-card")
    assert drm_links(Tree(host)) == {"/dev/dri/by-path/pci-0000:65:00.0-card": "../card1"}


def test_capabilities_that_exist_count(host: Path) -> None:
    base = host / "proc/driver/nvidia/capabilities"
    write(base / "mig/config", "DeviceFileMinor: 1\nDeviceFileMode: 256\n")
    write(base / "gpu0/mig/gi1/access", "DeviceFileMinor: 12\nDeviceFileMode: 292\n")
    write(base / "gpu0/mig/gi1/ci0/access", "DeviceFileMinor: 13\n")
    write(base / "gpu0/mig/gi2/access", "nothing of use")
    write(base / "gpu0/mig/gi2/ci0/access", "DeviceFileMinor: 22\n")
    write(host / "proc/driver/nvidia-caps/mig-minors", "gpu0/gi1/access 99\n")
    assert capabilities(Tree(host)) == {
        "gpu0/gi1/access": 12,
        "gpu0/gi1/ci0/access": 13,
        "gpu0/gi2/ci0/access": 22,
    }


def test_without_them_the_table_counts(host: Path) -> None:
    table = (
        "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu1/gi0/ci7/access x\n"
    )
    write(host / "proc/driver/nvidia-caps/mig-minors", table)
    assert capabilities(Tree(host)) == {"gpu0/gi1/access": 12, "gpu0/gi1/ci0/access": 13}
    assert capabilities(Tree(host / "none")) == {}
