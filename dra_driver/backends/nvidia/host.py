# SPDX-License-Identifier: Apache-2.0
"""What `dra-driver doctor` reads of the GPUs' kernel driver, libraries and device files. It opens no library and no device file."""

import re
from collections.abc import Iterator
from pathlib import Path

from dra_driver.backends.nvidia.hardware import pci
from dra_driver.backends.nvidia.hardware.device_files import directories, wrong_files
from dra_driver.backends.nvidia.hardware.installation import read_installation
from dra_driver.backends.nvidia.hardware.tree import Tree
from dra_driver.model.host import BusGpu, DriverOnHost

_GPUS = "/proc/driver/nvidia/gpus"
_MINOR = re.compile(r"^Device Minor:\s*(\d{1,4})\s*$", re.MULTILINE)


def examine(host_root: Path, driver_root: str = "") -> DriverOnHost:
    """Look at the host whose / is at `host_root`. Never raises: what cannot be read is missing."""
    host = Tree(host_root)
    found = read_installation(host_root, driver_root)
    devices = host.below(found.dev_root)
    told_elsewhere = set(wrong_files(devices))
    gpus = pci.gpus(host_root / "sys")
    nothing = not gpus and not found.kernel_version and not found.library_version
    return DriverOnHost(
        gpus=tuple(BusGpu(one.address, one.driver) for one in gpus),
        kernel_version=found.kernel_version,
        library_version=found.library_version,
        root=found.driver_root,
        # A node without NVIDIA's GPUs needs no driver of theirs.
        problems=()
        if nothing
        else tuple(one for one in found.problems if one not in told_elsewhere),
        directories=tuple(directories(devices)),
        missing=tuple(path for path in _files_of_gpus(host) if devices.stat(path) is None),
    )


def _files_of_gpus(host: Tree) -> Iterator[str]:
    """Yield the path of the device file of each GPU that the loaded kernel driver has."""
    for name in host.names(_GPUS):
        if found := _MINOR.search(host.text(f"{_GPUS}/{name}/information")):
            yield f"/dev/nvidia{found[1]}"
