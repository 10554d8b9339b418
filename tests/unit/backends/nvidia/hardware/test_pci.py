# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

from dra_driver.backends.nvidia.facts import PciGpu
from dra_driver.backends.nvidia.hardware import pci


def entry(sysfs: Path, address: str, **files: str) -> Path:
    real = sysfs / "devices/pci0000:64/0000:64:01.0" / address
    real.mkdir(parents=True)
    for name, text in files.items():
        (real / name).write_text(text + "\n")
    devices = sysfs / "bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    (devices / address).symlink_to(real)
    return real


def gpu(sysfs: Path, address: str, **files: str) -> Path:
    values = {"vendor": "0x10de", "class": "0x030200", "device": "0x2335", **files}
    return entry(sysfs, address, **values)


def test_only_display_controllers_of_nvidia_are_gpus(tmp_path: Path) -> None:
    driver = tmp_path / "bus/pci/drivers/nvidia"
    driver.mkdir(parents=True)
    (gpu(tmp_path, "0000:65:00.0") / "driver").symlink_to(driver)
    gpu(tmp_path, "0000:04:00.0", **{"class": "0x030000"})
    gpu(tmp_path, "0000:65:00.1", **{"class": "0x040300"})  # its sound
    gpu(tmp_path, "0000:05:00.0", **{"class": "0x068000"})  # NVSwitch
    gpu(tmp_path, "0000:66:00.0", vendor="0x1002")
    assert pci.gpus(tmp_path) == (
        PciGpu(address="0000:04:00.0", device=0x2335, pci_class=0x030000),
        PciGpu(address="0000:65:00.0", device=0x2335, pci_class=0x030200, driver="nvidia"),
    )


def test_broken_entries_cost_only_themselves(tmp_path: Path) -> None:
    gpu(tmp_path, "0000:65:00.0")
    entry(tmp_path, "0000:66:00.0")
    gpu(tmp_path, "0000:67:00.0", vendor="garbage")
    (tmp_path / "bus/pci/devices/0000:68:00.0").symlink_to("0000:68:00.0")
    assert [found.address for found in pci.gpus(tmp_path)] == ["0000:65:00.0"]
    assert pci.gpus(tmp_path / "none") == ()


def test_the_place_of_a_gpu_is_told_by_the_address_that_the_library_writes(tmp_path: Path) -> None:
    real = gpu(tmp_path, "0000:65:00.0", numa_node="-1")
    for name in ("card1", "renderD129", "controlD64"):
        (real / "drm" / name).mkdir(parents=True)
    address = "00000000:65:00.0"
    assert pci.place(tmp_path, address) == ("pci0000:64", "0000:64:01.0", "0000:65:00.0")
    assert pci.numa_node(tmp_path, address) == -1
    assert pci.drm(tmp_path, address) == ("card1", "renderD129")


def test_an_unknown_place_is_none(tmp_path: Path) -> None:
    for address in ("", "00000000:65:00.0", "../..", "x"):
        assert pci.place(tmp_path, address) == ()
        assert pci.numa_node(tmp_path, address) is None
        assert pci.drm(tmp_path, address) == ()
