# SPDX-License-Identifier: Apache-2.0
"""The driver installation of this node, for `facts.Installation`: read from the host's file system, again and again.

`roots.py` says where it is, `driver_files.py` which files a container needs, `device_files.py` has the device files.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from dra_driver.backends.nvidia.facts import Installation
from dra_driver.backends.nvidia.hardware.device_files import (
    capabilities,
    device_files,
    drm_links,
    gpu_major,
    majors,
    wrong_files,
)
from dra_driver.backends.nvidia.hardware.driver_files import (
    BINARY_FOLDERS,
    FIRMWARE_FOLDERS,
    SOCKETS,
    DriverFiles,
    driver_files,
    sources,
)
from dra_driver.backends.nvidia.hardware.hook import HookFinder
from dra_driver.backends.nvidia.hardware.roots import (
    CACHES,
    LIBRARY_FOLDERS,
    ROOTS,
    UNEXPECTED_ROOTS,
    Root,
    find_root,
    loaded_version,
)
from dra_driver.backends.nvidia.hardware.tree import Tree


class InstallationReader:
    """Reads the installation again and again. Libraries are opened again only after a folder has changed.

    `host_root` is where this process sees the host's /. An empty `driver_root` means: look for it.
    """

    def __init__(self, host_root: Path = Path("/"), driver_root: str = "") -> None:
        self._host = Tree(host_root)
        self._driver_root = driver_root
        self._seen: object = None
        self._root = Root("", self._host)
        self._files = DriverFiles()
        self._problems: tuple[str, ...] = ()
        self._hook = HookFinder(self._host)

    def read(self) -> Installation:
        """Return what is there now. Never raises: what cannot be read is missing, and `problems` say why."""
        loaded = loaded_version(self._host)
        seen = (loaded, self._fingerprint())
        if seen != self._seen:
            self._root, self._problems = find_root(self._host, self._driver_root, loaded)
            self._files = (
                driver_files(self._host, self._root) if self._root.version else DriverFiles()
            )
            # A file that is still being written changes no folder when it is complete.
            self._seen = seen if self._root.version and not self._files.problems else None
        root, files = self._root, self._files
        dev_root = root.path if root.tree.stat("/dev/nvidiactl") else "/"
        devices = self._host.below(dev_root)
        numbers = majors(self._host)
        hook, hook_commands = self._hook.find()
        return Installation(
            driver_root=root.path if root.version else "",
            dev_root=dev_root,
            kernel_version=loaded,
            library_version=root.version,
            machine=root.machine or os.uname().machine,
            libraries=files.libraries,
            links=files.links,
            binaries=files.binaries,
            firmware=files.firmware,
            sockets=tuple(self._sockets()),
            configs=files.configs,
            sources=sources(root.tree, (*files.binaries, *files.firmware)),
            device_files=device_files(self._host, devices, numbers),
            drm_links=drm_links(self._host),
            gpu_major=gpu_major(numbers),
            caps_major=numbers.get("nvidia-caps"),
            caps=capabilities(self._host),
            hook=hook,
            hook_commands=hook_commands,
            problems=(*self._problems, *files.problems, *wrong_files(devices)),
        )

    def _sockets(self) -> Iterator[str]:
        """Yield the host's path of each socket. Its program runs beside the driver, or on the host."""
        for path in SOCKETS if self._root.version else ():
            if _is_socket(self._root.tree, path):
                yield f"{self._root.path.rstrip('/')}{path}"
            elif _is_socket(self._host, path):
                yield path

    def _fingerprint(self) -> list[object]:
        """Times of all folders where a driver could be. They change when a file in them is made, renamed or removed."""
        roots = (self._driver_root,) if self._driver_root else (*ROOTS, *UNEXPECTED_ROOTS)
        places = (*LIBRARY_FOLDERS, *BINARY_FOLDERS, *CACHES, *FIRMWARE_FOLDERS)
        found: list[object] = []
        for root in roots:
            tree = self._host.below(root)
            for place in places if tree.stat("/") else ():
                status = tree.stat(place)
                times = status and (status.st_dev, status.st_ino, status.st_mtime_ns)
                found.append((root, place, times))
        return found


def _is_socket(tree: Tree, path: str) -> bool:
    """Whether a socket is there, or a folder of sockets that belongs to the owner of the tree, and no link on the way.

    The container runtime follows links as root, and containers may write to what it mounts. Anybody may make a link or a folder in /tmp.
    """
    found, top = tree.stat(path), tree.stat("/")
    if found is None or top is None or tree.resolve(path) != path:
        return False
    return stat.S_ISSOCK(found.st_mode) or (
        stat.S_ISDIR(found.st_mode) and found.st_uid == top.st_uid
    )


def read_installation(host_root: Path = Path("/"), driver_root: str = "") -> Installation:
    """Read the installation once."""
    return InstallationReader(host_root, driver_root).read()


def nvml_library(installation: Installation, host_root: Path = Path("/")) -> Path | None:
    """Return where this process finds the installation's libnvidia-ml.so.<version>; None if there is none."""
    name = f"libnvidia-ml.so.{installation.library_version}"
    for library in installation.libraries:
        if library.rpartition("/")[2] == name:
            return Tree(host_root).below(installation.driver_root).outside(library)
    return None
