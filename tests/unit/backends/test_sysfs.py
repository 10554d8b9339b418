# SPDX-License-Identifier: Apache-2.0
"""The standard attributes of PCI devices, from a folder like /sys; whatever is missing or broken there."""

from pathlib import Path

import pytest

from dra_driver.backends.sysfs import numa_node, pci_address, pci_attributes, pcie_root
from dra_driver.model.api.resource_slice import Device, DeviceAttribute
from dra_driver.model.device import AllocatableDevice, attributes
from dra_driver.model.inventory import Inventory
from dra_driver.planning.slices import plan_pool

GPU = "0000:1a:00.0"


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A machine with one GPU behind a bridge."""
    place = tmp_path / "devices" / "pci0000:15" / "0000:15:01.0" / GPU
    place.mkdir(parents=True)
    (place / "numa_node").write_text("1\n")
    bus = tmp_path / "bus" / "pci" / "devices"
    bus.mkdir(parents=True)
    (bus / GPU).symlink_to(Path("../../../devices/pci0000:15/0000:15:01.0") / GPU)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:1a:00.0", GPU),
        ("00000000:1A:00.0\n", GPU),  # as NVML writes it
        ("1a:00.0", GPU),  # as lspci writes it
        ("10000:e1:00.0", "10000:e1:00.0"),  # behind a VMD controller
        ("0000:1a:1f.7", "0000:1a:1f.7"),
        ("0000:1a:20.0", ""),
        ("0000:1a:00.8", ""),
        ("0000:1a:00", ""),
        ("../0000:1a:00.0", ""),
        ("", ""),
    ],
)
def test_an_address_is_written_as_the_kernel_writes_it(text: str, address: str):
    assert pci_address(text) == address


def test_a_device_has_its_address_its_root_and_its_numa_node(sysfs: Path):
    assert pci_attributes(sysfs, "00000000:1A:00.0") == {
        "resource.kubernetes.io/pciBusID": "0000:1a:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:15",
        "resource.kubernetes.io/numaNode": 1,
    }


def test_the_attributes_are_published_as_the_api_has_them(sysfs: Path):
    found = AllocatableDevice(
        Device(name="gpu-0", attributes=attributes(pci_attributes(sysfs, GPU))), "uuid"
    )
    plan = plan_pool(Inventory((found,)), kept=())
    assert plan.problems == ()
    assert plan.devices["gpu-0"].attributes == {
        "resource.kubernetes.io/pciBusID": DeviceAttribute(string_value="0000:1a:00.0"),
        "resource.kubernetes.io/pcieRoot": DeviceAttribute(string_value="pci0000:15"),
        "resource.kubernetes.io/numaNode": DeviceAttribute(int_value=1),
    }


@pytest.mark.parametrize("text", ["-1\n", "", "x", "1.5", "\xff", "9" * 80])
def test_a_numa_node_that_is_none_is_no_attribute(sysfs: Path, text: str):
    (sysfs / "devices/pci0000:15/0000:15:01.0" / GPU / "numa_node").write_text(text, "latin-1")
    assert numa_node(sysfs, GPU) is None
    assert "resource.kubernetes.io/numaNode" not in pci_attributes(sysfs, GPU)


def test_numa_node_0_is_a_node(sysfs: Path):
    (sysfs / "devices/pci0000:15/0000:15:01.0" / GPU / "numa_node").write_text("0\n")
    assert numa_node(sysfs, GPU) == 0


def test_a_device_that_sysfs_does_not_know_has_only_its_address(sysfs: Path):
    assert pci_attributes(sysfs, "0000:ff:00.0") == {
        "resource.kubernetes.io/pciBusID": "0000:ff:00.0"
    }
    assert pci_attributes(sysfs / "missing", GPU) == {"resource.kubernetes.io/pciBusID": GPU}


def test_what_is_no_pci_address_has_no_attributes(sysfs: Path):
    assert pci_attributes(sysfs, "../../etc") == {}
    assert (pcie_root(sysfs, "../../etc"), numa_node(sysfs, "../../etc")) == ("", None)


def test_a_folder_where_a_file_should_be_costs_one_attribute(sysfs: Path):
    file = sysfs / "devices/pci0000:15/0000:15:01.0" / GPU / "numa_node"
    file.unlink()
    file.mkdir()
    assert list(pci_attributes(sysfs, GPU)) == [
        "resource.kubernetes.io/pciBusID",
        "resource.kubernetes.io/pcieRoot",
    ]


def test_a_link_to_itself_or_to_nowhere_or_without_a_root_has_no_root(sysfs: Path):
    entry = sysfs / "bus/pci/devices" / GPU
    for target in (entry, sysfs / "nowhere", sysfs):
        entry.unlink()
        entry.symlink_to(target)
        assert pcie_root(sysfs, GPU) == ""
