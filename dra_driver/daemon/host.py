# SPDX-License-Identifier: Apache-2.0
"""How does `dra-driver doctor` read a node's host? All paths lie below a root, and symbolic links never lead out of it.

It changes nothing, and needs no running driver. `dra_driver.doctor` judges what is found here.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from io import BytesIO
from itertools import chain, islice
from pathlib import Path

from dra_driver.backends.nvidia.hardware.tree import Tree
from dra_driver.config.settings import KubeletSettings, Settings
from dra_driver.daemon.dependencies import STATE_FILE
from dra_driver.errors import DriverError
from dra_driver.kubelet.container_runtime import runtime_at
from dra_driver.kubelet.foreign import foreign_plugins
from dra_driver.kubelet.pod_resources import allocatable
from dra_driver.model.host import (
    CdiOnHost,
    KubeletOnHost,
    Place,
    PlaceKind,
    RuntimeAnswer,
    RuntimeOnHost,
    Space,
)
from dra_driver.model.state import PreparedClaim, Unknown
from dra_driver.model.yaml_documents import BadDocument, documents
from dra_driver.node.files import content_of
from dra_driver.node.foreign_memory import FILE_NAME, ForeignMemory
from dra_driver.node.leftovers import NodeFiles
from dra_driver.node.peers import Peers
from dra_driver.node.state import read_claims

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
KUBELET_FILES = ("/var/lib/kubelet/config.yaml", "/var/lib/kubelet/kubeadm-flags.env")
CDI_FOLDER = "/etc/cdi"
MOST_CDI_FILES, LARGEST_CDI_FILE = 2000, 4 * 1024**2
LARGEST_CONFIG = 1024**2
_ENDPOINT = re.compile(
    r"^\s*containerRuntimeEndpoint:\s*[\"']?([^\s\"']+)|--container-runtime-endpoint[= ]([^\s\"']+)",
    re.MULTILINE,
)
_GATES = re.compile(r"--feature-gates[= ]([^\s\"']+)")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_MOST_FILES, _MOST_TEXT = 64, 4 * 2**20
"""Of the configuration of runtimes, in files and characters: a node may be hostile."""


class Host:
    """The host whose / this process sees at `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._tree = Tree(root)

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
        except (FileNotFoundError, NotADirectoryError):
            return Place(path, PlaceKind.MISSING)
        except OSError as error:
            return Place(path, PlaceKind.UNREADABLE, f"cannot look at {path}: {error.strerror}")
        kinds = (
            (stat.S_ISDIR, PlaceKind.FOLDER),
            (stat.S_ISREG, PlaceKind.FILE),
            (stat.S_ISSOCK, PlaceKind.SOCKET),
        )
        return Place(path, next((kind for test, kind in kinds if test(mode)), PlaceKind.OTHER))

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
        for path in waiting:  # it grows by what a file imports
            if len(files) == _MOST_FILES or sum(map(len, files.values())) > _MOST_TEXT:
                unreadable.append(f"{path} and what follows: the configuration is too large")
                break
            if path in files or self.place(path).kind is PlaceKind.MISSING:
                continue
            text = self._text(path)
            if text is None:
                unreadable.append(f"{path}: it exists and cannot be read by this user")
                continue
            files[path] = text
            waiting += islice(self._imports(path, text), _MOST_FILES)
        there = [one for one in RUNTIME_SOCKETS if self.place(one).kind is PlaceKind.SOCKET]
        endpoint = self._endpoint()
        folder = cdi_dir.rstrip("/")
        return RuntimeOnHost(
            sockets=tuple(there),
            endpoint=endpoint,
            files=files,
            unreadable=tuple(unreadable),
            cdi_dir=folder,
            cdi_aliases=tuple(self._aliases(folder)),
            version=version,
            answers=dict(self._answers({endpoint.removeprefix("unix://"), *there} - {""})),
        )

    def _answers(self, sockets: Collection[str]) -> Iterator[tuple[str, RuntimeAnswer]]:
        """Ask the runtimes. One that does not answer, or may not be asked by this user, is judged by its files."""
        for socket in sorted(sockets):
            if self.place(socket).kind is PlaceKind.SOCKET:
                said = runtime_at(self.outside(Path(socket)))
                if isinstance(said, RuntimeAnswer):
                    yield socket, said

    def kubelet_gates(self) -> Mapping[str, bool]:
        """Return the feature gates that the kubelet's files set: its configuration, and kubeadm's arguments, which win."""
        file, flags = KUBELET_FILES
        named = _GATES.findall(self._text(flags) or "")
        words = chain.from_iterable(text.split(",") for text in named)
        pairs = (one.partition("=") for one in words)
        return {
            **self._gates_of(file),
            **{
                name: _BOOLEANS[value.lower()]
                for name, _, value in pairs
                if value.lower() in _BOOLEANS
            },
        }

    def _gates_of(self, file: str) -> Mapping[str, bool]:
        try:
            content = BytesIO((self._text(file) or "").encode())
            found = next((one.content for one in documents(content)), None)
        except BadDocument:
            return {}
        gates = found.get("featureGates") if isinstance(found, Mapping) else None
        return {
            str(name): is_on
            for name, is_on in (gates.items() if isinstance(gates, Mapping) else ())
            if isinstance(is_on, bool)
        }

    def cdi(self, cdi_dir: str) -> CdiOnHost:
        """Look into the folders of CDI files."""
        folders = tuple(map(self.place, dict.fromkeys((cdi_dir, CDI_FOLDER))))
        broken: dict[str, str] = {}
        for folder in folders:
            for path in self._in(folder.path)[:MOST_CDI_FILES]:
                if path.endswith(".json") and (why := self._cdi_mistake(path)):
                    broken[path] = why
        return CdiOnHost(folders, broken)

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

    def _text(self, path: str) -> str | None:
        try:
            found = content_of(self.outside(Path(path)), most=LARGEST_CONFIG)
        except OSError:
            return None
        return None if found is None else found.decode("utf-8", "replace")

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

    def _endpoint(self) -> str:
        for path in KUBELET_FILES:
            if found := _ENDPOINT.search(self._tree.text(path)):
                return (found[1] or found[2]).removeprefix("unix://")
        return ""

    def _aliases(self, folder: str) -> Iterator[str]:
        """Yield other names of the folder: /var/run is usually a link to /run."""
        for before, after in (("/var/run/", "/run/"), ("/run/", "/var/run/")):
            if folder.startswith(before):
                other = after + folder.removeprefix(before)
                if self._tree.resolve(other) == self._tree.resolve(folder):
                    yield other

    def _cdi_mistake(self, path: str) -> str:
        """Return why a CDI file is none; empty if it is a JSON object with a kind."""
        try:
            text = content_of(self.outside(Path(path)), most=LARGEST_CDI_FILE)
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
    sockets = files.registrations()
    resources = allocatable(kubelet.pod_resources_socket)
    peers = Peers(files.peer_dir)
    return KubeletOnHost(
        resources=None if isinstance(resources, Unknown) else resources,
        unanswered=resources.reason if isinstance(resources, Unknown) else "",
        pod_resources=str(kubelet.pod_resources_socket),
        listening=tuple(str(path) for path, who in sockets.items() if who),
        deaf=tuple(str(path) for path, who in sockets.items() if not who),
        foreign=tuple(
            map(
                str,
                foreign_plugins(kubelet.registry_dir, settings.node.driver, is_ours=peers.serves),
            )
        ),
    )


def claims_of(settings: Settings) -> tuple[PreparedClaim, ...] | str:
    """Return the claims in the state file, or why it cannot be read."""
    try:
        return read_claims(settings.state_dir / STATE_FILE)
    except DriverError as error:
        return str(error)


def own_resources(settings: Settings) -> tuple[str, ...]:
    """Return the extended resources that this driver itself serves."""
    return ForeignMemory(settings.state_dir / FILE_NAME, boot_id="").read()[1]
