# SPDX-License-Identifier: Apache-2.0
"""Which driver root counts, and what is said about half an installation."""

from pathlib import Path

import pytest

from dra_driver.backends.nvidia.hardware.roots import Root, find_root, loaded_version
from dra_driver.backends.nvidia.hardware.tree import Tree
from dra_driver.testing.nvml.elf import cache, stub, stub_32

OPEN_MODULE = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.20  Release Build  (root)\n"
    "GCC version:  gcc version 12.3.0\n"
)
CLOSED_MODULE = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024\n"
)


def put(host: Path, root: str, version: str, folder: str = "usr/lib64") -> None:
    """Write the main libraries of a driver below a driver root."""
    place = host / root.strip("/") / folder
    place.mkdir(parents=True, exist_ok=True)
    for name in ("libcuda", "libnvidia-ml"):
        (place / f"{name}.so.{version}").write_bytes(stub(f"{name}.so.1"))


def found(host: Path, configured: str = "", loaded: str = "550.54") -> tuple[Root, list[str]]:
    root, problems = find_root(Tree(host), configured, loaded)
    return root, list(problems)


@pytest.mark.parametrize(
    ("path", "text", "version"),
    [
        ("sys/module/nvidia/version", "580.126.20\n", "580.126.20"),
        ("proc/driver/nvidia/version", OPEN_MODULE, "580.126.20"),
        ("proc/driver/nvidia/version", CLOSED_MODULE, "535.161.07"),
        ("sys/module/nvidia/version", "something else", ""),
        ("proc/driver/nvidia/version", "NVRM version: ?\n", ""),
    ],
)
def test_the_version_of_the_loaded_module(
    tmp_path: Path, path: str, text: str, version: str
) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    assert loaded_version(Tree(tmp_path)) == version


@pytest.mark.parametrize(
    ("root", "folder"),
    [
        ("/", "usr/lib64"),
        ("/", "usr/lib/x86_64-linux-gnu"),
        ("/", "usr/lib/x86_64-linux-gnu/nvidia/current"),
        ("/", "usr/lib/nvidia/tesla"),
        ("/", "usr/local/glibc/usr/lib"),
        ("/run/nvidia/driver", "usr/lib/x86_64-linux-gnu"),
        ("/home/kubernetes/bin/nvidia", "lib64"),
    ],
)
def test_each_usual_place_is_found(tmp_path: Path, root: str, folder: str) -> None:
    put(tmp_path, root, "550.54", folder)
    result, problems = found(tmp_path)
    assert (result.path, result.version, result.folders) == (root, "550.54", (f"/{folder}",))
    assert result.machine == "x86_64"
    assert problems == []


def test_a_folder_that_only_the_cache_knows_is_found(tmp_path: Path) -> None:
    put(tmp_path, "/", "550.54", "opt/libs")
    (tmp_path / "opt/libs/libcuda.so.1").symlink_to("libcuda.so.550.54")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.cache").write_bytes(cache({"libcuda.so.1": "/opt/libs/libcuda.so.1"}))
    assert found(tmp_path)[0].folders == ("/opt/libs",)


def test_one_folder_under_two_names_counts_once(tmp_path: Path) -> None:
    put(tmp_path, "/", "550.54", "usr/lib/x86_64-linux-gnu")
    (tmp_path / "lib").symlink_to("usr/lib")
    assert found(tmp_path)[0].folders == ("/usr/lib/x86_64-linux-gnu",)


def test_the_root_with_the_loaded_version_comes_first(tmp_path: Path) -> None:
    put(tmp_path, "/", "535.161.07")
    put(tmp_path, "/run/nvidia/driver", "550.54")
    root, problems = found(tmp_path)
    assert (root.path, problems) == ("/run/nvidia/driver", [])
    assert found(tmp_path, loaded="535.161.07")[0].path == "/"
    assert found(tmp_path, loaded="")[0].path == "/"


def test_of_two_versions_in_one_root_the_loaded_one_counts(tmp_path: Path) -> None:
    put(tmp_path, "/", "535.161.07")
    put(tmp_path, "/", "550.54")
    root, problems = found(tmp_path)
    assert (root.version, problems) == ("550.54", [])


def test_libraries_of_another_width_and_other_files_do_not_count(tmp_path: Path) -> None:
    place = tmp_path / "usr/lib64"
    place.mkdir(parents=True)
    (place / "libcuda.so.550.54").write_bytes(stub_32("libcuda.so.1"))
    (place / "libnvidia-ml.so.550.54").write_text("INPUT(libnvidia-ml.so.1)")
    (place / "libnvidia-ml.so.550.54.01").symlink_to("libnvidia-ml.so.550.54.01")
    (place / "libcuda.so.1").write_bytes(stub("libcuda.so.1"))
    assert found(tmp_path)[0].version == ""


def test_an_admin_can_name_the_root(tmp_path: Path) -> None:
    put(tmp_path, "/", "550.54")
    put(tmp_path, "/srv/driver", "550.54")
    root, problems = found(tmp_path, "/srv/driver")
    assert (root.path, problems) == ("/srv/driver", [])


def test_nothing_is_told_with_the_next_step(tmp_path: Path) -> None:
    root, (told,) = found(tmp_path, loaded="")
    assert root.version == ""
    assert told == (
        "no NVIDIA driver was found: its kernel module is not loaded, and no libnvidia-ml.so.<version> or libcuda.so.<version> "
        "is in /, /run/nvidia/driver, /home/kubernetes/bin/nvidia, /opt/nvidia, /usr/local/nvidia: "
        "install the driver, or set the option driverRoot to the folder that has it"
    )


def test_a_module_without_libraries_is_told(tmp_path: Path) -> None:
    _, (told,) = found(tmp_path)
    assert told.startswith("the kernel module nvidia 550.54 is loaded, but no libnvidia-ml.so")
    assert told.endswith("or set the option driverRoot to the folder that has them")


def test_libraries_without_a_module_are_told(tmp_path: Path) -> None:
    put(tmp_path, "/run/nvidia/driver", "550.54")
    _, (told,) = found(tmp_path, loaded="")
    assert told == (
        "/run/nvidia/driver has the libraries of NVIDIA driver 550.54, but the kernel module nvidia is not loaded: "
        "wait until the installation of the driver has ended, or load it (modprobe nvidia) and read the node's kernel log"
    )


def test_halves_of_different_versions_are_told(tmp_path: Path) -> None:
    put(tmp_path, "/", "550.90")
    _, (told,) = found(tmp_path)
    assert told.startswith(
        "the kernel module nvidia 550.54 is loaded, but / has the libraries of NVIDIA driver 550.90:"
    )
    assert "reboot the node" in told


def test_an_unexpected_place_is_used_and_told(tmp_path: Path) -> None:
    put(tmp_path, "/opt/nvidia", "550.54", "lib64")
    root, (told,) = found(tmp_path)
    assert root.path == "/opt/nvidia"
    assert told.endswith("Set the option driverRoot to /opt/nvidia if that is right")
    assert found(tmp_path, "/opt/nvidia")[1] == []


def test_a_wrong_option_is_told_with_the_right_value(tmp_path: Path) -> None:
    put(tmp_path, "/run/nvidia/driver", "550.54")
    root, (told,) = found(tmp_path, "/srv/driver")
    assert (root.path, root.version) == ("/srv/driver", "")
    assert told.startswith("the driver root /srv/driver, which the option driverRoot names, has no")
    assert told.endswith("set driverRoot to /run/nvidia/driver, or leave the option out")


def test_a_wrong_option_without_another_installation_is_told(tmp_path: Path) -> None:
    _, (told,) = found(tmp_path, "/srv/driver")
    assert "was found in the driver root /srv/driver" in told
    _, (told,) = found(tmp_path, "/srv/driver", loaded="")
    assert "is in the driver root /srv/driver" in told
