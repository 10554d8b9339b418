# SPDX-License-Identifier: Apache-2.0
"""The kubelet's checkpoint of device plugins: which pod has which units? Only this file names the UID of the pod.

The kubelet writes `kubelet_internal_checkpoint` into its folder of device plugins, as a temporary file that it renames. It writes the
file after it has given units to a container, before the container starts, and for each list of units that a plugin sends. It does not
write it when it takes units back: so the file may name pods that are gone, until something else is written. The format is the
same from 1.20 to 1.37 (k8s.io/kubernetes, pkg/kubelet/cm/devicemanager/checkpoint/checkpoint.go):

    {"Data": {"PodDeviceEntries": [{"PodUID", "ContainerName", "ResourceName", "DeviceIDs": {"<NUMA node>": [IDs]}, "AllocResp"}],
              "RegisteredDevices": {"<resource>": [IDs]}}, "Checksum": 1234}

The checksum is a hash of how Go prints the structure, so it is not checked here. A file that is not complete is no JSON.
"""

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Annotated

import msgspec

from dra_driver.kubelet.folder_watch import LOOK_SECONDS, FolderWatch
from dra_driver.model.ids import PodUid, ResourceName, UnitId
from dra_driver.model.plugin import KubeletCheckpoint, UnitsOfContainer
from dra_driver.model.printable import printable
from dra_driver.model.state import Unknown

FILE_NAME = "kubelet_internal_checkpoint"
MOST_BYTES = 4 * 1024 * 1024
"""A full node has less than 1 MB. The file is kept as objects that take eight times as much, twice, in a container that has 256 MiB."""
_SHOWN_CHARACTERS = 200


# A UUID or, of a static pod, 32 digits or what its manifest says. No cgroup can be looked for by another text, nor by a longer one than a name
# of a file can be: so nobody could ever find out that such a pod has ended.
_Uid = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][-A-Za-z0-9]{0,63}\Z")]


class _Entry(msgspec.Struct):
    PodUID: _Uid
    ContainerName: str
    ResourceName: str
    DeviceIDs: Mapping[str, Sequence[str] | None] | None = None


class _Data(msgspec.Struct):
    # Go writes an empty list as null.
    PodDeviceEntries: Sequence[_Entry] | None
    RegisteredDevices: Mapping[str, Sequence[str] | None] | None


class _File(msgspec.Struct):
    Data: _Data


_DECODER = msgspec.json.Decoder(_File)


NO_FILE = ""
"""The version of a file that is not there."""


def _version_of(status: os.stat_result) -> str:
    """What differs after each write, also for another process."""
    return f"{status.st_ino}-{status.st_size}-{status.st_ctime_ns}"


class CheckpointFile:
    """The checkpoint in the kubelet's folder of device plugins. Any thread may read; one thread waits for changes."""

    def __init__(self, folder: Path, *, look_seconds: float = LOOK_SECONDS) -> None:
        self.path = folder / FILE_NAME
        self._mutex = Lock()
        self._read: tuple[str, KubeletCheckpoint | Unknown] | None = None
        self._watch = FolderWatch(folder, FILE_NAME.__eq__, look_seconds=look_seconds)
        self._waited = self._version()

    def read(self) -> KubeletCheckpoint | Unknown:
        """The content, or why it is not known. A file that has not changed is not read again."""
        return self.versioned()[1]

    def versioned(self) -> tuple[str, KubeletCheckpoint | Unknown]:
        """The content, with a value that differs after each write of the kubelet."""
        with self._mutex:
            if self._read is None or self._read[0] != self._version() or self._read[0] == NO_FILE:
                self._read = _read(self.path)
            return self._read

    def wait_changed(self, stop: Event, timeout: float) -> bool:
        """Wait until the file has changed since the last wait returned True, or since this object was made.

        Returns False after `timeout` seconds, or if `stop` is set; the thread notices `stop` at once if `wake` is called too.
        """
        until = monotonic() + timeout
        while not stop.is_set():
            version = self._version()
            if version != self._waited:
                self._waited = version
                return True
            left = until - monotonic()
            if left <= 0:
                return False
            self._watch.wait(left)
        return False

    def wake(self) -> None:
        """Let `wait_changed` look whether it must stop."""
        self._watch.wake()

    def close(self) -> None:
        """Free the file descriptors. No thread may be waiting."""
        self._watch.close()

    def _version(self) -> str:
        try:
            return _version_of(self.path.stat())
        except OSError:
            return NO_FILE


def _read(path: Path) -> tuple[str, KubeletCheckpoint | Unknown]:
    try:
        # Not blocking, in case it is a named pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                kind = Unknown(f"{path} is not a file; the kubelet writes a file there")
                return _version_of(status), kind
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(MOST_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        return NO_FILE, Unknown(
            f"cannot read the kubelet's checkpoint {path}: {error.strerror}; "
            f"the kubelet writes it when a device plugin has registered"
        )
    return _version_of(status), _decoded(content, path)


def _decoded(content: bytes, path: Path) -> KubeletCheckpoint | Unknown:
    if len(content) > MOST_BYTES:
        return Unknown(
            f"{path} has more than {MOST_BYTES} bytes, and is not read; find the device plugin that lists so many units, and let it list fewer"
        )
    try:
        data = _DECODER.decode(content).Data
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Unknown(
            f"the kubelet's checkpoint {path} is damaged: {printable(str(error), most=_SHOWN_CHARACTERS)}; "
            f"the kubelet writes it anew with the next pod"
        )
    return KubeletCheckpoint(
        tuple(_units(entry) for entry in data.PodDeviceEntries or ()),
        {
            ResourceName(name): frozenset(map(UnitId, ids or ()))
            for name, ids in (data.RegisteredDevices or {}).items()
        },
    )


def _units(entry: _Entry) -> UnitsOfContainer:
    # A unit near several NUMA nodes is in several lists.
    ids = (unit for units in (entry.DeviceIDs or {}).values() for unit in units or ())
    return UnitsOfContainer(
        PodUid(entry.PodUID),
        entry.ContainerName,
        ResourceName(entry.ResourceName),
        frozenset(map(UnitId, ids)),
    )
