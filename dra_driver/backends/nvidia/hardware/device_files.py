# SPDX-License-Identifier: Apache-2.0
"""The device files of the NVIDIA driver, and the numbers from which they are made.

The kernel driver makes no device files itself: udev rules, nvidia-modprobe or the first program that needs one does, some of them only
after a container would have needed it. A container's device file needs only the numbers. So a file that is missing, but that the
loaded kernel driver would serve, is known all the same: its major number is in /proc/devices, its minor number is fixed.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping

from dra_driver.backends.nvidia.facts import DeviceFile
from dra_driver.backends.nvidia.hardware.tree import Tree

_FILES = re.compile(r"nvidia\d{1,4}|nvidiactl|nvidia-(?:modeset|uvm|uvm-tools)")
_CAPS = re.compile(r"nvidia-cap\d{1,6}")
_DRM = re.compile(r"(?:card|renderD)\d{1,6}")
_NUMBERED = re.compile(r"(nvidia-cap|nvidia|card|renderD)(\d+)")
_GPU_DRIVERS = ("nvidia", "nvidia-frontend", "nvidiactl")
_NUMBERED_DRIVERS = {
    "nvidia": _GPU_DRIVERS,
    "nvidia-cap": ("nvidia-caps",),
    "card": ("drm",),
    "renderD": ("drm",),
}
_CONTROL_FILES: Mapping[str, tuple[tuple[str, ...], int]] = {
    "/dev/nvidiactl": (_GPU_DRIVERS, 255),
    "/dev/nvidia-modeset": (("nvidia-modeset", *_GPU_DRIVERS), 254),
    "/dev/nvidia-uvm": (("nvidia-uvm",), 0),
    "/dev/nvidia-uvm-tools": (("nvidia-uvm",), 1),
}
"""The names of their driver in /proc/devices, which depend on its release, and their minor number."""

_MAJOR_LINE = re.compile(r"\s*(\d{1,4}) (\S+)\s*")
_MINOR_LINE = re.compile(r"(gpu\d+/gi\d+/(?:ci\d+/)?access)\s+(\d{1,9})")
_MINOR_FIELD = re.compile(r"DeviceFileMinor:\s*(\d{1,9})")
_CAPABILITIES = "/proc/driver/nvidia/capabilities"


def majors(host: Tree) -> Mapping[str, int]:
    """Return the major numbers of character devices by the name of their driver, from /proc/devices."""
    found: dict[str, int] = {}
    for line in host.text("/proc/devices").partition("Block devices:")[0].splitlines():
        if match := _MAJOR_LINE.fullmatch(line):
            found.setdefault(match.group(2), int(match.group(1)))
    return found


def gpu_major(numbers: Mapping[str, int]) -> int | None:
    """Return the major number of /dev/nvidia<minor>; its name depends on the release of the driver."""
    return next((numbers[name] for name in _GPU_DRIVERS if name in numbers), None)


def device_files(host: Tree, devices: Tree, numbers: Mapping[str, int]) -> tuple[DeviceFile, ...]:
    """Return the driver's device files, and the control files that could be there. `devices` is the root of the device files, which
    is another one than the host's if a container with the driver made them; those of DRM are the kernel's own, in the host's /dev.
    """
    paths = [(devices, path) for path in _paths(devices)]
    paths += [(host, path) for path in _in(host, "/dev/dri", _DRM)]
    found = {path: file for tree, path in paths if (file := _file(tree, path, numbers))}
    for file in _served(numbers):
        found.setdefault(file.path, file)
    return tuple(found[path] for path in sorted(found))


def wrong_files(devices: Tree) -> Iterator[str]:
    """Yield a sentence for each path of a device file that is a directory."""
    for path in directories(devices):
        yield (
            f"{path} is a directory, so the driver's library cannot use this device; a pod that mounts {path} with "
            "type DirectoryOrCreate makes one: delete that pod, remove the directory (rmdir), and run nvidia-smi, "
            "which makes the device file"
        )


def directories(devices: Tree) -> Iterator[str]:
    """Yield each path of a device file that is a directory."""
    for path in _paths(devices):
        found = devices.stat(path)
        if found is not None and stat.S_ISDIR(found.st_mode):
            yield path


def _paths(devices: Tree) -> list[str]:
    return [*_in(devices, "/dev", _FILES), *_in(devices, "/dev/nvidia-caps", _CAPS)]


def _in(tree: Tree, folder: str, pattern: re.Pattern[str]) -> list[str]:
    return [f"{folder}/{name}" for name in tree.names(folder) if pattern.fullmatch(name)]


def _file(tree: Tree, path: str, numbers: Mapping[str, int]) -> DeviceFile | None:
    """Return what a device file says. An ordinary file in its place stands for the device that belongs there."""
    found = tree.stat(path)
    if found is None:
        return None
    mode, gid = stat.S_IMODE(found.st_mode), found.st_gid
    if stat.S_ISCHR(found.st_mode):
        major, minor = os.major(found.st_rdev), os.minor(found.st_rdev)
        return DeviceFile(path=path, major=major, minor=minor, mode=mode, gid=gid)
    if stat.S_ISREG(found.st_mode) and (belongs := _belongs(path, numbers)):
        return DeviceFile(path=path, major=belongs[0], minor=belongs[1], mode=mode, gid=gid)
    return None


def _served(numbers: Mapping[str, int]) -> Iterator[DeviceFile]:
    for path, (drivers, minor) in _CONTROL_FILES.items():
        known = (
            drivers[:1] if path == "/dev/nvidia-modeset" else drivers
        )  # its module may be missing
        if major := next((numbers[name] for name in known if name in numbers), None):
            yield DeviceFile(path=path, major=major, minor=minor)


def _belongs(path: str, numbers: Mapping[str, int]) -> tuple[int, int] | None:
    """Return the major and minor number of the device that belongs to a path; None if its driver is not loaded."""
    if path in _CONTROL_FILES:
        drivers, minor = _CONTROL_FILES[path]
    else:
        stem, digits = _NUMBERED.findall(path.rpartition("/")[2])[0]
        drivers, minor = _NUMBERED_DRIVERS[stem], int(digits)
    major = next((numbers[driver] for driver in drivers if driver in numbers), None)
    return None if major is None else (major, minor)


def drm_links(devices: Tree) -> Mapping[str, str]:
    """Return the links in /dev/dri/by-path and their targets."""
    paths = (f"/dev/dri/by-path/{name}" for name in devices.names("/dev/dri/by-path"))
    return {
        path: target
        for path in paths
        if path.startswith("/dev/dri/by-path/pci-") and (target := devices.link(path))
    }


def capabilities(host: Tree) -> Mapping[str, int]:
    """Return the minor numbers of the MIG capabilities: gpu0/gi1/access to 12.

    The kernel driver has a file for each instance that exists. If it has none of these files, its table of all possible instances
    counts.
    """
    if host.names(_CAPABILITIES):
        return dict(_existing(host))
    table = host.text("/proc/driver/nvidia-caps/mig-minors")
    return {name: int(minor) for name, minor in _MINOR_LINE.findall(table)}


def _existing(host: Tree) -> Iterator[tuple[str, int]]:
    for gpu in _numbered(host, _CAPABILITIES, "gpu"):
        for gi in _numbered(host, f"{_CAPABILITIES}/{gpu}/mig", "gi"):
            folder = f"{_CAPABILITIES}/{gpu}/mig/{gi}"
            for inner in ("", *(f"{ci}/" for ci in _numbered(host, folder, "ci"))):
                if minor := _MINOR_FIELD.search(host.text(f"{folder}/{inner}access")):
                    yield f"{gpu}/{gi}/{inner}access", int(minor.group(1))


def _numbered(host: Tree, folder: str, prefix: str) -> list[str]:
    return [name for name in host.names(folder) if re.fullmatch(prefix + r"\d{1,4}", name)]
