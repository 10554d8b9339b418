# SPDX-License-Identifier: Apache-2.0
"""A node with NVIDIA GPUs as a folder: what the driver would find below the host's root."""

import os
import shutil
import socket
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from dra_driver.backends.nvidia.facts import DeviceFile, Installation, Node
from dra_driver.testing.nvml import driver_files, elf
from dra_driver.testing.nvml.kernel_files import (
    LOCAL_MAJORS,
    Majors,
    device_files,
    live_caps,
    write,
    write_devices,
    write_proc,
    write_sysfs,
)

HOOK = "usr/bin/nvidia-cdi-hook"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
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
    library_folder="usr/local/glibc/usr/lib", binary_folder="usr/local/bin", graphics=False
)
BOTTLEROCKET = Layout(library_folder="usr/lib/nvidia/tesla", cache=True)


class MockNode:
    """The files of a node below `folder`, which stands for the host's root (option `hostRoot`).

        node = MockNode(tmp_path / "host", machine.node(boards.H100, 8), layout=OPERATOR)
        node.folder         sys/, proc/, dev/, run/ and the driver root are below it
        node.driver_root    the driver root as a path of this machine: folder/run/nvidia/driver
        node.installation   facts.Installation: what a scan of this folder should find (paths of the host)
        node.facts          the facts with this installation in them
        node.become(facts)  the same node after a change: other MIG devices, a GPU less, another driver version

    `library` is a libnvidia-ml.so that works (`build.library(facts)`), `nvidia_smi` a program; without them there are stubs, and no
    compiler is needed. With `character_devices` the files in dev/ are character devices of majors that no driver has (this needs root);
    else they are empty files, and /proc/devices has the usual majors.
    """

    def __init__(
        self,
        folder: Path,
        facts: Node,
        *,
        layout: Layout = UBUNTU,
        library: Path | None = None,
        nvidia_smi: Path | None = None,
        character_devices: bool = False,
    ) -> None:
        self.folder = folder
        self.layout = layout
        self.majors = LOCAL_MAJORS if character_devices else Majors()
        self._library = library
        self._nvidia_smi = nvidia_smi
        self._real = character_devices
        self.become(facts)

    @property
    def driver_root(self) -> Path:
        return self.folder / self.layout.driver_root.lstrip("/")

    @property
    def library(self) -> Path:
        """The library that a program loads: libnvidia-ml.so.1 in the driver root."""
        return self.driver_root / self.layout.library_folder / "libnvidia-ml.so.1"

    @property
    def dev(self) -> Path:
        return self.folder / "dev"

    def become(self, facts: Node, *, library: Path | None = None, **layout: object) -> None:
        """Write all files anew for other facts, and if wanted for another layout: `become(facts, module=False)`."""
        self.layout = replace(self.layout, **layout)  # type: ignore[arg-type] # its own fields
        self._library = library or self._library
        self.version = facts.system.driver_version
        self._clear()
        self._write_kernel(facts)
        if self.layout.libraries:
            self._write_driver_root()
            self._write_sockets(facts)
        if self.layout.hook:
            _program(self.folder / HOOK)
        self.installation = self._installation(facts)
        self.facts = msgspec.structs.replace(facts, installation=self.installation)

    def _clear(self) -> None:
        """Remove what `become` writes. Only the content of dev/ goes: it may be a mount point."""
        for name in ("sys", "proc", "run", "etc", "usr", "lib"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        if self.layout.driver_root != "/":
            shutil.rmtree(self.driver_root, ignore_errors=True)
        for entry in self.dev.iterdir() if self.dev.is_dir() else ():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def _write_kernel(self, facts: Node) -> None:
        version = self.version if self.layout.module else ""
        write_sysfs(self.folder, facts, version)
        write_proc(self.folder, facts, version, self.majors)
        self.dev.mkdir(parents=True, exist_ok=True)
        if version:
            write_devices(self.folder, device_files(facts, self.majors), real=self._real)

    def _write_driver_root(self) -> None:
        root = self.driver_root
        folder = root / self.layout.library_folder
        for library, links in {**driver_files.LIBRARIES, **driver_files.NEIGHBOURS}.items():
            path = folder / library.format(v=self.version)
            path.parent.mkdir(parents=True, exist_ok=True)
            soname = driver_files.soname(library, links).format(v=self.version)
            if soname == "libnvidia-ml.so.1" and self._library is not None:
                shutil.copy(self._library, path)
            else:
                path.write_bytes(elf.stub(soname))
            for link in links:
                (path.parent / link).symlink_to(path.name)
        for name in (*driver_files.BINARIES, *driver_files.HOST_BINARIES):
            path = root / self.layout.binary_folder / name
            _program(path)
            if name == "nvidia-smi" and self._nvidia_smi is not None:
                shutil.copy(self._nvidia_smi, path)
        for name in self._firmware():
            write(root / name.lstrip("/"), "firmware")
        for name in driver_files.CONFIGS if self.layout.graphics else ():
            write(root / name, "{}\n")
        if self.layout.cache:
            (root / "etc").mkdir(parents=True, exist_ok=True)
            (root / "etc/ld.so.cache").write_bytes(elf.cache(self._cached()))

    def _cached(self) -> dict[str, str]:
        folder = f"/{self.layout.library_folder}"
        return {
            driver_files.soname(library, links).format(v=self.version): (
                f"{folder}/{driver_files.soname(library, links).format(v=self.version)}"
            )
            for library, links in {**driver_files.LIBRARIES, **driver_files.NEIGHBOURS}.items()
            if "/" not in library
        }

    def _firmware(self) -> tuple[str, ...]:
        return tuple(
            f"/lib/firmware/nvidia/{self.version}/{name}" for name in driver_files.FIRMWARE
        )

    def _write_sockets(self, facts: Node) -> None:
        for path in self._sockets(facts):
            place = self.folder / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            # The path of a socket has at most 107 bytes; a folder of a test is often longer.
            folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                with socket.socket(socket.AF_UNIX) as one:
                    one.bind(f"/proc/self/fd/{folder}/{place.name}")
            finally:
                os.close(folder)

    def _sockets(self, facts: Node) -> tuple[str, ...]:
        switched = any(link.remote_type == 2 for gpu in facts.gpus for link in gpu.nvlinks)
        manager = ("/run/nvidia-fabricmanager/socket",) if switched else ()
        return ("/run/nvidia-persistenced/socket", *manager)

    def _device_files(self, facts: Node) -> tuple[DeviceFile, ...]:
        """The device files as a scan finds them: an ordinary file belongs to the group that made it."""
        files = sorted(device_files(facts, self.majors), key=lambda file: file.path)
        if self._real:
            return tuple(files)
        return tuple(msgspec.structs.replace(file, gid=os.getgid()) for file in files)

    def _installation(self, facts: Node) -> Installation:
        layout = self.layout
        module = self.version if layout.module else ""
        found = Installation(
            driver_root=layout.driver_root,
            kernel_version=module,
            device_files=self._device_files(facts) if module else (),
            gpu_major=self.majors.nvidia if module else None,
            caps_major=self.majors.caps if module else None,
            caps=live_caps(facts) if module else {},
            hook=f"/{HOOK}" if layout.hook else "",
        )
        if not layout.libraries:
            return found
        folder = f"/{layout.library_folder}"
        libraries = {
            f"{folder}/{name.format(v=self.version)}": links
            for name, links in driver_files.LIBRARIES.items()
        }
        configs = driver_files.CONFIGS if layout.graphics else ()
        return msgspec.structs.replace(
            found,
            library_version=self.version,
            libraries=tuple(sorted(libraries)),
            links={path: links for path, links in sorted(libraries.items()) if links},
            binaries=tuple(f"/{layout.binary_folder}/{name}" for name in driver_files.BINARIES),
            firmware=self._firmware(),
            sockets=self._sockets(facts),
            configs={f"/{name}": f"/{name}" for name in configs},
        )


def _program(path: Path) -> None:
    write(path, "#!/bin/sh\nexit 0\n")
    path.chmod(0o755)
