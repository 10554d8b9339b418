# SPDX-License-Identifier: Apache-2.0
"""What did one driver leave on this node's disk, which of its processes run, and which files did other programs make?

A file is the driver's own if its name has the form of the driver's names. All other files in the same directories are listed, and
stay.
"""

import errno
import os
import re
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from dra_driver.errors import Permanent
from dra_driver.model.ids import DriverName
from dra_driver.model.leftovers import Leftover, LeftoverKind, Others
from dra_driver.model.state import PreparedClaim
from dra_driver.node.files import TEMPORARY_SUFFIX, remove, translated
from dra_driver.node.foreign_memory import FILE_NAME
from dra_driver.node.guard_file import guard_of
from dra_driver.node.lock import try_lock
from dra_driver.node.peers import Peers
from dra_driver.node.state import read_claims

# The part of a socket's name that identifies a pod: its UID, or a digest if the UID would be too long.
_POD = r"[0-9a-f]{8}(?:(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})?"
_BOUND_SOCKET = r"\.[0-9a-f]{4}"  # the temporary name of a socket, before it is renamed
_CREDENTIALS = struct.Struct("3i")


class NodeFiles(Struct, frozen=True):
    """The paths of one driver on this node. `cdi_kind` is "vendor/class" of its CDI specs."""

    driver: DriverName
    cdi_kind: str
    state_file: Path
    lock_dir: Path
    peer_dir: Path
    cdi_dir: Path
    plugin_dir: Path
    metadata_dir: Path
    registry_dir: Path
    features_dir: Path

    def claims(self) -> tuple[PreparedClaim, ...]:
        """Return the claims in the state file. Raises DriverError if the file cannot be read."""
        return read_claims(self.state_file)

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return the files that this driver left, in the order of removal."""
        found = [
            *(Leftover(LeftoverKind.SOCKET, str(path)) for path in self._sockets()),
            *(Leftover(LeftoverKind.FEATURES, str(path)) for path in self._feature_files()),
            *(Leftover(LeftoverKind.CDI_FILE, str(path)) for path in self._cdi_files()),
            *(Leftover(LeftoverKind.METADATA, str(path)) for path in self._metadata_files()),
            *(Leftover(LeftoverKind.STATE, str(path)) for path in self._state_files()),
            *(Leftover(LeftoverKind.LOCK, str(path)) for path in self._lock_files()),
        ]
        ours = {Path(leftover.name) for leftover in found}
        return (
            *found,
            *(Leftover(LeftoverKind.DIRECTORY, str(path)) for path in self._emptied(ours)),
        )

    def others(self) -> tuple[Others, ...]:
        """Return the files of other programs in the driver's directories."""
        ours = {Path(leftover.name) for leftover in self.leftovers()}
        found = []
        for directory in sorted(
            {self.plugin_dir, self.state_file.parent, self.cdi_dir, self.registry_dir}
        ):
            names = tuple(path.name for path in _entries(directory) if path not in ours)
            if names:
                found.append(Others(str(directory), names))
        return tuple(found)

    def remove(self, leftover: Leftover) -> str:
        """Remove the file or directory, if it exists. If a directory stays and that does no harm, returns why. Raises DriverError."""
        path = Path(leftover.name)
        if leftover.kind is not LeftoverKind.DIRECTORY:
            remove(path)
            return ""
        try:
            path.rmdir()
        except FileNotFoundError:
            return ""
        except OSError as error:
            if error.errno in (errno.EBUSY, errno.ENOTEMPTY):
                return (
                    f"{path} stays: {os.strerror(error.errno)} (a mounted volume goes with its pod)"
                )
            raise translated(error, f"cannot remove {path}") from error
        return ""

    def at_work(self) -> tuple[str, ...]:
        """Describe the processes of this driver that listen on a socket, have a lock or have the state open, one sentence each."""
        listening = [
            f"{listener} listens on {path}"
            for path in self._sockets()
            if (listener := _listener(path))
        ]
        peers = [
            f"driver process {peer.process}, version {peer.version}, serves {peer.endpoint}"
            for peer in Peers(self.peer_dir).alive()
        ]
        # A process without a peer file: an older driver, or one that starts or ends right now.
        holding = [
            f"{holder} holds {path}"
            for path in (*_matching(self.lock_dir, r".+\.lock"), guard_of(self.state_file))
            if not peers and (holder := _holder(path))
        ]
        return (*peers, *listening, *holding)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from opening the state, during a `with` block. Raises Permanent if a process has it open."""
        guard = guard_of(self.state_file)
        try:
            handle = os.open(guard, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            yield  # a driver makes this file first, so none has run here, or everything is removed
            return
        except OSError as error:
            raise translated(error, f"cannot open {guard}") from error
        try:
            if not try_lock(handle):
                raise Permanent(
                    f"another process has just opened {self.state_file}; end it, then try again"
                )
            yield
        finally:
            os.close(handle)

    def registrations(self) -> Mapping[Path, str]:
        """Return the registration sockets of this driver, and who listens on each; "" if nobody does. Raises DriverError."""
        return {path: _listener(path) for path in self._registrations()}

    def set_aside(self) -> tuple[str, ...]:
        """Return the damaged state files that were set aside. Raises DriverError."""
        name = re.escape(self.state_file.name)
        return tuple(map(str, _matching(self.state_file.parent, rf"{name}\.damaged-\d+")))

    def _registrations(self) -> list[Path]:
        return _matching(self.registry_dir, rf"{re.escape(self.driver)}(?:-{_POD})?-reg\.sock")

    def _sockets(self) -> list[Path]:
        return [
            *self._registrations(),
            *_matching(self.plugin_dir, rf"dra(?:-{_POD})?\.sock|{_BOUND_SOCKET}"),
        ]

    def _cdi_files(self) -> list[Path]:
        prefix = re.escape(self.cdi_kind.replace("/", "-"))
        half_written = rf"\.{prefix}_.*{re.escape(TEMPORARY_SUFFIX)}"
        return _matching(self.cdi_dir, rf"{prefix}_.+\.json|{half_written}")

    def _feature_files(self) -> list[Path]:
        name = re.escape(self.driver)
        half_written = rf"\.{name}\..*{re.escape(TEMPORARY_SUFFIX)}"
        return _matching(self.features_dir, rf"{name}|{half_written}")

    def _metadata_files(self) -> list[Path]:
        return [file for claim in _entries(self.metadata_dir) for file in _entries(claim)]

    def _state_files(self) -> list[Path]:
        # Remove the file before its -wal. The -wal may have commits that the file lacks, so the file alone would be an older state.
        name = re.escape(self.state_file.name)
        companion = r"(?:-wal|-shm|-journal)?"
        foreign = re.escape(FILE_NAME)
        foreign = rf"{foreign}|\.{foreign}\..*{re.escape(TEMPORARY_SUFFIX)}"
        return _matching(
            self.state_file.parent,
            rf"{name}{companion}|{name}\.damaged-\d+{companion}|{name}\.new(?:-\d+)?{companion}|{foreign}",
        )

    def _lock_files(self) -> list[Path]:
        guard = guard_of(self.state_file)
        return [
            *_matching(self.lock_dir, r".+\.lock"),
            *_matching(self.peer_dir, r".+\.peer"),
            *_matching(guard.parent, re.escape(guard.name)),
        ]

    def _emptied(self, ours: set[Path]) -> Iterator[Path]:
        """Yield the directories of this driver that are empty after the removal of `ours`."""
        gone = set(ours)
        claims = _entries(self.metadata_dir)
        own = (self.lock_dir, self.peer_dir, *claims, self.metadata_dir, self.plugin_dir)
        for directory in own:
            if directory.is_dir() and gone.issuperset(_entries(directory)):
                gone.add(directory)
                yield directory


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise translated(error, f"cannot list {directory}") from error


def _matching(directory: Path, pattern: str) -> list[Path]:
    return [path for path in _entries(directory) if re.fullmatch(pattern, path.name)]


def _listener(path: Path) -> str:
    """Name the process that listens on a socket; empty if no process listens."""
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.setblocking(False)
            asking.connect(str(path))
            packed = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except BlockingIOError:
        return "a process that accepts nothing"
    except OSError:
        return ""
    number, _, _ = _CREDENTIALS.unpack(packed)
    return f"process {number}" if number else "a process of another container"


def _holder(path: Path) -> str:
    """Return the text that the process with the file's lock wrote into the file; empty if no process has the lock, or without file."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if try_lock(handle):
            return ""
        text = os.pread(handle, 1000, 0).decode("utf-8", "replace")
    finally:
        os.close(handle)
    return text or "a process that does not give its name"
