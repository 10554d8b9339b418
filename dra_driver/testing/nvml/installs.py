# SPDX-License-Identifier: Apache-2.0
"""A driver installation, written into a folder: libraries, programs, firmware and configuration files, without a compiler."""

import os
import shutil
import socket
from pathlib import Path

from msgspec import Struct

from dra_driver.backends.nvidia.facts import Node
from dra_driver.testing.nvml import driver_files, elf
from dra_driver.testing.nvml.kernel_files import write

HOOK = "usr/bin/nvidia-cdi-hook"


class Layout(Struct, frozen=True, kw_only=True):
    """Where an installation puts its files. The folders are below the driver root. `module` and `libraries` are the two halves of an
    installation: without one of them it is broken in one of the usual ways.
    """

    driver_root: str = "/"
    library_folder: str = "usr/lib/x86_64-linux-gnu"
    binary_folder: str = "usr/bin"
    cache: bool = False
    """Whether the driver root has an etc/ld.so.cache."""
    hook: bool = False
    """Whether the host has /usr/bin/nvidia-cdi-hook."""
    module: bool = True
    libraries: bool = True
    graphics: bool = True
    """With the configuration files of OpenGL, Vulkan and OpenCL."""


UBUNTU = Layout(cache=True)
FEDORA = Layout(library_folder="usr/lib64", cache=True)
OPERATOR = Layout(driver_root="/run/nvidia/driver", cache=True)
GKE = Layout(
    driver_root="/home/kubernetes/bin/nvidia",
    library_folder="lib64",
    binary_folder="bin",
    graphics=False,
)
TALOS = Layout(
    library_folder="usr/local/glibc/usr/lib",
    binary_folder="usr/local/bin",
    graphics=False,
)
BOTTLEROCKET = Layout(
    library_folder="usr/lib/nvidia/tesla",
    binary_folder="usr/bin",
    graphics=False,
)


class Driver(Struct, frozen=True, kw_only=True):
    """What is installed. Without `library` and `nvidia_smi` there are stubs in their places."""

    layout: Layout
    version: str
    library: Path | None = None
    nvidia_smi: Path | None = None

    def write(self, host: Path, facts: Node) -> None:
        """Write it below the host's root."""
        if self.layout.libraries:
            root = host / self.layout.driver_root.lstrip("/")
            self._write_libraries(root)
            self._write_programs(root)
            for name in self._firmware():
                write(root / name.lstrip("/"), "firmware")
            for name in self._configs():
                write(root / name, "{}\n")
            for path in _sockets(facts):
                _socket(host / path.lstrip("/"))
        if self.layout.hook:
            _program(host / HOOK, *driver_files.HOOK_COMMANDS)

    def facts(self, facts: Node) -> dict[str, object]:
        """The fields of facts.Installation that are read from these files."""
        found: dict[str, object] = {}
        if self.layout.hook:
            found |= {"hook": f"/{HOOK}", "hook_commands": driver_files.HOOK_COMMANDS}
        if not self.layout.libraries:
            return found
        folder = f"/{self.layout.library_folder}"
        libraries = {
            f"{folder}/{name.format(v=self.version)}": links
            for name, links in driver_files.LIBRARIES.items()
        }
        programs = (f"/{self.layout.binary_folder}/{name}" for name in driver_files.BINARIES)
        return found | {
            "driver_root": self.layout.driver_root,
            "library_version": self.version,
            "machine": "x86_64",
            "libraries": tuple(sorted(libraries)),
            "links": {path: links for path, links in sorted(libraries.items()) if links},
            "binaries": tuple(programs),
            "firmware": self._firmware(),
            "sockets": _sockets(facts),
            "configs": {f"/{name}": f"/{name}" for name in self._configs()},
        }

    def _write_libraries(self, root: Path) -> None:
        folder = root / self.layout.library_folder
        cached: dict[str, str] = {}
        for library, links in {**driver_files.LIBRARIES, **driver_files.NEIGHBOURS}.items():
            path = folder / library.format(v=self.version)
            path.parent.mkdir(parents=True, exist_ok=True)
            soname = driver_files.soname(library, links).format(v=self.version)
            if soname == "libnvidia-ml.so.1" and self.library is not None:
                shutil.copy(self.library, path)
            else:
                path.write_bytes(elf.stub(soname))
            for link in links:
                (path.parent / link).symlink_to(path.name)
            if path.parent == folder:
                cached[soname] = f"/{self.layout.library_folder}/{soname}"
        if self.layout.cache:
            (root / "etc").mkdir(parents=True, exist_ok=True)
            (root / "etc/ld.so.cache").write_bytes(elf.cache(cached))

    def _write_programs(self, root: Path) -> None:
        for name in (*driver_files.BINARIES, *driver_files.HOST_BINARIES):
            path = root / self.layout.binary_folder / name
            _program(path)
            if name == "nvidia-smi" and self.nvidia_smi is not None:
                shutil.copy(self.nvidia_smi, path)

    def _firmware(self) -> tuple[str, ...]:
        folder = f"/lib/firmware/nvidia/{self.version}"
        return tuple(f"{folder}/{name}" for name in driver_files.FIRMWARE)

    def _configs(self) -> tuple[str, ...]:
        return driver_files.CONFIGS if self.layout.graphics else ()


def _sockets(facts: Node) -> tuple[str, ...]:
    switched = any(link.remote_type == 2 for gpu in facts.gpus for link in gpu.nvlinks)
    manager = ("/run/nvidia-fabricmanager/socket",) if switched else ()
    return ("/run/nvidia-persistenced/socket", *manager)


def _socket(place: Path) -> None:
    """The path of a socket has at most 107 bytes; a folder of a test is often longer."""
    place.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f"/proc/self/fd/{folder}/{place.name}")
    finally:
        os.close(folder)


def _program(path: Path, *words: str) -> None:
    """A program that does nothing. `words` are in its text, as the names of commands are in a real one."""
    write(path, f"#!/bin/sh\n# {' '.join(words)}\nexit 0\n")
    path.chmod(0o755)
