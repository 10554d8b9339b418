# SPDX-License-Identifier: Apache-2.0
"""What `dra-driver doctor` reads of accelerators of other vendors: the PCI bus, their kernel drivers, and their device files."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from dra_driver.backends.nvidia.hardware.tree import Tree
from dra_driver.daemon.host import Host
from dra_driver.model.host import Accelerator, Place

BUS = "/sys/bus/pci/devices"
_NODE = re.compile(r"(card|renderD|accel|accel_controlD|hl|hl_controlD)\d{1,6}")


class Vendor(Protocol):
    """A row of the table of vendors, which `doctor/` has: the daemon does not import it."""

    @property
    def name(self) -> str: ...
    @property
    def pci_id(self) -> int: ...
    @property
    def classes(self) -> tuple[int, ...]: ...
    @property
    def files(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def shared(self) -> tuple[str, ...]: ...


def accelerators(root: Path, vendors: Iterable[Vendor]) -> Iterator[Accelerator]:
    """Yield the accelerators of these vendors on the host whose / is at `root`, in the order of their addresses."""
    tree, host = Tree(root), Host(root)
    by_id = {one.pci_id: one for one in vendors}
    for address in sorted(tree.names(BUS)):
        folder = f"{BUS}/{address}"
        vendor = by_id.get(_number(tree.text(f"{folder}/vendor")))
        if vendor is None or _number(tree.text(f"{folder}/class")) >> 16 not in vendor.classes:
            continue
        driver = tree.resolve(f"{folder}/driver").rpartition("/")[2]
        named = [
            f"{place}/{name}"
            for kind, place in vendor.files
            for name in tree.names(f"{folder}/{kind}")
            if _NODE.fullmatch(name)
        ]
        paths = (*sorted(named), *vendor.shared) if named else ()
        yield Accelerator(
            vendor.name, address, driver, tuple(_file(host, tree, path) for path in paths)
        )


def _file(host: Host, tree: Tree, path: str) -> tuple[Place, int]:
    found = tree.stat(path)
    return host.place(path), found.st_mode & 0o777 if found else 0


def _number(text: str) -> int:
    try:
        return int(text.strip(), 16)
    except ValueError:
        return -1
