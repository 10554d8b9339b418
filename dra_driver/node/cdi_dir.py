# SPDX-License-Identifier: Apache-2.0
"""Read and write the driver's files in the CDI directory: one for each claim, named by the claim's UID. Other files are ignored.

A claim's CDI file may mount metadata files (`dra_driver.node.metadata_dir`). They exist before the CDI file and go after it.
"""

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from dra_driver.model.ids import ClaimUid
from dra_driver.node.files import TEMPORARY_SUFFIX, never, remove, translated, write_atomic
from dra_driver.node.metadata_dir import MetadataDirectory

_SUFFIX = ".json"


class CdiDirectory:
    """The CDI files of this driver's claims below `path`, for CDI specs of `kind` ("vendor/class"), and the metadata files."""

    def __init__(
        self,
        path: Path,
        kind: str,
        metadata: MetadataDirectory,
        *,
        point: Callable[[str], None] = never,
    ) -> None:
        self._path = path
        self._metadata = metadata
        self._prefix = kind.replace("/", "-") + "_"
        self._point = point

    def prepare(self) -> None:
        """Make the directory, and remove half-written files of a killed process."""
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            for leftover in self._path.glob(f".{self._prefix}*{TEMPORARY_SUFFIX}"):
                leftover.unlink(missing_ok=True)
        except OSError as error:
            raise translated(error, f"cannot use CDI directory {self._path}") from error

    def file(self, uid: ClaimUid) -> Path:
        """Return the path of the claim's file."""
        return self._path / f"{self._prefix}{uid}{_SUFFIX}"

    def write(self, uid: ClaimUid, text: str, metadata: str = "") -> None:
        """Write the claim's file, unless it has this text already; first its metadata files, if it has any."""
        self._metadata.write(uid, metadata)
        if self.read(uid) != text:
            write_atomic(self.file(uid), text, point=self._point)

    def read(self, uid: ClaimUid) -> str | None:
        """Return the text of the claim's file; None if the file does not exist, empty if it cannot be read as text."""
        try:
            return self.file(uid).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError):
            return ""

    def remove(self, uid: ClaimUid) -> None:
        """Remove the claim's file, then its metadata files, if they exist."""
        remove(self.file(uid))
        self._metadata.remove(uid)

    def read_metadata(self, uid: ClaimUid) -> str:
        """Return the text of the claim's metadata files; empty if there are none, or if they cannot be read."""
        return self._metadata.read(uid) or ""

    def with_metadata(self) -> Collection[ClaimUid]:
        """Return the claims that have metadata files."""
        return self._metadata.uids()

    def entries(self) -> Mapping[ClaimUid, object]:
        """Return inode, size and time of each of this driver's files, and of its metadata files, without reading them. They change
        whenever a file changes.
        """
        try:
            with os.scandir(self._path) as found:
                return {
                    uid: (*_entry(entry), *self._metadata.entries(uid))
                    for entry in found
                    if (uid := self._uid(entry.name))
                }
        except OSError as error:
            raise translated(error, f"cannot list CDI directory {self._path}") from error

    def documents(self) -> Mapping[ClaimUid, str]:
        """Return the text of all of this driver's files by claim UID; empty for a file that cannot be read as text."""
        try:
            names = sorted(path.name for path in self._path.iterdir())
        except OSError as error:
            raise translated(error, f"cannot list CDI directory {self._path}") from error
        return {uid: self.read(uid) or "" for name in names if (uid := self._uid(name))}

    def _uid(self, name: str) -> ClaimUid | None:
        """Return the UID of the claim that the file belongs to; None if another program made the file."""
        if not (name.startswith(self._prefix) and name.endswith(_SUFFIX)):
            return None
        return ClaimUid(name.removeprefix(self._prefix).removesuffix(_SUFFIX))


def _entry(entry: os.DirEntry[str]) -> tuple[int, int, int]:
    found = entry.stat(follow_symlinks=False)
    return found.st_ino, found.st_size, found.st_mtime_ns
