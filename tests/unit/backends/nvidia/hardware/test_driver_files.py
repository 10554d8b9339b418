# SPDX-License-Identifier: Apache-2.0
"""Which files of a driver root a container needs; broken ones cost themselves."""

import os
from pathlib import Path

import pytest

from dra_driver.backends.nvidia.hardware.driver_files import DriverFiles, driver_files, sources
from dra_driver.backends.nvidia.hardware.roots import find_root
from dra_driver.backends.nvidia.hardware.tree import Tree
from dra_driver.testing.nvml.elf import stub

VERSION = "550.54"
LIB = "/usr/lib64"


def library(root: Path, path: str, soname: str = "") -> Path:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(stub(soname))
    return place


def write(root: Path, path: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("x")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    library(tmp_path, f"{LIB}/libcuda.so.{VERSION}", "libcuda.so.1")
    return tmp_path


def files(host: Path, root: str = "") -> DriverFiles:
    tree = Tree(host)
    return driver_files(tree, find_root(tree, root, VERSION)[0])


def test_libraries_have_the_driver_s_version_or_belong_to_it(host: Path) -> None:
    wanted = (
        "libnvidia-tls.so.550.54",
        "libnvidia-nvvm70.so.4",
        "libnvidia-egl-gbm.so.1.1.1",
        "libnvidia-egl-wayland2.so.1.0.0",
        "vdpau/libvdpau_nvidia.so.550.54",
    )
    others = ("libc.so.6", "libnvidia-egl-gbm.so.1", "libother.so.550.90", "libnvidia-x.so.4")
    for name in (*wanted, *others):
        library(host, f"{LIB}/{name}")
    expected = sorted(f"{LIB}/{name}" for name in (*wanted, "libcuda.so.550.54"))
    assert list(files(host).libraries) == expected


def test_links_are_the_soname_and_those_that_the_folder_has(host: Path) -> None:
    library(host, f"{LIB}/libnvcuvid.so.{VERSION}", "libnvcuvid.so.1")
    library(host, f"{LIB}/libnvidia-tls.so.{VERSION}", f"libnvidia-tls.so.{VERSION}")
    library(host, f"{LIB}/libGLX_nvidia.so.{VERSION}", "libGLX_nvidia.so.0")
    folder = host / LIB.lstrip("/")
    (folder / "libcuda.so.1").symlink_to(f"libcuda.so.{VERSION}")
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    (folder / "libnvcuvid.so").symlink_to("elsewhere")
    (folder / "libGLX_indirect.so.0").symlink_to(f"libGLX_nvidia.so.{VERSION}")
    assert files(host).links == {
        f"{LIB}/libGLX_nvidia.so.{VERSION}": ("libGLX_nvidia.so.0", "libGLX_indirect.so.0"),
        f"{LIB}/libcuda.so.{VERSION}": ("libcuda.so.1", "libcuda.so"),
        f"{LIB}/libnvcuvid.so.{VERSION}": ("libnvcuvid.so.1",),
    }


def test_a_library_behind_a_link_is_known_by_its_own_path(host: Path) -> None:
    library(host, f"/opt/real/libnvcuvid.so.{VERSION}")
    (host / "usr/lib64" / f"libnvcuvid.so.{VERSION}").symlink_to(
        f"/opt/real/libnvcuvid.so.{VERSION}"
    )
    assert f"/opt/real/libnvcuvid.so.{VERSION}" in files(host).libraries


def test_broken_libraries_cost_themselves(host: Path) -> None:
    write(host, f"{LIB}/libbroken.so.{VERSION}")
    (host / "usr/lib64" / f"libgone.so.{VERSION}").symlink_to("nowhere")
    (host / "usr/lib64" / f"libloop.so.{VERSION}").symlink_to(f"libloop.so.{VERSION}")
    (host / "usr/lib64" / f"libfolder.so.{VERSION}").mkdir()
    found = files(host)
    assert found.libraries == (f"{LIB}/libcuda.so.{VERSION}",)
    (told,) = found.problems
    assert told == (
        f"{LIB}/libbroken.so.{VERSION} in the driver root / cannot be read as a 64-bit library, so containers do not get it: "
        "install the driver's package again"
    )


def test_a_library_that_only_root_may_read_is_told(host: Path) -> None:
    library(host, f"{LIB}/libnvcuvid.so.{VERSION}").chmod(0o750)
    found = files(host)
    assert f"{LIB}/libnvcuvid.so.{VERSION}" in found.libraries or os.getuid() != 0
    assert any(f"chmod o+r {LIB}/libnvcuvid.so.{VERSION}" in told for told in found.problems)


def test_modules_of_an_x_server_come_from_the_first_folder_that_has_them(host: Path) -> None:
    library(host, "/usr/lib/xorg/modules/drivers/nvidia_drv.so")
    library(host, f"/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so.{VERSION}")
    library(host, f"{LIB}/nvidia/xorg/libglxserver_nvidia.so.{VERSION}")
    found = files(host).libraries
    assert "/usr/lib/xorg/modules/drivers/nvidia_drv.so" in found
    assert f"{LIB}/nvidia/xorg/libglxserver_nvidia.so.{VERSION}" in found
    assert f"/usr/lib/xorg/modules/extensions/libglxserver_nvidia.so.{VERSION}" not in found


def test_a_program_is_taken_once_and_its_link_is_followed(host: Path) -> None:
    write(host, "/usr/lib/nvidia/current/nvidia-smi")
    write(host, "/usr/sbin/nvidia-imex")
    write(host, "/sbin/nvidia-imex")
    write(host, "/usr/bin/nvidia-modprobe")
    (host / "usr/bin/nvidia-smi").symlink_to("/usr/lib/nvidia/current/nvidia-smi")
    found = files(host).binaries
    assert found == ("/usr/bin/nvidia-smi", "/usr/sbin/nvidia-imex")
    assert sources(Tree(host), (*found, "/usr/bin/gone")) == {
        "/usr/bin/nvidia-smi": "/usr/lib/nvidia/current/nvidia-smi"
    }


FIRMWARE = f"nvidia/{VERSION}/gsp_ga10x.bin"


@pytest.mark.parametrize(
    "folder",
    [
        "/lib/firmware/updates/6.8.0",
        "/lib/firmware/updates",
        "/lib/firmware/6.8.0",
        "/lib/firmware",
    ],
)
def test_firmware_is_where_the_kernel_looks(host: Path, folder: str) -> None:
    (host / "proc/sys/kernel").mkdir(parents=True)
    (host / "proc/sys/kernel/osrelease").write_text("6.8.0\n")
    write(host, f"{folder}/{FIRMWARE}")
    write(host, f"{folder}/nvidia/{VERSION}/other.bin")
    assert files(host).firmware == (f"{folder}/{FIRMWARE}",)


@pytest.mark.parametrize(
    ("root", "custom", "path"),
    [
        ("/", "/srv/firmware", f"/srv/firmware/{FIRMWARE}"),
        ("/srv/driver", "/srv/driver/firmware", f"/firmware/{FIRMWARE}"),
        ("/srv/driver", "relative", None),
    ],
)
def test_the_kernel_s_own_folder_of_firmware_comes_first(
    host: Path, root: str, custom: str, path: str | None
) -> None:
    place = host / root.strip("/")
    library(place, f"{LIB}/libcuda.so.{VERSION}")
    write(host, "/sys/module/firmware_class/parameters/path")
    (host / "sys/module/firmware_class/parameters/path").write_text(f"{custom}\n")
    write(place, f"/lib/firmware/{FIRMWARE}")
    if path:
        write(place, path)
    assert files(host, root).firmware == (path or f"/lib/firmware/{FIRMWARE}",)


def test_configuration_files_go_to_fixed_places(host: Path) -> None:
    write(host, "/etc/OpenCL/vendors/nvidia.icd")
    write(host, "/usr/share/glvnd/egl_vendor.d/10_nvidia.json")
    write(host, "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json")
    write(host, "/vulkan/icd.d/nvidia_icd.json")
    write(host, "/usr/share/nvidia/real.bin")
    (host / "usr/share/nvidia/nvoptix.bin").symlink_to("real.bin")
    assert files(host).configs == {
        "/etc/OpenCL/vendors/nvidia.icd": "/etc/OpenCL/vendors/nvidia.icd",
        "/usr/share/glvnd/egl_vendor.d/10_nvidia.json": "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        "/usr/share/nvidia/real.bin": "/usr/share/nvidia/nvoptix.bin",
        "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json": "/etc/vulkan/icd.d/nvidia_icd.x86_64.json",
        "/vulkan/icd.d/nvidia_icd.json": "/etc/vulkan/icd.d/nvidia_icd.json",
    }
