# SPDX-License-Identifier: Apache-2.0
"""Have accelerators of other vendors than NVIDIA their kernel driver and their device files? Judged by a table of vendors.

This release publishes none of them; the checks are for the DRA drivers and device plugins that do.
Source: drivers/gpu/drm and drivers/accel of Linux 6.12; the names of files are those of devtmpfs. Gaudi's driver of Linux before 6.5, and
Habana's own one of that time, have the class habanalabs and its files in /dev itself. The modules beside it (habanalabs_compat, _cn, _en,
_ib) are bound to no PCI device.
"""

from collections.abc import Iterator

from msgspec import Struct

from dra_driver.doctor.findings import Finding, finding, fine
from dra_driver.model.host import Accelerator, PlaceKind

CHECK = "other-accelerators"
_FOR_OTHERS = 0o066
"""What a program that is not root needs of a device file: its group, or all, may read and write."""


class Vendor(Struct, frozen=True):
    """A vendor by its PCI ID, the base classes of its accelerators, the kernel drivers that they can have, the folders of sysfs that name
    device files with where these are, and files that all its devices share.
    """

    name: str
    pci_id: int
    classes: tuple[int, ...]
    drivers: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    shared: tuple[str, ...] = ()


_DISPLAY, _PROCESSING = 0x03, 0x12
VENDORS = (
    Vendor(
        "AMD",
        0x1002,
        (_DISPLAY, _PROCESSING),
        ("amdgpu",),
        (("drm", "/dev/dri"),),
        ("/dev/kfd",),
    ),
    Vendor("Intel", 0x8086, (_DISPLAY,), ("xe", "i915"), (("drm", "/dev/dri"),)),
    Vendor(
        "Gaudi",
        0x1DA3,
        (_PROCESSING,),
        ("habanalabs",),
        (("accel", "/dev/accel"), ("habanalabs", "/dev")),
    ),
)


def judge_others(found: tuple[Accelerator, ...]) -> Iterator[Finding]:
    """Yield what is found about the accelerators of other vendors."""
    if not found:
        yield fine(CHECK, "PCI bus", "no accelerator of AMD, Intel or Gaudi is here")
        return
    drivers = {one.name: one.drivers for one in VENDORS}
    bad = [each for one in found for each in _of(one, drivers[one.vendor])]
    yield from {(one.id, one.object): one for one in bad}.values()
    if not bad:
        said = f"{len(found)} accelerators with their kernel drivers and device files"
        yield fine(CHECK, ", ".join(sorted({one.vendor for one in found})), said)


def _of(one: Accelerator, drivers: tuple[str, ...]) -> Iterator[Finding]:
    if one.driver not in drivers:
        said = f"the kernel driver {one.driver} is bound" if one.driver else "none is bound to it"
        wanted = " or ".join(drivers)
        found = f"{said}; {one.vendor} has {wanted}"
        yield finding("accelerator-without-driver", one.address, found, driver=drivers[0])
        return
    if not one.files:
        yield finding("accelerator-file-missing", one.address, "its kernel driver names no file")
    for place, mode in one.files:
        if place.kind is PlaceKind.FOLDER:
            yield finding("device-file-is-directory", place.path, "a directory", path=place.path)
        elif place.kind is not PlaceKind.OTHER:
            yield finding("accelerator-file-missing", place.path, f"{place.kind.value} is there")
        elif mode & _FOR_OTHERS == 0:
            yield finding(
                "accelerator-file-closed", place.path, f"mode {mode:04o}", path=place.path
            )
