# SPDX-License-Identifier: Apache-2.0
"""Read and write the metadata files of claims: `<claim UID>/<request>.json` below one directory, which the container runtime mounts.

They are a part of the steps WriteCdiSpec and RemoveCdiSpec, and no steps of their own: a metadata file is of use only to the CDI file
that mounts it. So `dra_driver.node.cdi_dir` writes them first, and removes them last; a CDI file never mounts a file that is not there
(the runtime would refuse to start the container). The row has their text since the commit that made the claim Prepared, as it has the
text of the CDI file. So whatever a crash leaves is written again or removed with the CDI file, by the same code. What a
crash leaves without a row is removed by the sweep.
"""

import os
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from dra_driver.errors import Permanent
from dra_driver.model.ids import ClaimUid
from dra_driver.model.metadata import joined, parted
from dra_driver.node.files import never, remove, translated, write_atomic

FAILPOINTS = ("rename.metadata.before", "rename.metadata.after", "remove.metadata.before")
_SUFFIX = ".json"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?")

Entry = tuple[str, int, int, int]


class MetadataDirectory:
    """The metadata files of this driver's claims below `path`."""

    def __init__(self, path: Path, *, point: Callable[[str], None] = never) -> None:
        self._path = path
        self._point = point

    def write(self, uid: ClaimUid, text: str) -> None:
        """Write the claim's files, those that differ, and remove others of this claim. Without a text they stay as they are."""
        if not text or self.read(uid) == text:
            return
        wanted = parted(text)
        directory = self._of(uid)
        try:
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            strangers = [path for path in directory.iterdir() if path.name not in _names(wanted)]
        except OSError as error:
            raise translated(error, f"cannot make directory {directory}") from error
        for path in strangers:
            remove(path)
        for request, content in wanted.items():
            if not _NAME.fullmatch(request):
                raise Permanent(
                    f"request {request[:80]!a} of claim uid {uid} cannot be a file name"
                )
            write_atomic(
                directory / f"{request}{_SUFFIX}", content, point=self._point, name="metadata"
            )

    def read(self, uid: ClaimUid) -> str | None:
        """Return the text of the claim's files; None if there are none, or if one of them cannot be read as text."""
        try:
            files = {
                path.name.removesuffix(_SUFFIX): path.read_text(encoding="utf-8")
                for path in self._of(uid).iterdir()
            }
        except (OSError, UnicodeDecodeError):
            return None
        return joined(files) or None

    def remove(self, uid: ClaimUid) -> None:
        """Remove the claim's files, if they exist."""
        directory = self._of(uid)
        try:
            paths = list(directory.iterdir())
        except FileNotFoundError:
            return
        except OSError as error:
            raise translated(error, f"cannot list {directory}") from error
        self._point("remove.metadata.before")
        for path in paths:
            remove(path)
        try:
            directory.rmdir()
        except OSError as error:
            raise translated(error, f"cannot remove {directory}") from error

    def entries(self, uid: ClaimUid) -> tuple[Entry, ...]:
        """Return name, inode, size and time of the claim's files, without reading them. They change whenever a file changes."""
        with suppress(OSError), os.scandir(self._of(uid)) as found:
            return tuple(sorted(map(_entry, found)))
        return ()

    def uids(self) -> Collection[ClaimUid]:
        """Return the claims that have files."""
        with suppress(OSError):
            return [ClaimUid(name) for name in sorted(path.name for path in self._path.iterdir())]
        return []

    def _of(self, uid: ClaimUid) -> Path:
        return self._path / uid


def _names(files: Collection[str]) -> Collection[str]:
    return [f"{request}{_SUFFIX}" for request in files]


def _entry(entry: os.DirEntry[str]) -> Entry:
    found = entry.stat(follow_symlinks=False)
    return entry.name, found.st_ino, found.st_size, found.st_mtime_ns
