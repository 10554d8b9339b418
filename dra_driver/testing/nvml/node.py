# SPDX-License-Identifier: Apache-2.0
"""A node with NVIDIA GPUs as a folder: what the driver would find below the host's root."""

import os
import shutil
from pathlib import Path

import msgspec
from msgspec.structs import replace

from dra_driver.backends.nvidia.facts import DeviceFile, Installation, Node
from dra_driver.testing.nvml.folders import bring_over
from dra_driver.testing.nvml.installs import (
    BOTTLEROCKET,
    FEDORA,
    GKE,
    OPERATOR,
    TALOS,
    UBUNTU,
    Driver,
    Layout,
)
from dra_driver.testing.nvml.kernel_files import (
    LOCAL_MAJORS,
    Majors,
    device_files,
    drm_links,
    live_caps,
    write_devices,
    write_proc,
    write_sysfs,
)

__all__ = (
    "BOTTLEROCKET",
    "FEDORA",
    "GKE",
    "OPERATOR",
    "TALOS",
    "UBUNTU",
    "Layout",
    "MockNode",
)


class MockNode:
    """The files of a node below `folder`, which stands for the host's root (option `hostRoot`).

        node = MockNode(tmp_path / "host", machine.node(boards.H100, 8), layout=OPERATOR)
        node.folder         sys/, proc/, dev/, run/ and the driver root are below it
        node.driver_root    the driver root as a path of this machine: folder/run/nvidia/driver
        node.installation   facts.Installation: what a scan of this folder finds (paths of the host)
        node.facts          the facts with this installation in them
        node.become(facts)  the same node after a change: other MIG devices, a GPU less, another driver version

    `library` is a libnvidia-ml.so that works (`build.library(facts)`), `nvidia_smi` a program; without them there are stubs, and no
    compiler is needed. With `character_devices` the files in dev/ are character devices of majors that no driver has (this needs root);
    else they are empty files, and /proc/devices has the usual majors, or `majors`.

    Other files in these folders are left alone, and a change touches only what is another file then. So the folders can be mounted, and
    in use.
    """

    def __init__(  # noqa: PLR0913 - each is a property of the node, and has a default
        self,
        folder: Path,
        facts: Node,
        *,
        layout: Layout = UBUNTU,
        library: Path | None = None,
        nvidia_smi: Path | None = None,
        character_devices: bool = False,
        majors: Majors | None = None,
    ) -> None:
        self.folder = folder
        self.majors = majors or (LOCAL_MAJORS if character_devices else Majors())
        self._real = character_devices
        self._written: frozenset[Path] = frozenset()
        self._driver = Driver(layout=layout, version="", library=library, nvidia_smi=nvidia_smi)
        self.become(facts)

    @property
    def layout(self) -> Layout:
        return self._driver.layout

    @property
    def version(self) -> str:
        return self._driver.version

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
        """Write the files of other facts, and if wanted of another layout: `become(facts, module=False)`."""
        self._driver = replace(
            self._driver,
            layout=replace(self.layout, **layout),
            version=facts.system.driver_version,
            library=library or self._driver.library,
        )
        fresh = self.folder / ".fresh"
        fresh.mkdir(parents=True)
        try:
            self._write_kernel(fresh, facts)
            self._driver.write(fresh, facts)
            self._written = bring_over(fresh, self.folder, self._written)
        finally:
            shutil.rmtree(fresh)
        self.installation = self._installation(facts)
        self.facts = msgspec.structs.replace(facts, installation=self.installation)

    def _write_kernel(self, root: Path, facts: Node) -> None:
        version = self.version if self.layout.module else ""
        write_sysfs(root, facts, version)
        write_proc(root, facts, version, self.majors)
        (root / "dev").mkdir()
        if not version:
            return
        write_devices(root, device_files(facts, self.majors), real=self._real)
        for link, target in drm_links(facts).items():
            place = root / link.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target)

    def _installation(self, facts: Node) -> Installation:
        module = self.version if self.layout.module else ""
        found = Installation(
            kernel_version=module,
            machine=os.uname().machine,
            device_files=self._device_files(facts) if module else (),
            drm_links=drm_links(facts) if module else {},
            gpu_major=self.majors.nvidia if module else None,
            caps_major=self.majors.caps if module else None,
            caps=live_caps(facts) if module else {},
        )
        return msgspec.structs.replace(found, **self._driver.facts(facts))

    def _device_files(self, facts: Node) -> tuple[DeviceFile, ...]:
        """As they are in dev/, in the order of their paths. Only root can give a file to a group."""
        files = device_files(facts, self.majors)
        if not self._real:
            files = tuple(
                msgspec.structs.replace(file, gid=(self.folder / file.path[1:]).stat().st_gid)
                for file in files
            )
        return tuple(sorted(files, key=lambda file: file.path))
