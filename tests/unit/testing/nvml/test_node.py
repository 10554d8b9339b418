# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import msgspec
import pytest

from dra_driver.backends.nvidia.hardware.installation import read_installation
from dra_driver.backends.sysfs import pci_attributes
from dra_driver.testing.nvml import boards, elf, machine
from dra_driver.testing.nvml import node as layouts
from dra_driver.testing.nvml.kernel_files import all_caps, cap_minor
from dra_driver.testing.nvml.node import MockNode

LAYOUTS = {
    name: getattr(layouts, name)
    for name in ("UBUNTU", "FEDORA", "OPERATOR", "GKE", "TALOS", "BOTTLEROCKET")
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_files_are_those_that_the_installation_names(
    tmp_path: Path, layout: layouts.Layout
) -> None:
    node = MockNode(tmp_path / "host", machine.node(boards.H100, 2), layout=layout)
    found = node.installation
    assert found.library_version == found.kernel_version == "580.126.20"
    for path in (*found.libraries, *found.binaries, *found.firmware, *found.configs):
        assert (node.driver_root / path.lstrip("/")).is_file(), path
    for path, names in found.links.items():
        for name in names:
            link = (node.driver_root / path.lstrip("/")).parent / name
            assert link.resolve() == (node.driver_root / path.lstrip("/")).resolve()
    for path in found.sockets:
        assert (node.folder / path.lstrip("/")).is_socket()
    for file in found.device_files:
        assert (node.folder / file.path.lstrip("/")).exists()
    assert node.library.resolve().name == "libnvidia-ml.so.580.126.20"


def test_sysfs_leads_to_the_root_complex_and_the_numa_node(tmp_path: Path) -> None:
    node = MockNode(tmp_path, machine.node(boards.H100, 8))
    gpu = node.facts.gpus[4]
    assert pci_attributes(tmp_path / "sys", gpu.pci_bus_id) == {
        "resource.kubernetes.io/pciBusID": "0000:8a:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:85",
        "resource.kubernetes.io/numaNode": 1,
    }
    entries = {path.name: path for path in (tmp_path / "sys/bus/pci/devices").iterdir()}
    classes = [(path / "class").read_text().strip() for path in entries.values()]
    assert classes.count("0x030200") == 8
    assert classes.count("0x068000") == 4  # the NVSwitches
    assert (entries["0000:8a:00.0"] / "driver").resolve().name == "nvidia"
    assert sorted(path.name for path in (entries["0000:8a:00.0"] / "drm").iterdir()) == [
        "card5",
        "renderD132",
    ]


def test_capabilities_have_the_numbers_of_the_driver(tmp_path: Path) -> None:
    assert cap_minor(0, 1) == 12
    assert all_caps()["gpu1/gi0/access"] == 138
    node = MockNode(tmp_path, machine.node(boards.A100_40, mig="3g.20gb"))
    assert node.installation.caps == {"gpu0/gi1/access": 12, "gpu0/gi1/ci0/access": 13}
    access = tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gi1/access"
    assert access.read_text().startswith("DeviceFileMinor: 12\n")
    assert (tmp_path / "dev/nvidia-caps/nvidia-cap13").exists()
    assert "gpu0/gi1/access 12\n" in (tmp_path / "proc/driver/nvidia-caps/mig-minors").read_text()


def test_a_node_becomes_another_one(tmp_path: Path) -> None:
    node = MockNode(tmp_path, machine.node(boards.A100_40, 2, mig="1g.5gb"))
    node.become(machine.node(boards.A100_40, 1, driver=machine.R570))
    assert node.version == "570.133.20"
    assert not (tmp_path / "dev/nvidia1").exists()
    assert not (tmp_path / "usr/lib/x86_64-linux-gnu/libcuda.so.580.126.20").exists()
    node.become(machine.node(boards.A100_40, 1), module=False)
    assert not (tmp_path / "proc/driver").exists()
    assert not list((tmp_path / "dev").rglob("nvidia*"))
    assert not (tmp_path / "sys/bus/pci/devices/0000:1a:00.0/driver").exists()
    assert node.installation.library_version == "580.126.20"
    node.become(machine.node(boards.A100_40, 1), module=True, libraries=False)
    assert not list((tmp_path / "usr").rglob("*.so*"))
    assert node.installation.kernel_version == "580.126.20"


def test_a_change_leaves_alone_what_is_not_concerned(tmp_path: Path) -> None:
    node = MockNode(tmp_path, machine.node(boards.A100_40, 2, mig={0: "3g.20gb"}))
    (tmp_path / "dev/tty").touch()
    kept = [tmp_path / "sys/bus/pci/devices/0000:1a:00.0/vendor", node.library, tmp_path / "dev"]
    before = [path.stat().st_ino for path in kept]
    socket = tmp_path / "run/nvidia-persistenced/socket"
    before.append(socket.stat().st_ino)
    node.become(machine.node(boards.A100_40, 1, mig={0: "1g.5gb"}))
    assert [path.stat().st_ino for path in (*kept, socket)] == before
    assert (tmp_path / "dev/tty").exists()
    assert not (tmp_path / "sys/bus/pci/devices/0000:1b:00.0").exists()
    caps = sorted(
        path.name for path in (tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig").iterdir()
    )
    assert caps == ["gi7"]
    assert read_installation(tmp_path) == node.installation


def test_a_stub_has_its_soname_in_the_dynamic_section() -> None:
    text = elf.stub("libcuda.so.1")
    assert text[:4] == b"\x7fELF"
    dynamic = int.from_bytes(text[64 + 56 + 8 : 64 + 56 + 16], "little")
    tag, offset, table_tag, table = (
        int.from_bytes(text[dynamic + 8 * word : dynamic + 8 * word + 8], "little")
        for word in range(4)
    )
    assert (tag, table_tag) == (14, 5)
    assert text[table + offset :].split(b"\0")[0] == b"libcuda.so.1"


def test_the_cache_of_the_linker_names_each_library_with_its_path(tmp_path: Path) -> None:
    node = MockNode(tmp_path, machine.node(boards.T4))
    text = (tmp_path / "etc/ld.so.cache").read_bytes()
    assert text.startswith(b"glibc-ld.so.cache1.1")
    count = int.from_bytes(text[20:24], "little")
    names = {}
    for at in range(48, 48 + 24 * count, 24):
        key = int.from_bytes(text[at + 4 : at + 8], "little")
        value = int.from_bytes(text[at + 8 : at + 12], "little")
        names[text[key:].split(b"\0")[0].decode()] = text[value:].split(b"\0")[0].decode()
    assert names["libcuda.so.1"] == "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    assert all((node.driver_root / path.lstrip("/")).exists() for path in names.values())


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_driver_finds_on_the_node_what_the_node_says(
    tmp_path: Path, layout: layouts.Layout
) -> None:
    facts = machine.node(boards.A100_40, 2, mig={0: "3g.20gb 1g.5gb"})
    node = MockNode(tmp_path, facts, layout=layout)
    assert read_installation(tmp_path) == node.installation
    assert not node.installation.problems


def test_the_driver_finds_one_half_of_an_installation(tmp_path: Path) -> None:
    facts = machine.node(boards.H100)
    node = MockNode(tmp_path, facts, layout=layouts.Layout(hook=True, module=False))
    found = read_installation(tmp_path)
    assert "the kernel module nvidia is not loaded" in found.problems[0]
    assert msgspec.structs.replace(found, problems=()) == node.installation
    node.become(facts, module=True, libraries=False)
    found = read_installation(tmp_path)
    assert "install the driver's libraries of this version" in found.problems[0]
    assert msgspec.structs.replace(found, problems=()) == node.installation
