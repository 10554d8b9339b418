# SPDX-License-Identifier: Apache-2.0
"""Accelerators of other vendors: read from a tree of files, and judged."""

import os
from pathlib import Path

import pytest

from dra_driver.daemon.other_vendors import accelerators
from dra_driver.doctor.other_vendors import VENDORS, judge_others
from dra_driver.model.host import Accelerator, Place, PlaceKind

OK = Place("/dev/dri/renderD128", PlaceKind.OTHER)


def device(root: Path, address: str, *ids: str, driver: str = "", nodes: str = "") -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{ids[0]}\n")
    (folder / "class").write_text(f"{ids[1]}\n")
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(f"../../drivers/{driver}")
    for node in nodes.split():
        (folder / node).mkdir(parents=True)


def test_the_bus_is_read_by_the_table(tmp_path: Path) -> None:
    device(tmp_path, "0000:01:00.0", "0x1002", "0x120000", driver="amdgpu", nodes="drm/card0 drm/renderD128")  # fmt: skip
    device(tmp_path, "0000:02:00.0", "0x8086", "0x038000", driver="xe", nodes="drm/renderD129 drm/controlD1")  # fmt: skip
    device(tmp_path, "0000:03:00.0", "0x1da3", "0x120000")
    device(tmp_path, "0000:04:00.0", "0x8086", "0x020000", driver="ice")
    device(tmp_path, "0000:05:00.0", "0x10de", "0x030200", driver="nvidia")
    device(tmp_path, "0000:06:00.0", "no number", "0x030200")
    (tmp_path / "dev/dri/renderD128").mkdir(parents=True)
    os.mkfifo(tmp_path / "dev/kfd", 0o600)
    found = tuple(accelerators(tmp_path, VENDORS))
    missing = PlaceKind.MISSING
    assert found == (
        Accelerator(
            "AMD",
            "0000:01:00.0",
            "amdgpu",
            (
                (Place("/dev/dri/card0", missing), 0),
                (Place("/dev/dri/renderD128", PlaceKind.FOLDER), found[0].files[1][1]),
                (Place("/dev/kfd", PlaceKind.OTHER), 0o600),
            ),
        ),
        Accelerator("Intel", "0000:02:00.0", "xe", ((Place("/dev/dri/renderD129", missing), 0),)),
        Accelerator("Gaudi", "0000:03:00.0", ""),
    )
    assert [(one.severity, one.id, one.object) for one in judge_others(found)] == [
        ("warning", "accelerator-file-missing", "/dev/dri/card0"),
        ("problem", "device-file-is-directory", "/dev/dri/renderD128"),
        ("note", "accelerator-file-closed", "/dev/kfd"),
        ("warning", "accelerator-file-missing", "/dev/dri/renderD129"),
        ("warning", "accelerator-without-driver", "0000:03:00.0"),
    ]


@pytest.mark.parametrize(
    ("nodes", "files"),
    [
        ("accel/accel0 accel/accel_controlD0", ["/dev/accel/accel0", "/dev/accel/accel_controlD0"]),
        # Before Linux 6.5.
        ("habanalabs/hl2 habanalabs/hl_controlD2", ["/dev/hl2", "/dev/hl_controlD2"]),
    ],
)
def test_the_device_files_of_gaudi_now_and_before(
    tmp_path: Path, nodes: str, files: list[str]
) -> None:
    device(tmp_path, "0000:19:00.0", "0x1da3", "0x120000", driver="habanalabs", nodes=nodes)
    (found,) = accelerators(tmp_path, VENDORS)
    assert [place.path for place, _mode in found.files] == files


@pytest.mark.parametrize(
    ("one", "found", "command"),
    [
        (Accelerator("AMD", "a", "vfio-pci"), "the kernel driver vfio-pci is bound; AMD has amdgpu", "modprobe amdgpu; dmesg | tail -n 20"),
        (Accelerator("Intel", "a", ""), "none is bound to it; Intel has xe or i915", "modprobe xe; dmesg | tail -n 20"),
        (Accelerator("Gaudi", "a", "habanalabs"), "its kernel driver names no file", "dmesg | tail -n 20; udevadm trigger"),
        (Accelerator("AMD", "a", "amdgpu", ((OK, 0o660),)), "1 accelerators with their kernel drivers and device files", ""),
    ],
)  # fmt: skip
def test_each_finding_says_what_was_found(one: Accelerator, found: str, command: str) -> None:
    (told,) = judge_others((one,))
    assert (told.found, told.command) == (found, command)


def test_a_node_without_them_is_fine() -> None:
    (told,) = judge_others(())
    assert (told.severity, told.check) == ("ok", "other-accelerators")
