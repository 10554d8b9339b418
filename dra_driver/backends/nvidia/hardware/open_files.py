# SPDX-License-Identifier: Apache-2.0
"""Which processes of the node have a GPU open, by the files that they have open.

The kernel driver names to the library only the processes of the asking PID namespace: in a container none of the node's. /proc of the
host has all of them. A program that computes has the GPU and the memory manager of CUDA (/dev/nvidia-uvm) open; a monitor, a desktop or
the persistence daemon has the GPU only. A process that may not be looked into, or that ends meanwhile, is left out.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from dra_driver.backends.nvidia.facts import Installation, Process

_MANAGER = "/dev/nvidia-uvm"
_INSTANCE = re.compile(r"gpu(\d+)/gi(\d+)/ci(\d+)/access")

Number = tuple[int, int]
"""Major and minor number of a device."""
Instance = tuple[int, int]
"""GPU instance and compute instance."""


def computing_on(proc: Path, installation: Installation, minor: int) -> Iterator[Process]:
    """Yield the processes that compute on the GPU /dev/nvidia<minor>; with its instances, if they have opened a MIG device of it."""
    manager = next((one for one in installation.device_files if one.path == _MANAGER), None)
    if manager is None or installation.gpu_major is None:
        return
    needed = {(manager.major, manager.minor), (installation.gpu_major, minor)}
    instances = _instances(installation, minor)
    for pid, opened in _opened(proc):
        if not needed <= opened:
            continue
        inside = [instances[number] for number in sorted(opened) if number in instances]
        for gi, ci in inside:
            yield Process(pid=pid, gpu_instance=gi, compute_instance=ci)
        if not inside:
            yield Process(pid=pid)


def _instances(installation: Installation, minor: int) -> Mapping[Number, Instance]:
    """The MIG devices of the GPU, by the number of the file that opens them."""
    if installation.caps_major is None:
        return {}
    matches = ((_INSTANCE.fullmatch(name), number) for name, number in installation.caps.items())
    return {
        (installation.caps_major, number): (int(match[2]), int(match[3]))
        for match, number in matches
        if match is not None and int(match[1]) == minor
    }


def _opened(proc: Path) -> Iterator[tuple[int, set[Number]]]:
    """Yield each process with the character devices that it has open."""
    for folder in proc.glob("[0-9]*"):
        numbers: set[Number] = set()
        with suppress(OSError), os.scandir(folder / "fd") as files:
            for file in files:
                with suppress(OSError):
                    found = file.stat()
                    if stat.S_ISCHR(found.st_mode):
                        numbers.add((os.major(found.st_rdev), os.minor(found.st_rdev)))
        if numbers:
            yield int(folder.name), numbers
