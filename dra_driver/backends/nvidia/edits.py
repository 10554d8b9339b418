# SPDX-License-Identifier: Apache-2.0
"""What does a container get for a GPU or a MIG device? From facts to container edits; nothing is read here.

With nvidia-cdi-hook on the host the edits are those of NVIDIA's container toolkit: each library at its own path, and hooks that make
links, update the linker's cache and keep the driver from making device files. Without it the libraries are mounted under each name that
a program may open, into the folders where the linker of glibc looks without a cache. So the container needs no hook, no cache and no
LD_LIBRARY_PATH.

A device file gets its numbers from the facts. So it need not exist on the host when the container starts, and the container's user may
open it whatever the mode of the host's file is: runc and crun make it anew for all users. For runtimes that keep the mode the
container can join the file's group (`groups`); this needs a runtime that knows CDI 0.7, and others refuse the whole CDI file.
Source: NVIDIA container toolkit, pkg/nvcdi and internal/discover.
"""

from collections.abc import Callable, Collection, Iterator

from dra_driver.backends.nvidia.capabilities import CAPABILITIES, GRAPHICS, wanted
from dra_driver.backends.nvidia.facts import DeviceFile, Gpu, Installation, MigDevice
from dra_driver.backends.nvidia.library_links import links_of
from dra_driver.backends.sysfs import pci_address
from dra_driver.errors import Temporary
from dra_driver.model.cdi import ContainerEdits, DeviceNode, Hook, Mount
from dra_driver.planning.edits import HOOKS

DECLARES = frozenset({HOOKS})
"""What the devices must declare, so that the driver accepts their edits."""

_CONTROL_FILES = (
    "/dev/nvidia-modeset",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-uvm",
    "/dev/nvidiactl",
)
_FILE_OPTIONS = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET_OPTIONS = ("nosuid", "nodev", "rbind", "rprivate", "noexec")
_WORLD, _GROUP = 0o006, 0o060


def gpu_edits(
    installation: Installation,
    gpu: Gpu,
    *,
    capabilities: Collection[str] = CAPABILITIES,
    groups: bool = False,
) -> ContainerEdits:
    """Return the edits for a whole GPU. Raises Temporary if its device file is not known yet."""
    common = _common(installation, capabilities)
    own = _nodes(installation, [_gpu_file(installation, gpu)], groups=groups)
    return common.merged(own).merged(_drm(installation, gpu, capabilities, groups=groups))


def mig_edits(
    installation: Installation,
    gpu: Gpu,
    mig: MigDevice,
    *,
    graphics: bool = False,
    capabilities: Collection[str] = CAPABILITIES,
    groups: bool = False,
) -> ContainerEdits:
    """Return the edits for a MIG device of a GPU. With `graphics` it has the DRM files of its GPU. Raises Temporary if its device files are not known yet."""
    instance = f"gpu{gpu.minor}/gi{mig.gpu_instance}"
    names = (f"{instance}/access", f"{instance}/ci{mig.compute_instance}/access")
    files = [
        _gpu_file(installation, gpu),
        *(_capability(installation, mig, name) for name in names),
    ]
    common = _common(installation, capabilities)
    edits = common.merged(_nodes(installation, files, groups=groups))
    return edits.merged(_drm(installation, gpu, capabilities, groups=groups)) if graphics else edits


def _drm(
    installation: Installation, gpu: Gpu, capabilities: Collection[str], *, groups: bool
) -> ContainerEdits:
    """The DRM files of a GPU, with their links, if containers get graphics."""
    if not GRAPHICS & set(capabilities):
        return ContainerEdits()
    present = {file.path: file for file in installation.device_files}
    files = [present[path] for name in gpu.drm if (path := f"/dev/dri/{name}") in present]
    links = list(_drm_links(installation, gpu))
    return _nodes(installation, files, groups=groups).merged(_hooks(installation, links))


def edits_for(
    capabilities: Collection[str], *, groups: bool
) -> Callable[[Installation, Gpu, MigDevice | None, bool], ContainerEdits]:
    """Return the function that makes the edits of a GPU, or of a MIG device of it, as the admin wants them. No capabilities: all. The last
    argument of this function is whether the MIG device has graphics.
    """
    wanted_ones = frozenset(capabilities) or CAPABILITIES

    def edits(
        installation: Installation,
        gpu: Gpu,
        mig: MigDevice | None,
        graphics: bool,  # noqa: FBT001  of a callable without names
    ) -> ContainerEdits:
        if mig is None:
            return gpu_edits(installation, gpu, capabilities=wanted_ones, groups=groups)
        return mig_edits(
            installation, gpu, mig, graphics=graphics, capabilities=wanted_ones, groups=groups
        )

    return edits


def _common(installation: Installation, capabilities: Collection[str]) -> ContainerEdits:
    """What each container with any device of this node gets."""
    if not installation.libraries:
        raise Temporary(
            "no container can use a GPU now: the driver installation of this node has no libraries; "
            + " ".join(installation.problems)
        )
    present = {file.path: file for file in installation.device_files}
    control = [present[path] for path in _CONTROL_FILES if path in present]
    libraries = [path for path in installation.libraries if wanted(path, capabilities)]
    env = {"NVIDIA_VISIBLE_DEVICES": "void"}
    if installation.hook:
        env["NVIDIA_CTK_LIBCUDA_DIR"] = ":".join(_folders(installation.libraries, "libcuda.so."))
        mounts = [_mount(installation, path, path) for path in libraries]
        hooks = _driver_hooks(installation, libraries, capabilities)
    else:
        mounts = [
            _mount(installation, path, target)
            for path in libraries
            for target in _linker_paths(installation, path)
        ]
        hooks = ContainerEdits()
    mounts += _other_mounts(installation, capabilities)
    unique = {mount.container_path: mount for mount in reversed(mounts)}
    edits = ContainerEdits(env=env, mounts=tuple(unique[path] for path in sorted(unique)))
    return _nodes(installation, control).merged(edits).merged(hooks)


def _other_mounts(installation: Installation, capabilities: Collection[str]) -> list[Mount]:
    binaries = [path for path in installation.binaries if wanted(path, capabilities)]
    files = (*binaries, *installation.firmware)
    mounts = [_mount(installation, installation.sources.get(path, path), path) for path in files]
    if GRAPHICS & set(capabilities):
        mounts += [_mount(installation, *pair) for pair in installation.configs.items()]
    root = installation.driver_root.rstrip("/")
    return mounts + [
        Mount(path, path.removeprefix(root), _SOCKET_OPTIONS) for path in installation.sockets
    ]


def _mount(installation: Installation, source: str, target: str) -> Mount:
    """Mount a file of the driver root."""
    return Mount(f"{installation.driver_root.rstrip('/')}{source}", target, _FILE_OPTIONS)


def _linker_paths(installation: Installation, path: str) -> Iterator[str]:
    """Yield where a library must be, so that it is found without a cache. Modules of an X server have a folder of their own."""
    folder, _, name = path.rpartition("/")
    names = (name, *(link for link, _ in links_of(installation, path)))
    if "/xorg/" in path:
        yield from (f"{folder}/{each}" for each in names)
        return
    inner = "vdpau/" if folder.endswith("/vdpau") else ""
    for default in (f"/usr/lib/{installation.machine}-linux-gnu", "/usr/lib64"):
        yield from (f"{default}/{inner}{each}" for each in names)


def _driver_hooks(
    installation: Installation, libraries: list[str], capabilities: Collection[str]
) -> ContainerEdits:
    links: dict[str, str] = {}
    for path in libraries:
        folder = path.rpartition("/")[0]
        for name, target in links_of(installation, path):
            links.setdefault(f"{folder}/{name}", f"{target}::{folder}/{name}")
    edits = _hooks(installation, list(links.values()))
    known = installation.hook_commands
    if "enable-cuda-compat" in known and "compute" in capabilities:
        version = f"--host-driver-version={installation.library_version}"
        edits = edits.merged(_hook(installation, "enable-cuda-compat", version))
    folders = [word for folder in _folders(libraries, "lib") for word in ("--folder", folder)]
    edits = edits.merged(_hook(installation, "update-ldcache", *folders))
    if "disable-device-node-modification" in known:
        edits = edits.merged(_hook(installation, "disable-device-node-modification"))
    return edits


def _hooks(installation: Installation, links: list[str]) -> ContainerEdits:
    """Return the hook that makes links; nothing if there is no hook or nothing to link."""
    if not installation.hook or not links:
        return ContainerEdits()
    return _hook(
        installation, "create-symlinks", *(word for link in links for word in ("--link", link))
    )


def _hook(installation: Installation, command: str, *arguments: str) -> ContainerEdits:
    hook = Hook(
        "createContainer",
        installation.hook,
        ("nvidia-cdi-hook", command, *arguments),
        ("NVIDIA_CTK_DEBUG=false",),
    )
    return ContainerEdits(hooks=(hook,))


def _folders(libraries: Collection[str], prefix: str) -> list[str]:
    """Return the folders of libraries whose names start with a prefix, without those of an X server's modules."""
    parts = (path.rpartition("/") for path in libraries if "/xorg/" not in path)
    return sorted({folder for folder, _, name in parts if name.startswith(prefix)})


def _drm_links(installation: Installation, gpu: Gpu) -> Iterator[str]:
    for path, target in sorted(installation.drm_links.items()):
        of_gpu = path.startswith(f"/dev/dri/by-path/pci-{pci_address(gpu.pci_bus_id)}-")
        if of_gpu and target.rpartition("/")[2] in gpu.drm:
            yield f"{target}::{path}"


def _nodes(
    installation: Installation, files: list[DeviceFile], *, groups: bool = False
) -> ContainerEdits:
    root = installation.dev_root.rstrip("/")
    nodes = tuple(
        DeviceNode(
            file.path,
            major=file.major,
            minor=file.minor,
            host_path=root + file.path if root and file.path.startswith("/dev/nvidia") else "",
        )
        for file in files
    )
    gids = {file.gid for file in files if groups and _needs_group(file)}
    return ContainerEdits(device_nodes=nodes, additional_gids=tuple(sorted(gids)))


def _needs_group(file: DeviceFile) -> bool:
    return file.gid != 0 and file.mode & _WORLD != _WORLD and file.mode & _GROUP == _GROUP


def _gpu_file(installation: Installation, gpu: Gpu) -> DeviceFile:
    path = f"/dev/nvidia{gpu.minor}"
    for file in installation.device_files:
        if file.path == path:
            return file
    if gpu.minor is None or installation.gpu_major is None:
        raise Temporary(
            f"GPU {gpu.uuid} at {gpu.pci_bus_id} cannot be given to a container: its device file is not known, because "
            f"{path if gpu.minor is not None else 'its minor number'} was not found and /proc/devices has no driver nvidia; "
            "the kernel module may be loading, and the driver tries again. If this stays so, run nvidia-smi on the node"
        )
    return DeviceFile(path=path, major=installation.gpu_major, minor=gpu.minor)


def _capability(installation: Installation, mig: MigDevice, name: str) -> DeviceFile:
    minor, major = installation.caps.get(name), installation.caps_major
    if minor is None or major is None:
        raise Temporary(
            f"MIG device {mig.uuid} cannot be given to a container: {name} was not found below "
            "/proc/driver/nvidia/capabilities, or nvidia-caps is missing in /proc/devices; the driver tries again. "
            "If this stays so, look with nvidia-smi mig -lgi whether the instance still exists"
        )
    path = f"/dev/nvidia-caps/nvidia-cap{minor}"
    for file in installation.device_files:
        if file.path == path:
            return file
    return DeviceFile(path=path, major=major, minor=minor, mode=0o444)
