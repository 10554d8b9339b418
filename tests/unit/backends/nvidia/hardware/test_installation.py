# SPDX-License-Identifier: Apache-2.0
"""The whole installation of a node, on the layouts of the platforms, and while it changes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.backends.nvidia.hardware import installation as module
from dra_driver.backends.nvidia.hardware.installation import (
    InstallationReader,
    nvml_library,
    read_installation,
)
from dra_driver.backends.nvidia.hardware.tree import Tree
from dra_driver.testing.nvml import boards, machine
from dra_driver.testing.nvml import node as layouts
from dra_driver.testing.nvml.node import MockNode

LAYOUTS = ("UBUNTU", "FEDORA", "OPERATOR", "GKE", "TALOS", "BOTTLEROCKET")


def a_node(folder: Path, layout: layouts.Layout = layouts.UBUNTU, **more: str) -> MockNode:
    return MockNode(folder, machine.node(boards.A100_40, 2, **more), layout=layout)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("hook", [False, True], ids=["without-hook", "with-hook"])
def test_the_reader_finds_what_the_platform_has(tmp_path: Path, name: str, hook: bool) -> None:
    node = a_node(tmp_path / "host", replace(getattr(layouts, name), hook=hook))
    found = read_installation(node.folder)
    assert found == node.installation
    assert found.problems == ()
    library = nvml_library(found, node.folder)
    assert library == node.library.resolve()


def test_mig_devices_have_capabilities(tmp_path: Path) -> None:
    node = a_node(tmp_path, mig="3g.20gb")
    found = read_installation(tmp_path)
    assert found == node.installation
    assert found.caps["gpu0/gi1/access"] == 12
    assert found.caps_major == 236


def test_bottlerocket_s_folders_are_links(tmp_path: Path) -> None:
    node = a_node(tmp_path, layouts.BOTTLEROCKET)
    real = tmp_path / "x86_64-bottlerocket-linux-gnu/sys-root"
    real.mkdir(parents=True)
    (tmp_path / "usr").rename(real / "usr")
    (tmp_path / "usr").symlink_to("./x86_64-bottlerocket-linux-gnu/sys-root/usr")
    found = read_installation(tmp_path)
    prefix = "/x86_64-bottlerocket-linux-gnu/sys-root"
    assert found.libraries == tuple(prefix + path for path in node.installation.libraries)
    assert found.binaries == node.installation.binaries
    assert found.sources["/usr/bin/nvidia-smi"] == f"{prefix}/usr/bin/nvidia-smi"


def test_device_files_of_a_driver_container_are_its_own(tmp_path: Path) -> None:
    node = a_node(tmp_path, layouts.OPERATOR)
    inner = node.driver_root / "dev"
    inner.mkdir()
    for name in ("nvidiactl", "nvidia0"):
        (tmp_path / "dev" / name).rename(inner / name)
    found = read_installation(tmp_path)
    assert found.dev_root == "/run/nvidia/driver"
    paths = {file.path for file in found.device_files}
    assert "/dev/nvidia0" in paths
    assert "/dev/nvidia1" not in paths  # the host's, which is not used
    assert "/dev/dri/card1" in paths  # the kernel's own


def test_sockets_are_looked_for_beside_the_driver_and_on_the_host(tmp_path: Path) -> None:
    node = a_node(tmp_path, layouts.OPERATOR)
    inner = node.driver_root / "run/nvidia-persistenced"
    inner.mkdir(parents=True)
    (tmp_path / "run/nvidia-persistenced/socket").rename(inner / "socket")
    (tmp_path / "tmp/nvidia-mps").mkdir(parents=True)
    assert read_installation(tmp_path).sockets[0] == (
        "/run/nvidia/driver/run/nvidia-persistenced/socket"
    )
    assert "/tmp/nvidia-mps" in read_installation(tmp_path).sockets


def test_a_link_a_file_and_a_stranger_s_folder_are_no_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = a_node(tmp_path / "host")
    before = read_installation(node.folder).sockets
    assert before == ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket")
    (node.folder / "etc/secrets").mkdir()
    mps = node.folder / "tmp/nvidia-mps"
    mps.parent.mkdir()
    mps.symlink_to("/etc/secrets")
    assert read_installation(node.folder).sockets == before
    socket = node.folder / "run/nvidia-fabricmanager/socket"
    socket.rename(socket.with_name("other"))
    socket.symlink_to("other")
    assert read_installation(node.folder).sockets == before[:1]
    socket.unlink()
    socket.write_text("no socket")
    assert read_installation(node.folder).sockets == before[:1]
    mps.unlink()
    mps.mkdir()
    assert read_installation(node.folder).sockets == (before[0], "/tmp/nvidia-mps")
    real = Tree.stat

    def of_a_stranger(tree: Tree, path: str) -> os.stat_result | None:
        found = real(tree, path)
        if found is None or path != "/tmp/nvidia-mps":
            return found
        return os.stat_result([*found[:4], found.st_uid + 1, *found[5:]])

    monkeypatch.setattr(Tree, "stat", of_a_stranger)
    assert read_installation(node.folder).sockets == before[:1]


def test_without_a_driver_everything_is_empty_and_told(tmp_path: Path) -> None:
    found = read_installation(tmp_path)
    assert (found.driver_root, found.library_version, found.libraries) == ("", "", ())
    assert (found.device_files, found.gpu_major, found.sockets) == ((), None, ())
    (told,) = found.problems
    assert told.startswith("no NVIDIA driver was found")
    assert nvml_library(found, tmp_path) is None


def test_halves_and_broken_parts_are_told_together(tmp_path: Path) -> None:
    node = a_node(tmp_path, replace(layouts.UBUNTU, module=False))
    (tmp_path / "dev").mkdir(exist_ok=True)
    (tmp_path / "dev/nvidia0").mkdir()
    (node.library.resolve().parent / "libnvidia-extra.so.580.126.20").write_text("no library")
    told = read_installation(tmp_path).problems
    assert [sentence.split(" ")[0] for sentence in told] == [
        "/",
        "/usr/lib/x86_64-linux-gnu/libnvidia-extra.so.580.126.20",
        "/dev/nvidia0",
    ]


def test_an_installation_that_appears_changes_and_goes_is_followed(tmp_path: Path) -> None:
    node = a_node(tmp_path, replace(layouts.OPERATOR, libraries=False))
    reader = InstallationReader(tmp_path)
    assert reader.read().problems[0].startswith("the kernel module nvidia 580.126.20 is loaded")
    node.become(machine.node(boards.A100_40, 2), libraries=True)
    assert reader.read() == node.installation
    newer = machine.node(boards.A100_40, 2, driver=machine.R550)
    node.become(newer)
    assert reader.read().library_version == machine.R550.version
    node.become(newer, module=False, libraries=False)
    assert reader.read().libraries == ()


@pytest.mark.parametrize("pattern", ["libnvidia-ptxjitcompiler.so.*", "lib*.so.*"])
def test_libraries_that_were_still_being_written_are_found_when_they_are_complete(
    tmp_path: Path, pattern: str
) -> None:
    node = a_node(tmp_path)
    files = [path for path in tmp_path.glob(f"usr/lib/*/{pattern}") if not path.is_symlink()]
    complete = {path: path.read_bytes() for path in files}
    for path in files:
        path.write_bytes(b"")
    reader = InstallationReader(tmp_path)
    assert reader.read() != node.installation
    for path, content in complete.items():
        path.write_bytes(content)  # the folder does not change
    assert reader.read() == node.installation


def test_nothing_is_opened_again_that_did_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = a_node(tmp_path)
    reader = InstallationReader(tmp_path)
    before = reader.read()
    monkeypatch.setattr(module, "driver_files", None)
    monkeypatch.setattr(module, "find_root", None)
    assert reader.read() == before == node.installation


def test_the_option_names_the_root(tmp_path: Path) -> None:
    node = a_node(tmp_path, replace(layouts.OPERATOR, driver_root="/srv/driver"))
    assert read_installation(tmp_path, "/srv/driver") == node.installation
    assert read_installation(tmp_path).driver_root == ""


def test_the_reader_needs_little_of_the_driver() -> None:
    program = (
        "import sys, dra_driver.backends.nvidia.hardware.installation\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('grpc', 'structlog', 'yaml', 'urllib3')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
