# SPDX-License-Identifier: Apache-2.0
"""The host is judged: GPU driver, device files, CDI files, nvidia-imex, space."""

import pytest

from dra_driver.doctor.findings import Finding
from dra_driver.doctor.host import (
    judge_cdi,
    judge_device_files,
    judge_disk,
    judge_driver,
    judge_imex,
)
from dra_driver.model.host import BusGpu, CdiOnHost, DriverOnHost, Place, PlaceKind, Space

GPU = BusGpu("0000:01:00.0", "nvidia")
MIB = 1024**2


def short(found: list[Finding]) -> list[tuple[str, str]]:
    return [(one.id, one.object) for one in found]


def gpus(*found: BusGpu, problems: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    host = DriverOnHost(found, "580.1", "580.1", "/", problems)
    return short(list(judge_driver(host)))


def test_a_node_without_gpus_is_fine() -> None:
    assert short(list(judge_driver(DriverOnHost()))) == [("gpu-driver", "PCI bus")]


@pytest.mark.parametrize(
    ("driver", "found"),
    [
        ("", [("gpu-without-driver", GPU.address)]),
        ("nouveau", [("gpu-with-nouveau", GPU.address)]),
        ("vfio-pci", [("gpu-for-virtual-machines", GPU.address), ("gpu-driver", "/")]),
        ("nvidia", [("gpu-driver", "/")]),
    ],
)
def test_each_gpu_is_judged_by_its_kernel_driver(driver: str, found: list[tuple[str, str]]) -> None:
    assert gpus(BusGpu(GPU.address, driver)) == found


def test_what_is_wrong_with_the_installation_is_a_problem() -> None:
    assert gpus(GPU, problems=("a sentence",)) == [("driver-installation", "/")]
    (one,) = judge_driver(DriverOnHost((GPU,), "580.1", problems=("a sentence",)))
    assert (one.object, one.found) == ("the driver root", "a sentence")


def test_device_files() -> None:
    host = DriverOnHost(directories=("/dev/nvidia0",), missing=("/dev/nvidia1",))
    assert short(list(judge_device_files(host))) == [
        ("device-file-is-directory", "/dev/nvidia0"),
        ("device-file-missing", "/dev/nvidia1"),
    ]
    assert short(list(judge_device_files(DriverOnHost()))) == [("device-files", "/dev")]


@pytest.mark.parametrize(
    ("own", "static", "found"),
    [
        (PlaceKind.FOLDER, PlaceKind.MISSING, [("cdi-files", "/var/run/cdi /etc/cdi")]),
        (PlaceKind.MISSING, PlaceKind.FOLDER, [("cdi-folder-missing", "/var/run/cdi")]),
        (PlaceKind.FILE, PlaceKind.FOLDER, [("cdi-folder-is-none", "/var/run/cdi")]),
        (PlaceKind.FOLDER, PlaceKind.SOCKET, [("cdi-folder-is-none", "/etc/cdi")]),
        (PlaceKind.UNREADABLE, PlaceKind.FOLDER, [("cdi-files", "/var/run/cdi")]),
    ],
)
def test_folders_of_cdi_files(
    own: PlaceKind, static: PlaceKind, found: list[tuple[str, str]]
) -> None:
    host = CdiOnHost((Place("/var/run/cdi", own, "denied"), Place("/etc/cdi", static)))
    judged = list(judge_cdi(host))
    assert short(judged) == found
    assert (judged[0].severity == "unknown") is (own is PlaceKind.UNREADABLE)


def test_a_broken_cdi_file_is_a_warning() -> None:
    host = CdiOnHost((Place("/var/run/cdi", PlaceKind.FOLDER),), {"/etc/cdi/a.json": "no JSON"})
    assert short(list(judge_cdi(host))) == [("cdi-file-broken", "/etc/cdi/a.json")]


def test_a_cdi_file_that_this_user_may_not_read_is_not_broken() -> None:
    host = CdiOnHost((Place("/var/run/cdi", PlaceKind.FOLDER),), {}, ("/etc/cdi/a.json",))
    (one,) = judge_cdi(host)
    assert (one.id, one.severity, one.object) == ("cdi-files", "unknown", "/etc/cdi/a.json")


def test_imex() -> None:
    assert short(list(judge_imex(()))) == [("imex", "/proc")]
    assert short(list(judge_imex(("7", "9")))) == [("imex-on-host", "process 7, 9")]


@pytest.mark.parametrize(
    ("space", "found"),
    [
        (Space("/x", 4096 * MIB, 9000 * MIB, 1000), "disk"),
        (Space("/x", 4096 * MIB, 9000 * MIB, None), "disk"),
        (Space("/x", 300 * MIB, 9000 * MIB, 1000), "disk-nearly-full"),
        (Space("/x", 300 * MIB, 400 * MIB, 1000), "disk"),
        (Space("/x", 1 * MIB, 9000 * MIB, 1000), "disk-full"),
        (Space("/x", 4096 * MIB, 9000 * MIB, 3), "disk-full"),
        (Space("/x", 4096 * MIB, 9000 * MIB, 1000, read_only=True), "disk-read-only"),
    ],
)
def test_space(space: Space, found: str) -> None:
    assert short(list(judge_disk((space,)))) == [(found, "/x")]


def test_the_number_of_free_files_is_told_only_if_it_is_the_reason() -> None:
    (one,) = judge_disk((Space("/x", 4096 * MIB, 9000 * MIB, 3),))
    assert one.found == "4096 MiB free of 9000 MiB, 3 free files"
    (other,) = judge_disk((Space("/x", MIB, 9000 * MIB, 300),))
    assert other.found == "1 MiB free of 9000 MiB"
