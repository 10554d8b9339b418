# SPDX-License-Identifier: Apache-2.0
"""What `doctor` reads of the GPUs of a host, from the files of the mock."""

from pathlib import Path

from dra_driver.backends.nvidia.host import examine
from dra_driver.model.host import BusGpu, DriverOnHost
from dra_driver.testing.nvml import boards, machine
from dra_driver.testing.nvml import node as layouts
from dra_driver.testing.nvml.node import MockNode


def a_node(folder: Path) -> MockNode:
    return MockNode(folder, machine.node(boards.A100_40, 2), layout=layouts.UBUNTU)


def test_a_whole_installation(tmp_path: Path) -> None:
    node = a_node(tmp_path)
    found = examine(tmp_path)
    assert [one.driver for one in found.gpus] == ["nvidia", "nvidia"]
    assert (found.kernel_version, found.library_version, found.root) == (
        node.version,
        node.version,
        "/",
    )
    assert (found.problems, found.directories, found.missing) == ((), (), ())


def test_a_kernel_driver_that_is_not_loaded(tmp_path: Path) -> None:
    node = a_node(tmp_path)
    node.become(node.facts, module=False)
    found = examine(tmp_path)
    assert (found.kernel_version, found.library_version) == ("", node.version)
    assert [one.driver for one in found.gpus] == ["", ""]
    (problem,) = found.problems
    assert "the kernel module nvidia is not loaded" in problem


def test_a_directory_in_the_place_of_a_device_file_and_one_that_is_missing(tmp_path: Path) -> None:
    a_node(tmp_path)
    (tmp_path / "dev/nvidia0").unlink()
    (tmp_path / "dev/nvidia0").mkdir()
    (tmp_path / "dev/nvidia1").unlink()
    found = examine(tmp_path)
    assert (found.directories, found.missing) == (("/dev/nvidia0",), ("/dev/nvidia1",))
    assert found.problems == ()


def test_another_kernel_driver_has_the_gpu(tmp_path: Path) -> None:
    node = a_node(tmp_path)
    node.become(node.facts, module=False)
    address = examine(tmp_path).gpus[0].address
    device = tmp_path / "sys/bus/pci/devices" / address
    (tmp_path / "sys/bus/pci/drivers/nouveau").mkdir(parents=True)
    (device / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers/nouveau")
    assert BusGpu(address, "nouveau") in examine(tmp_path).gpus


def test_the_driver_root_is_the_one_that_the_option_names(tmp_path: Path) -> None:
    a_node(tmp_path)
    (problem,) = examine(tmp_path, "/opt/driver").problems
    assert problem.startswith("the driver root /opt/driver, which the option driverRoot names")


def test_a_host_without_gpus_has_no_problem(tmp_path: Path) -> None:
    assert examine(tmp_path) == DriverOnHost()
