# SPDX-License-Identifier: Apache-2.0
"""Judge the host: GPU driver, device files, CDI files, nvidia-imex, space."""

from collections.abc import Iterator

from dra_driver.doctor.findings import Finding, finding, fine, unknown
from dra_driver.model.host import BusGpu, CdiOnHost, DriverOnHost, PlaceKind, Space

NOUVEAU, NVIDIA = "nouveau", "nvidia"
LEAST_FREE, ENOUGH_FREE = 16 * 1024**2, 512 * 1024**2
"""The state file, its log and a CDI file for each claim need a few MiB."""
LEAST_FILES = 64


def judge_driver(host: DriverOnHost) -> Iterator[Finding]:
    """Yield what is found about the kernel driver and the libraries of the GPUs."""
    if not host.gpus and not host.kernel_version and not host.library_version:
        yield fine("gpu-driver", "PCI bus", "no NVIDIA GPU is here, and no NVIDIA driver")
        return
    bad = list(filter(None, map(_of_gpu, host.gpus)))
    yield from bad
    for sentence in host.problems:
        yield finding("driver-installation", host.root or "the driver root", sentence)
    if not host.problems and not any(one.severity == "problem" for one in bad):
        said = f"{len(host.gpus)} GPUs, kernel driver {host.kernel_version}, libraries {host.library_version}"
        yield fine("gpu-driver", host.root, said)


def _of_gpu(gpu: BusGpu) -> Finding | None:
    if gpu.driver == NVIDIA:
        return None
    if not gpu.driver:
        return finding("gpu-without-driver", gpu.address, "no kernel driver is bound to it")
    name = "gpu-with-nouveau" if gpu.driver == NOUVEAU else "gpu-for-virtual-machines"
    found = f"the kernel driver {gpu.driver} is bound to it"
    if gpu.driver == NOUVEAU:
        return finding(name, gpu.address, found)
    return finding(name, gpu.address, found, address=gpu.address)


def judge_device_files(host: DriverOnHost) -> Iterator[Finding]:
    """Yield what is found about the device files."""
    for path in host.directories:
        yield finding("device-file-is-directory", path, "a directory", path=path)
    for path in host.missing:
        yield finding("device-file-missing", path, "nothing is there")
    if not host.directories and not host.missing:
        yield fine("device-files", "/dev", "no device file is missing, and none is a directory")


def judge_cdi(host: CdiOnHost) -> Iterator[Finding]:
    """Yield what is found about the folders of CDI files; the first one is the driver's."""
    bad = False
    for own, place in enumerate(host.folders):
        if place.kind is PlaceKind.UNREADABLE:
            yield unknown("cdi-files", place.path, place.why)
            bad = True
        elif place.kind is PlaceKind.MISSING and own == 0:
            yield finding("cdi-folder-missing", place.path, "nothing is there", path=place.path)
            bad = True
        elif place.kind not in (PlaceKind.FOLDER, PlaceKind.MISSING):
            yield finding(
                "cdi-folder-is-none", place.path, f"{place.kind.value} is there", path=place.path
            )
            bad = True
    for path, why in host.broken.items():
        yield finding("cdi-file-broken", path, why, path=path)
    for path in host.closed:
        yield unknown("cdi-files", path, "this user may not read it")
    if not (bad or host.broken or host.closed):
        yield fine("cdi-files", " ".join(one.path for one in host.folders), "all can be read")


def judge_imex(processes: tuple[str, ...]) -> Iterator[Finding]:
    """Yield what is found about nvidia-imex on the host; `processes` are its process IDs."""
    if processes:
        yield finding("imex-on-host", f"process {', '.join(processes)}", "nvidia-imex runs")
    else:
        yield fine("imex", "/proc", "nvidia-imex does not run")


def judge_disk(spaces: tuple[Space, ...]) -> Iterator[Finding]:
    """Yield what is found about the space in the folders where the driver writes."""
    for space in spaces:
        free = f"{space.free / 1024**2:.0f} MiB free of {space.size / 1024**2:.0f} MiB"
        no_files = space.free_files is not None and space.free_files < LEAST_FILES
        if space.read_only:
            yield finding("disk-read-only", space.path, "read-only", path=space.path)
        elif space.free < LEAST_FREE or no_files:
            files = f", {space.free_files} free files" if no_files else ""
            yield finding("disk-full", space.path, f"{free}{files}", path=space.path)
        elif space.free < ENOUGH_FREE and space.size > ENOUGH_FREE * 2:
            yield finding("disk-nearly-full", space.path, free, path=space.path)
        else:
            yield fine("disk", space.path, free)
