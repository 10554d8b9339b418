# SPDX-License-Identifier: Apache-2.0
"""What the kernel shows of a node with NVIDIA GPUs: sysfs, /proc, and device files, written into a folder."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from dra_driver.backends.nvidia.facts import DeviceFile, Gpu, Node

_INSTANCES, _COMPUTE_INSTANCES = 15, 8  # per GPU, and per GPU instance
_FIRST_CAP = 3
_SWITCH = 0x068000


class Majors(Struct, frozen=True):
    """Major numbers of the character devices."""

    nvidia: int = 195
    uvm: int = 511
    caps: int = 236


LOCAL_MAJORS = Majors(nvidia=120, uvm=121, caps=122)
"""Numbers that no driver of Linux has: opening such a device fails with ENXIO, on every machine."""


def cap_minor(gpu_minor: int, gpu_instance: int, compute_instance: int | None = None) -> int:
    """The minor number of a MIG capability. The driver has numbers for all that could exist, in this order."""
    instance = gpu_minor * _INSTANCES + gpu_instance
    own = 0 if compute_instance is None else 1 + compute_instance
    return _FIRST_CAP + instance * (1 + _COMPUTE_INSTANCES) + own


def live_caps(facts: Node) -> dict[str, int]:
    """Minor numbers of the capabilities that exist, by name: gpu0/gi1/access to 12."""
    found: dict[str, int] = {}
    for gpu in facts.gpus:
        for device in gpu.mig.devices if gpu.mig else ():
            name = f"gpu{gpu.minor}/gi{device.gpu_instance}"
            number = cap_minor(gpu.minor or 0, device.gpu_instance)
            found[f"{name}/access"] = number
            found[f"{name}/ci{device.compute_instance}/access"] = (
                number + 1 + device.compute_instance
            )
    return found


def all_caps(gpus: int = 8) -> dict[str, int]:
    """Minor numbers of all capabilities that could exist, as /proc/driver/nvidia-caps/mig-minors has them."""
    found = {"config": 1, "monitor": 2}
    for gpu in range(gpus):
        for instance in range(_INSTANCES):
            found[f"gpu{gpu}/gi{instance}/access"] = cap_minor(gpu, instance)
            for compute in range(_COMPUTE_INSTANCES):
                name = f"gpu{gpu}/gi{instance}/ci{compute}/access"
                found[name] = cap_minor(gpu, instance, compute)
    return found


def device_files(facts: Node, majors: Majors) -> tuple[DeviceFile, ...]:
    """The character devices that the driver makes for these GPUs."""
    found = [
        DeviceFile(path=f"/dev/nvidia{gpu.minor}", major=majors.nvidia, minor=gpu.minor)
        for gpu in facts.gpus
        if gpu.minor is not None
    ]
    found += [
        DeviceFile(path="/dev/nvidia-modeset", major=majors.nvidia, minor=254),
        DeviceFile(path="/dev/nvidiactl", major=majors.nvidia, minor=255),
        DeviceFile(path="/dev/nvidia-uvm", major=majors.uvm, minor=0),
        DeviceFile(path="/dev/nvidia-uvm-tools", major=majors.uvm, minor=1),
        _cap(majors, 1, 0o400),
        _cap(majors, 2, 0o444),
    ]
    found += [_cap(majors, number, 0o444) for number in sorted(live_caps(facts).values())]
    return (*found, *_drm_files(facts))


def _cap(majors: Majors, minor: int, mode: int) -> DeviceFile:
    path = f"/dev/nvidia-caps/nvidia-cap{minor}"
    return DeviceFile(path=path, major=majors.caps, minor=minor, mode=mode)


def _drm_files(facts: Node) -> Iterator[DeviceFile]:
    for name in (name for gpu in facts.gpus for name in gpu.drm):
        number = int("".join(letter for letter in name if letter.isdigit()))
        group = 44 if name.startswith("card") else 104  # video, render
        yield DeviceFile(path=f"/dev/dri/{name}", major=226, minor=number, mode=0o660, gid=group)


def drm_links(facts: Node) -> dict[str, str]:
    """The links of /dev/dri/by-path and their targets, as udev makes them."""
    kinds = {"card": "card", "renderD": "render"}
    return {
        f"/dev/dri/by-path/pci-{gpu.pci_path[-1]}-{kinds[name.rstrip('0123456789')]}": f"../{name}"
        for gpu in facts.gpus
        for name in gpu.drm
    }


def write_sysfs(root: Path, facts: Node, version: str) -> None:
    """Write sys/bus/pci, sys/devices and sys/module below `root`. Without `version` the kernel module is not loaded."""
    for entry in facts.pci:
        gpu = next((one for one in facts.gpus if one.pci_path[-1:] == (entry.address,)), None)
        path = gpu.pci_path if gpu else ("pci0000:00", entry.address)
        subsystem = (gpu.pci_subsystem_id or 0) if gpu else 0
        values = {
            "vendor": "0x10de",
            "device": f"0x{entry.device:04x}",
            "class": f"0x{entry.pci_class:06x}",
            "subsystem_vendor": f"0x{subsystem & 0xFFFF:04x}",
            "subsystem_device": f"0x{subsystem >> 16:04x}",
            "numa_node": str(-1 if gpu is None or gpu.numa_node is None else gpu.numa_node),
        }
        _pci_device(root, path, values, entry.driver if version or entry.driver != "nvidia" else "")
        for name in gpu.drm if gpu and version else ():
            (root.joinpath("sys/devices", *path) / "drm" / name).mkdir(parents=True)
    _bridges(root, facts)
    _switches(root, facts)
    (root / "sys/module/firmware_class/parameters").mkdir(parents=True)
    write(root / "sys/module/firmware_class/parameters/path", "\n")
    if version:
        write(root / "sys/module/nvidia/version", f"{version}\n")


def _bridges(root: Path, facts: Node) -> None:
    bridges = {
        gpu.pci_path[: end + 1] for gpu in facts.gpus for end in range(1, len(gpu.pci_path) - 1)
    }
    for path in sorted(bridges):
        values = {"vendor": "0x8086", "device": "0x347a", "class": "0x060400", "numa_node": "-1"}
        _pci_device(root, path, values, "pcieport")


def _switches(root: Path, facts: Node) -> None:
    """NVSwitches are devices of the same vendor that are no GPUs."""
    ends = {
        link.remote_pci_bus_id
        for gpu in facts.gpus
        for link in gpu.nvlinks
        if link.remote_type == 2
    }
    present = {gpu.pci_path[-1] for gpu in facts.gpus if gpu.pci_path}
    for end in sorted(ends):
        if end.lower().removeprefix("0000") in present:
            continue  # the description has two devices at one address
        values = {
            "vendor": "0x10de",
            "device": "0x22a3",
            "class": f"0x{_SWITCH:06x}",
            "numa_node": "0",
        }
        _pci_device(
            root, ("pci0000:00", end.lower().removeprefix("0000")), values, "nvidia-nvswitch"
        )


def _pci_device(root: Path, path: tuple[str, ...], values: dict[str, str], driver: str) -> None:
    folder = root.joinpath("sys/devices", *path)
    for name, value in values.items():
        write(folder / name, f"{value}\n")
    _link(root / "sys/bus/pci/devices" / path[-1], folder)
    if driver:
        place = root / "sys/bus/pci/drivers" / driver
        place.mkdir(parents=True, exist_ok=True)
        _link(folder / "driver", place)


def write_proc(root: Path, facts: Node, version: str, majors: Majors) -> None:
    """Write proc/devices and the driver's part of /proc below `root`."""
    lines = ["Character devices:", "  1 mem", "  5 /dev/tty", "226 drm"]
    major = int(version.partition(".")[0] or 0)
    if version:
        names = ("nvidia", "nvidia-modeset", "nvidiactl") if major >= 545 else ("nvidia-frontend",)
        lines += [f"{majors.nvidia} {name}" for name in names]
        lines += [f"{majors.caps} nvidia-caps", f"{majors.uvm} nvidia-uvm"]
    write(root / "proc/devices", "\n".join([*lines, "", "Block devices:", "259 blkext", ""]))
    memory = (facts.system.memory_total or 512 << 30) // 1024
    write(root / "proc/meminfo", f"MemTotal:       {memory} kB\nMemFree:        {memory // 2} kB\n")
    write(root / "proc/sys/kernel/osrelease", "6.8.0-85-generic\n")
    if not version:
        return
    flavour = "Open Kernel Module for x86_64" if major >= 560 else "x86_64 Kernel Module"
    write(
        root / "proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX {flavour}  {version}  Mon Jan 12 21:57:24 UTC 2026\n"
        "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n",
    )
    params = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n"
    write(root / "proc/driver/nvidia/params", params)
    for gpu in facts.gpus:
        write(
            root / "proc/driver/nvidia/gpus" / gpu.pci_path[-1] / "information", _information(gpu)
        )
    minors = "".join(
        f"{name} {minor}\n" for name, minor in all_caps(max(8, len(facts.gpus))).items()
    )
    write(root / "proc/driver/nvidia-caps/mig-minors", minors)
    caps = {"mig/config": 1, "mig/monitor": 2}
    caps |= {name.replace("/", "/mig/", 1): minor for name, minor in live_caps(facts).items()}
    for name, minor in caps.items():
        text = f"DeviceFileMinor: {minor}\nDeviceFileMode: {256 if minor == 1 else 292}\nDeviceFileModify: 1\n"
        write(root / "proc/driver/nvidia/capabilities" / name, text)


def _information(gpu: Gpu) -> str:
    return (
        f"Model: \t\t {gpu.name}\nIRQ:   \t\t 16\nGPU UUID: \t {gpu.uuid}\nVideo BIOS: \t 96.00.89.00.01\nBus Type: \t PCIe\n"
        f"DMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t {gpu.pci_path[-1]}\nDevice Minor: \t {gpu.minor}\n"
        "GPU Excluded:\t No\n"
    )


def write_devices(root: Path, files: tuple[DeviceFile, ...], *, real: bool) -> None:
    """Write device files below `root`: character devices, which needs root, or empty files in their places."""
    for file in files:
        path = root / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if real:
            os.mknod(path, stat.S_IFCHR | file.mode, os.makedev(file.major, file.minor))
            os.chown(path, 0, file.gid)
        else:
            path.touch()
        path.chmod(file.mode)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _link(link: Path, target: Path) -> None:
    """Make a relative link, so that the tree can be moved and mounted elsewhere."""
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent))
