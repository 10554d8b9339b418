# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's display controllers in sysfs, with or without a driver. The driver asks this too, before it starts a hardware process.

A file that is missing or broken costs only the fact that it is for.
"""

import re
from pathlib import Path

from dra_driver.backends.nvidia.facts import PciGpu
from dra_driver.backends.sysfs import pci_address

_NVIDIA = 0x10DE
_DISPLAY = 0x03  # the base class: VGA (0300) and 3D (0302) controllers
_DOMAIN = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_DRM = re.compile(r"(card|renderD)\d{1,6}")
_LARGEST = 64


def gpus(sysfs: Path) -> tuple[PciGpu, ...]:
    """Return NVIDIA's GPUs in the order of their addresses."""
    folder = sysfs / "bus" / "pci" / "devices"
    found = []
    for name in _names(folder):
        if pci_address(name) != name or _number(folder / name / "vendor") != _NVIDIA:
            continue
        pci_class = _number(folder / name / "class")
        if pci_class >> 16 == _DISPLAY:
            found.append(
                PciGpu(
                    address=name,
                    device=_number(folder / name / "device"),
                    pci_class=pci_class,
                    driver=_driver(folder / name),
                )
            )
    return tuple(found)


def place(sysfs: Path, address: str) -> tuple[str, ...]:
    """Return the parts of a device's path from its root complex on; empty if it is not known."""
    try:
        parts = _entry(sysfs, address).resolve(strict=True).parts
    except (OSError, RuntimeError, ValueError):
        return ()
    root = next((at for at, part in enumerate(parts) if _DOMAIN.fullmatch(part)), None)
    return () if root is None else parts[root:]


def numa_node(sysfs: Path, address: str) -> int | None:
    """Return what sysfs has, with its -1; None if it is not known."""
    try:
        return int(_read(_entry(sysfs, address) / "numa_node"))
    except ValueError:
        return None


def drm(sysfs: Path, address: str) -> tuple[str, ...]:
    """Return the names of its DRM devices: card1, renderD129."""
    return tuple(name for name in _names(_entry(sysfs, address) / "drm") if _DRM.fullmatch(name))


def _entry(sysfs: Path, address: str) -> Path:
    return sysfs / "bus" / "pci" / "devices" / (pci_address(address) or "none")


def _driver(entry: Path) -> str:
    try:
        return (entry / "driver").resolve(strict=True).name
    except (OSError, RuntimeError):
        return ""


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return []


def _number(path: Path) -> int:
    try:
        return int(_read(path), 16)
    except ValueError:
        return 0


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("ascii").strip()
    except (OSError, ValueError):
        return ""
