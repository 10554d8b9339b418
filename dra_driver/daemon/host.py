# SPDX-License-Identifier: Apache-2.0
"""How does `dra-driver doctor` read a node's host? All paths lie below a root, and symbolic links never lead out of it.

It changes nothing, and needs no running driver. `dra_driver.doctor` judges what is found here.
"""

import json
import os
import stat
import tomllib
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatch
from itertools import chain, islice
from pathlib import Path

from msgspec.structs import replace

from dra_driver.backends.nvidia.hardware.tree import Tree
from dra_driver.config.settings import KubeletSettings, Settings
from dra_driver.daemon.kubelet_files import kubelet_config, kubelets
from dra_driver.kubelet.container_runtime import runtime_at
from dra_driver.kubelet.foreign import foreign_plugins
from dra_driver.kubelet.pod_resources import allocatable
from dra_driver.model.host import (
    CdiOnHost,
    KubeletConfig,
    KubeletOnHost,
    Place,
    PlaceKind,
    RuntimeAnswer,
    RuntimeOnHost,
    Space,
)
from dra_driver.model.state import Unknown
from dra_driver.node.files import content_of
from dra_driver.node.foreign_memory import FILE_NAME, ForeignMemory
from dra_driver.node.leftovers import NodeFiles
from dra_driver.node.peers import Peers

RUNTIME_SOCKETS = (
    "/run/containerd/containerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
)
RUNTIME_FILES = (
    "/etc/containerd/config.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/etc/k0s/containerd.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
    "/etc/crio/crio.conf",
    "/etc/docker/daemon.json",
)
RUNTIME_FOLDERS = ("/etc/crio/crio.conf.d",)
CDI_FOLDER = "/etc/cdi"
MOST_CDI_FILES, LARGEST_CDI_FILE = 2000, 4 * 1024**2
LARGEST_CONFIG = 1024**2
_MOST_FILES, _MOST_TEXT = 64, 4 * 2**20
"""Of the configuration of runtimes, in files and characters: a node may be hostile."""


class Host:
    """The host whose / this process sees at `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._tree = Tree(root)

    @property
    def is_this_machine(self) -> bool:
        """Whether the root is the / of this process."""
        return os.path.realpath(self.root) == "/"

    def outside(self, path: Path) -> Path:
        """Return where this process finds a path of the host."""
        return self._tree.place(str(path))

    def shown(self, path: Path | str) -> str:
        """Return the host's path of what this process finds at `path`; another text as it is, with such paths in it."""
        root = str(self.root).rstrip("/")
        return str(path).replace(f"{root}/", "/") if root else str(path)

    def place(self, path: str) -> Place:
        """Return what is at a path of the host."""
        try:
            mode = self.outside(Path(path)).stat().st_mode
        except (FileNotFoundError, NotADirectoryError, ValueError):
            # ValueError: no file can have this path, as one with a NUL.
            return Place(path, PlaceKind.MISSING)
        except OSError as error:
            return Place(path, PlaceKind.UNREADABLE, f"cannot look at {path}: {error.strerror}")
        kinds = (
            (stat.S_ISDIR, PlaceKind.FOLDER),
            (stat.S_ISREG, PlaceKind.FILE),
            (stat.S_ISSOCK, PlaceKind.SOCKET),
        )
        return Place(path, next((kind for test, kind in kinds if test(mode)), PlaceKind.OTHER))

    def is_closed(self, path: str) -> bool:
        """Return whether this user may not look at a path of the host, or not into the folder there."""
        kind = self.place(path).kind
        if kind is PlaceKind.FOLDER:
            return not os.access(self.outside(Path(path)), os.R_OK | os.X_OK)
        return kind is PlaceKind.UNREADABLE

    def settings(self, settings: Settings) -> Settings:
        """Return the settings with the paths at which this process finds the node's files."""
        kubelet = settings.kubelet
        return replace(
            settings,
            node=replace(settings.node, boot_id_file=self.outside(settings.node.boot_id_file)),
            kubelet=KubeletSettings(
                plugins_dir=self.outside(kubelet.plugins_dir),
                registry_dir=self.outside(kubelet.registry_dir),
                pod_resources_socket=self.outside(kubelet.pod_resources_socket),
                pod_uid=kubelet.pod_uid,
            ),
            cdi_dir=self.outside(settings.cdi_dir),
            state_dir=self.outside(settings.state_dir),
            cgroup_root=self.outside(settings.cgroup_root),
        )

    def runtime(self, cdi_dir: str, version: str = "") -> RuntimeOnHost:
        """Read the sockets and the configuration of the container runtimes."""
        files: dict[str, str] = {}
        unreadable: list[str] = []
        waiting = [*RUNTIME_FILES, *chain.from_iterable(map(self._in, RUNTIME_FOLDERS))]
        for number, path in enumerate(waiting):  # it grows by what a file imports
            if len(files) == _MOST_FILES or sum(map(len, files.values())) > _MOST_TEXT:
                # Each folder is named: its files may be of another runtime than the first one.
                rest = (one for one in waiting[number:] if one not in files)
                there = (one for one in rest if self.place(one).kind is not PlaceKind.MISSING)
                folders = dict.fromkeys(str(Path(one).parent) for one in there)
                why = "the configuration is too large, and files of this folder were not read"
                unreadable += [f"{one}: {why}" for one in folders]
                break
            if path in files or self.place(path).kind is PlaceKind.MISSING:
                continue
            text = self._text(path)
            if isinstance(text, Unknown):
                unreadable.append(f"{path}: {text.reason}")
                continue
            files[path] = text
            waiting += islice(self._imports(path, text), _MOST_FILES)
        sockets = {one: self.place(one).kind for one in RUNTIME_SOCKETS}
        open_ones = [one for one, kind in sockets.items() if kind is PlaceKind.SOCKET]
        hidden = [one for one, kind in sockets.items() if kind is PlaceKind.UNREADABLE]
        unreadable += [f"{one}: this user may not look whether it is there" for one in hidden]
        endpoint = self.kubelet().endpoint
        folder = cdi_dir.rstrip("/")
        return RuntimeOnHost(
            sockets=tuple(open_ones),
            endpoint=endpoint,
            files=files,
            unreadable=tuple(unreadable),
            cdi_dir=folder,
            cdi_aliases=tuple(self._aliases(folder)),
            version=version,
            answers=dict(self._answers({endpoint.removeprefix("unix://"), *open_ones} - {""})),
        )

    def _answers(self, sockets: Collection[str]) -> Iterator[tuple[str, RuntimeAnswer]]:
        """Ask the runtimes. One that does not answer, or may not be asked by this user, is judged by its files."""
        for socket in sorted(sockets):
            if self.place(socket).kind is PlaceKind.SOCKET:
                said = runtime_at(self.outside(Path(socket)))
                if isinstance(said, RuntimeAnswer):
                    yield socket, said

    def kubelet(self) -> KubeletConfig:
        """Return how the kubelet is configured."""
        return kubelet_config(self._tree, self._read)

    def runs_kubelet(self) -> bool:
        """Return whether a kubelet runs on this host."""
        return bool(kubelets(self._tree))

    def cdi(self, cdi_dir: str) -> CdiOnHost:
        """Look into the folders of CDI files."""
        folders = tuple(map(self._folder, dict.fromkeys((cdi_dir, CDI_FOLDER))))
        broken: dict[str, str] = {}
        closed = []
        for folder in folders:
            for path in self._in(folder.path)[:MOST_CDI_FILES]:
                if not path.endswith(".json"):
                    continue
                try:
                    why = self._cdi_mistake(path)
                except PermissionError:
                    closed.append(path)
                    continue
                if why:
                    broken[path] = why
        return CdiOnHost(folders, broken, tuple(closed))

    def _folder(self, path: str) -> Place:
        """Return what is at a path; a folder that this user may not look into is unreadable."""
        found = self.place(path)
        if found.kind is PlaceKind.FOLDER and self.is_closed(path):
            return Place(path, PlaceKind.UNREADABLE, f"this user may not look into {path}")
        return found

    def processes(self, name: str) -> tuple[str, ...]:
        """Return the numbers of the host's processes with this name."""
        numbers = filter(str.isdigit, self._tree.names("/proc"))
        return tuple(one for one in numbers if self._tree.text(f"/proc/{one}/comm").strip() == name)

    def space(self, path: str) -> Space:
        """Return the space in the file system of a folder. Raises OSError."""
        found = os.statvfs(self.outside(Path(path)))
        return Space(
            path,
            free=found.f_bavail * found.f_frsize,
            size=found.f_blocks * found.f_frsize,
            free_files=found.f_favail if found.f_files else None,
            read_only=bool(found.f_flag & os.ST_RDONLY),
        )

    def _in(self, folder: str) -> list[str]:
        return [f"{folder}/{name}" for name in self._tree.names(folder)]

    def _text(self, path: str) -> str | Unknown:
        try:
            found = content_of(self.outside(Path(path)), most=LARGEST_CONFIG)
        except PermissionError:
            return Unknown("this user may not read it")
        except OSError as error:
            return Unknown(f"it cannot be read: {error.strerror}")
        if found is None:
            return Unknown("it is no regular file")
        return found.decode("utf-8", "replace")

    def _read(self, path: str) -> str | Unknown:
        """Return the text of a file: "" if there is none, or why it cannot be read."""
        return "" if self.place(path).kind is PlaceKind.MISSING else self._text(path)

    def _imports(self, path: str, text: str) -> Iterator[str]:
        """Yield the files that a configuration of containerd imports; a pattern is relative to its folder."""
        try:
            named = tomllib.loads(text).get("imports")
        except (tomllib.TOMLDecodeError, RecursionError):
            return
        for pattern in named if isinstance(named, list) else ():
            if isinstance(pattern, str):
                whole = os.path.normpath(Path(path).parent / pattern)
                folder = str(Path(whole).parent)
                yield from (one for one in self._in(folder) if fnmatch(one, whole))

    def _aliases(self, folder: str) -> Iterator[str]:
        """Yield other names of the folder: /var/run is usually a link to /run."""
        for before, after in (("/var/run/", "/run/"), ("/run/", "/var/run/")):
            if folder.startswith(before):
                other = after + folder.removeprefix(before)
                if self._tree.resolve(other) == self._tree.resolve(folder):
                    yield other

    def _cdi_mistake(self, path: str) -> str:
        """Return why a CDI file is none; empty if it is a JSON object with a kind. Raises PermissionError."""
        try:
            text = content_of(self.outside(Path(path)), most=LARGEST_CDI_FILE)
        except PermissionError:
            raise
        except OSError as error:
            return f"it cannot be read: {error.strerror}"
        try:
            found = json.loads(text or b"")
        except (ValueError, RecursionError):
            return "it is no JSON"
        is_spec = isinstance(found, Mapping) and isinstance(found.get("kind"), str)
        return "" if is_spec else "it is no CDI specification: it has no kind"


def kubelet_of(settings: Settings, files: NodeFiles) -> KubeletOnHost:
    """Ask the kubelet, and look who listens on the driver's registration sockets. Raises DriverError."""
    kubelet = settings.kubelet
    socket = kubelet.pod_resources_socket
    sockets = files.registrations()
    closed = tuple(filter(_is_closed, (socket, *sockets)))
    resources: Mapping[str, int] | Unknown = Unknown(f"this user may not connect to {socket}")
    if socket not in closed:
        resources = allocatable(socket)
    peers = Peers(files.peer_dir)
    return KubeletOnHost(
        resources=None if isinstance(resources, Unknown) else resources,
        unanswered=resources.reason if isinstance(resources, Unknown) else "",
        pod_resources=str(socket),
        closed=tuple(map(str, closed)),
        listening=tuple(str(path) for path, who in sockets.items() if who),
        deaf=tuple(str(path) for path, who in sockets.items() if not who and path not in closed),
        foreign=tuple(
            map(
                str,
                foreign_plugins(kubelet.registry_dir, settings.node.driver, is_ours=peers.serves),
            )
        ),
    )


def _is_closed(socket: Path) -> bool:
    """Return whether this user may not connect to a socket."""
    try:
        socket.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return not os.access(socket, os.W_OK)


def own_resources(host: Host, settings: Settings) -> tuple[str, ...]:
    """Return the extended resources that this driver itself serves; `settings` have the paths of the host."""
    return ForeignMemory(host.outside(settings.state_dir / FILE_NAME), boot_id="").read()[1]
