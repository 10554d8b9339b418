# SPDX-License-Identifier: Apache-2.0
"""Which files of a driver root does a container need?

The choice is that of NVIDIA's container toolkit (pkg/nvcdi, internal/discover): the libraries with the driver's version in their names,
and what belongs to them under fixed names. A link is resolved inside the driver root.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from dra_driver.backends.nvidia.hardware.library_cache import read_elf
from dra_driver.backends.nvidia.hardware.roots import Root
from dra_driver.backends.nvidia.hardware.tree import Tree

_UNVERSIONED = re.compile(
    r"libnvidia-nvvm70\.so\.\d+|libnvidia-egl-(?:gbm|wayland2?|xcb|xlib)\.so\.\d+(?:\.\d+)+"
)
"""Libraries of the driver that have a version of their own."""

_OTHER_LINKS = {"libGLX_nvidia": ("libGLX_indirect.so.0",)}

_XORG_FOLDERS = ("drivers", "extensions", "updates/drivers", "updates/extensions")
_XORG_ROOTS = ("/usr/lib/xorg/modules", "/usr/lib64/xorg/modules", "/usr/X11R6/lib/modules")

_BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
)
BINARY_FOLDERS = ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/opt/bin", "/usr/local/bin")
SOCKETS = (
    "/run/nvidia-persistenced/socket",
    "/run/nvidia-fabricmanager/socket",
    "/tmp/nvidia-mps",  # noqa: S108 - where the MPS daemon has its sockets; it is only looked at
)
FIRMWARE_FOLDERS = ("/lib/firmware/updates", "/lib/firmware")
_CONFIG_FOLDERS = ("/etc", "/usr/local/share", "/usr/share")
_CONFIGS = (
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "egl/egl_external_platform.d/20_nvidia_xcb.json",
    "egl/egl_external_platform.d/20_nvidia_xlib.json",
    "nvidia/nvoptix.bin",
    "OpenCL/vendors/nvidia.icd",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
)
_VULKAN_CONFIGS = (
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_icd.{machine}.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
)


class DriverFiles(Struct, frozen=True):
    """What changes only when somebody installs something."""

    libraries: tuple[str, ...] = ()
    links: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    binaries: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    configs: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def driver_files(host: Tree, root: Root) -> DriverFiles:
    """Return the files of a driver root that has libraries. A file that is broken costs itself, and a sentence."""
    libraries, links, problems = _libraries(root)
    return DriverFiles(
        libraries=libraries,
        links=links,
        binaries=tuple(_first(root.tree, BINARY_FOLDERS, _BINARIES)),
        firmware=tuple(_firmware(host, root)),
        configs=dict(_configs(root)),
        problems=tuple(problems),
    )


def _libraries(
    root: Root,
) -> tuple[tuple[str, ...], Mapping[str, tuple[str, ...]], list[str]]:
    """Return the libraries, the names that link to them, and sentences about those that are broken."""
    tree = root.tree
    links: dict[str, tuple[str, ...]] = {}
    libraries, problems = [], []
    for path in dict.fromkeys(tree.resolve(path) for path in _candidates(root)):
        if not path or not tree.is_file(path):
            continue
        elf = read_elf(tree.outside(path))
        if elf is None:
            problems.append(
                f"{path} in the driver root {root.path} cannot be read as a 64-bit library, so containers do not get it: "
                "install the driver's package again"
            )
            continue
        status = tree.stat(path)
        if status and not status.st_mode & stat.S_IROTH:
            problems.append(
                f"{path} in the driver root {root.path} is not readable for all users, so a container that does not run as root "
                f"cannot load it: chmod o+r {path}"
            )
        libraries.append(path)
        if names := _link_names(tree, path, elf.soname):
            links[path] = names
    return tuple(sorted(libraries)), links, problems


def _candidates(root: Root) -> Iterator[str]:
    suffix = f".so.{root.version}"
    for folder in root.folders:
        for inner in (folder, f"{folder}/vdpau"):
            for name in root.tree.names(inner):
                if name.endswith(suffix) or _UNVERSIONED.fullmatch(name):
                    yield f"{inner}/{name}"
    xorg = [f"{folder}/nvidia/xorg" for folder in root.folders]
    for modules in (*(f"{folder}/xorg/modules" for folder in root.folders), *_XORG_ROOTS):
        xorg += [f"{modules}/{folder}" for folder in _XORG_FOLDERS]
    yield from _first(root.tree, xorg, ("nvidia_drv.so", f"libglxserver_nvidia{suffix}"))


def _link_names(tree: Tree, path: str, soname: str) -> tuple[str, ...]:
    """Return the names by which programs open a library, other than its own: the SONAME, and other links if the folder has them."""
    folder, _, name = path.rpartition("/")
    stem = name.partition(".so")[0]
    links = (f"{stem}.so", *_OTHER_LINKS.get(stem, ()))
    present = (link for link in links if tree.resolve(f"{folder}/{link}") == path)
    names = (soname, *present) if soname else tuple(present)
    return tuple(each for each in dict.fromkeys(names) if each != name)


def _first(tree: Tree, folders: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """Yield the first path of each name that is a file."""
    for name in names:
        found = (path for folder in folders if tree.is_file(path := f"{folder}/{name}"))
        yield from (path for path in (next(found, ""),) if path)


def _firmware(host: Tree, root: Root) -> Iterator[str]:
    """Yield the firmware that the kernel loads into a GPU, from the first folder that has it."""
    release = host.text("/proc/sys/kernel/osrelease").strip() or os.uname().release
    own = host.text("/sys/module/firmware_class/parameters/path").strip()
    if root.path != "/":
        own = own.removeprefix(root.path.rstrip("/"))
    folders = [own] if own.startswith("/") else []
    for folder in FIRMWARE_FOLDERS:
        folders += [f"{folder}/{release}", folder]
    for folder in folders:
        inside = f"{folder.rstrip('/')}/nvidia/{root.version}"
        names = [name for name in root.tree.names(inside) if re.fullmatch(r"gsp.*\.bin", name)]
        if names:
            yield from (f"{inside}/{name}" for name in names)
            return


def _configs(root: Root) -> Iterator[tuple[str, str]]:
    """Yield (path, path in the container) of configuration files. Those of Vulkan are at /etc in each container."""
    tree = root.tree
    for path in _first(tree, _CONFIG_FOLDERS, _CONFIGS):
        yield tree.resolve(path), path
    for name in (each.format(machine=root.machine) for each in _VULKAN_CONFIGS):
        for path in _first(tree, (*_CONFIG_FOLDERS, ""), (name,)):
            yield tree.resolve(path), f"/etc/{name}"


def sources(tree: Tree, paths: Sequence[str]) -> Mapping[str, str]:
    """Return where paths really are, if they are links or go through one."""
    resolved = {path: tree.resolve(path) for path in paths}
    return {path: source for path, source in resolved.items() if source and source != path}
