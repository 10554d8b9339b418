# SPDX-License-Identifier: Apache-2.0
"""The standard attributes of a PCI device, from sysfs: helpers for every backend.

    from dra_driver.backends.sysfs import pci_attributes

    attributes({"productName": "…", **pci_attributes(Path("/sys"), "0000:1a:00.0")})

A backend gets the folder of sysfs as an option or uses /sys; tests use a folder of their own. A file that is missing or broken costs
only the attribute that it is for: drivers and virtual machines leave out many of them.

Source: deviceattribute of k8s.io/dynamic-resource-allocation 0.37, KEP-6072 (numaNode).
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_NUMBER = re.compile(r"\d{1,9}")
_LARGEST = 64  # bytes that are read of a file; the numbers are shorter


def pci_address(text: str) -> str:
    """Return a PCI address as the kernel writes it ("0000:1a:00.0"); empty if the text is none.

    Vendors' libraries write it in capitals, with eight digits before the first colon, or without these digits.
    """
    address = text.strip().lower()
    if address.count(":") == 1:
        address = f"0000:{address}"
    if not _ADDRESS.fullmatch(address):
        return ""
    domain, _, rest = address.partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"


def pci_attributes(sysfs: Path, address: str) -> Mapping[str, str | int]:
    """Return pciBusID, pcieRoot and numaNode of a PCI device, as far as they are known; nothing if the text is no PCI address.

    `sysfs` is the folder that has `bus/pci/devices`. The values are for `dra_driver.model.device.attributes`.
    """
    name = pci_address(address)
    if not name:
        return {}
    found: dict[str, str | int] = {PCI_BUS_ID: name}
    if root := pcie_root(sysfs, name):
        found[PCIE_ROOT] = root
    if (node := numa_node(sysfs, name)) is not None:
        found[NUMA_NODE] = node
    return found


def pcie_root(sysfs: Path, address: str) -> str:
    """Return the PCIe root complex of a device ("pci0000:15"); empty if it is not known.

    The entry of a device is a link to its place in the tree of devices. The root is the first part of this path that names one.
    """
    try:
        parts = _entry(sysfs, address).resolve(strict=True).parts
    except (OSError, RuntimeError, ValueError):
        return ""  # no such device, a link to itself, or a name with a zero byte
    return root_in(parts)


def root_in(parts: Iterable[str]) -> str:
    """Return the PCIe root complex among the parts of a device's path; empty if none is one."""
    return next((part for part in parts if _ROOT.fullmatch(part)), "")


def numa_node(sysfs: Path, address: str) -> int | None:
    """Return the NUMA node of a device; None if it has none.

    The kernel writes -1 for a device without one. This must not become an attribute: it would look like a node that devices share.
    """
    text = _read(_entry(sysfs, address) / "numa_node")
    return int(text) if _NUMBER.fullmatch(text) else None


def _entry(sysfs: Path, address: str) -> Path:
    return sysfs / "bus" / "pci" / "devices" / (pci_address(address) or "none")


def _read(path: Path) -> str:
    """Return the first line of a file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("ascii").strip()
    except (OSError, ValueError):
        return ""
