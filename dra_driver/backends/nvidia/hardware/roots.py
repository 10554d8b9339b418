# SPDX-License-Identifier: Apache-2.0
"""Where is the driver installation of this node, and is it whole?

The driver root is the folder that is / for the driver's files: / itself on most nodes, another folder if a container installed the
driver. An admin can name it. Otherwise the places that installers use are looked at, in their order; one with libraries of the loaded
kernel module's version comes first. An installation has two halves, the kernel module and the libraries; they are often there at
different times, and an update changes them one after the other.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from dra_driver.backends.nvidia.hardware.library_cache import cached_libraries, read_elf
from dra_driver.backends.nvidia.hardware.tree import Tree

ROOTS = ("/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia")
"""The host, NVIDIA's GPU operator, GKE on Container-Optimized OS. Talos and Bottlerocket have folders of their own below /."""
UNEXPECTED_ROOTS = ("/opt/nvidia", "/usr/local/nvidia")
"""Where hand-made installations were seen."""

LIBRARY_FOLDERS = (
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/usr/lib/nvidia/tesla",  # Bottlerocket
    "/usr/local/glibc/usr/lib",  # Talos, which has musl itself
    "/usr/local/glibc/lib",
    "/usr/local/lib",
)
CACHES = ("/etc/ld.so.cache", "/usr/local/glibc/etc/ld.so.cache")

_LOADED_VERSION = re.compile(r"Kernel Module\b.*?\s(\d+(?:\.\d+)+)\s")
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_LIBRARY = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.(\d+(?:\.\d+)+)")
_LIBRARY_NAMES = ("libcuda.so", "libnvidia-ml.so")
_WANTED = "libnvidia-ml.so.<version> or libcuda.so.<version>"


class Root(Struct, frozen=True):
    """A driver root. `folders` have the driver's main libraries of `version`; both are empty if it has none."""

    path: str
    tree: Tree
    version: str = ""
    folders: tuple[str, ...] = ()
    machine: str = ""


def loaded_version(host: Tree) -> str:
    """Return the version of the kernel module that is loaded; empty if none is."""
    text = host.text("/sys/module/nvidia/version").strip()
    if _VERSION.fullmatch(text):
        return text
    found = _LOADED_VERSION.search(host.text("/proc/driver/nvidia/version"))
    return found.group(1) if found else ""


def find_root(host: Tree, configured: str, loaded: str) -> tuple[Root, tuple[str, ...]]:
    """Return the driver root, and sentences about what is wrong with it. `configured` is the admin's word for it, `loaded` the
    version of the kernel module.
    """
    chosen = configured or ""
    roots = {path: look(host, path, loaded) for path in (chosen,) if path} or {
        path: look(host, path, loaded) for path in (*ROOTS, *UNEXPECTED_ROOTS)
    }
    whole = [root for root in roots.values() if root.version]
    same = [root for root in whole if root.version == loaded]
    root = next(iter(same or whole or roots.values()))
    return root, tuple(_problems(host, root, chosen, loaded, tuple(roots)))


def look(host: Tree, path: str, loaded: str) -> Root:
    """Return what a folder has of the driver. If it has libraries of several versions, those of the loaded module count."""
    tree = host.below(path)
    found: dict[str, dict[str, str]] = {}
    for folder in _folders(tree):
        for version, machine in _versions(tree, folder).items():
            found.setdefault(version, {}).setdefault(folder, machine)
    if not found:
        return Root(path, tree)
    version = loaded if loaded in found else next(iter(found))
    machine = next(iter(found[version].values()))
    return Root(path, tree, version, tuple(found[version]), machine)


def _folders(tree: Tree) -> Sequence[str]:
    """Return the folders to look into, without links: those that the linker's cache names first."""
    cached = (
        path.rpartition("/")[0]
        for cache in CACHES
        for name, path in cached_libraries(tree.read(cache))
        if name.startswith(_LIBRARY_NAMES)
    )
    resolved = (tree.resolve(folder) for folder in (*cached, *LIBRARY_FOLDERS))
    return [folder for folder in dict.fromkeys(resolved) if folder]


def _versions(tree: Tree, folder: str) -> Mapping[str, str]:
    """Return the machine by version of the driver's main libraries in a folder."""
    found = {}
    for name in tree.names(folder):
        if match := _LIBRARY.fullmatch(name):
            resolved = tree.resolve(f"{folder}/{name}")
            elf = read_elf(tree.outside(resolved)) if resolved else None
            if elf is not None:
                found[match.group(1)] = elf.machine
    return found


def _problems(
    host: Tree, root: Root, configured: str, loaded: str, looked: Sequence[str]
) -> Iterator[str]:
    where = f"the driver root {configured}" if configured else ", ".join(looked)
    if not root.version:
        yield _without_libraries(host, where, configured, loaded)
    elif not loaded:
        yield (
            f"{root.path} has the libraries of NVIDIA driver {root.version}, but the kernel module nvidia is not loaded: "
            "wait until the installation of the driver has ended, or load it (modprobe nvidia) and read the node's kernel log"
        )
    elif root.version != loaded:
        yield (
            f"the kernel module nvidia {loaded} is loaded, but {root.path} has the libraries of NVIDIA driver {root.version}: "
            "load the module of the same version (reboot the node, or unload nvidia and load it again), "
            "or install the libraries of the module's version"
        )
    if root.version and root.path in UNEXPECTED_ROOTS and not configured:
        yield (
            f"NVIDIA driver {root.version} was found in {root.path}, where no installer that this driver knows puts it; it is used. "
            f"Set the option driverRoot to {root.path} if that is right"
        )


def _without_libraries(host: Tree, where: str, configured: str, loaded: str) -> str:
    elsewhere = (look(host, path, loaded) for path in (*ROOTS, *UNEXPECTED_ROOTS) if configured)
    other = next((root for root in elsewhere if root.version), None)
    if other is not None:
        return (
            f"{where}, which the option driverRoot names, has no {_WANTED}; {other.path} has that of {other.version}: "
            f"set driverRoot to {other.path}, or leave the option out"
        )
    if loaded:
        return (
            f"the kernel module nvidia {loaded} is loaded, but no {_WANTED} was found in {where}: "
            "install the driver's libraries of this version, or set the option driverRoot to the folder that has them"
        )
    return (
        f"no NVIDIA driver was found: its kernel module is not loaded, and no {_WANTED} is in {where}: "
        "install the driver, or set the option driverRoot to the folder that has it"
    )
