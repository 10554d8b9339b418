# SPDX-License-Identifier: Apache-2.0
"""Files below a folder, as a process sees them whose / is this folder.

A driver installation is often such a tree: the root file system of a driver container, or the host's below /host. Its symbolic links are
meant for a process inside it. Followed from outside, an absolute link would lead to another file of the same name. So each link is
resolved inside the tree, and none leaves it. What does not exist or cannot be read is empty; nothing here raises.
"""

import os
import stat
from pathlib import Path

_MOST_LINKS = 40  # as the kernel: a path with more of them is a loop
_LARGEST_FILE = 16 * 2**20
_NOWHERE = "/" + 256 * "x"  # longer than a name can be, so nobody can make it


class Tree:
    """The files below `base`. All paths that its methods take and return are absolute paths inside the tree."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def resolve(self, path: str) -> str:
        """Return the path without links; empty if it leads nowhere."""
        return self._resolved(path, missing=False)

    def place(self, path: str) -> Path:
        """Return where this process finds what is at the end of the path, or would find it: never behind a link that leads out of the tree."""
        return self.outside(self._resolved(path, missing=True) or _NOWHERE)

    def _resolved(self, path: str, *, missing: bool) -> str:
        """`missing`: what does not exist is taken as it is written."""
        waiting = path.split("/")[::-1]
        done: list[str] = []
        links = 0
        while waiting:
            part = waiting.pop()
            if part in ("", "."):
                continue
            if part == "..":
                del done[-1:]
                continue
            try:
                target = _target(self._base.joinpath(*done, part))
            except (OSError, ValueError):
                if not missing:
                    return ""
                target = None
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                return ""
            if target.startswith("/"):
                done.clear()
            waiting.extend(target.split("/")[::-1])
        return "/" + "/".join(done)

    def outside(self, path: str) -> Path:
        """Return where this process finds a path that has no links."""
        return self._base.joinpath(path.lstrip("/"))

    def below(self, path: str) -> "Tree":
        """Return the tree below a folder of this one. A folder that does not exist is an empty tree."""
        return Tree(self.place(path))

    def stat(self, path: str) -> os.stat_result | None:
        """Return what is at the end of the path."""
        try:
            return self.outside(found).lstat() if (found := self.resolve(path)) else None
        except (OSError, ValueError):
            return None

    def is_file(self, path: str) -> bool:
        """Whether a regular file is at the end of the path."""
        found = self.stat(path)
        return found is not None and stat.S_ISREG(found.st_mode)

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder."""
        found = self.resolve(folder)
        try:
            with os.scandir(self.outside(found or folder)) as entries:
                return sorted(entry.name for entry in entries) if found else []
        except (OSError, ValueError):
            return []

    def link(self, path: str) -> str:
        """Return the text of a link; empty if the path is none."""
        folder, _, name = path.rpartition("/")
        try:
            return _target(self.outside(self.resolve(folder or "/")) / name) or ""
        except (OSError, ValueError):
            return ""

    def read(self, path: str) -> bytes:
        """Return the content of a regular file, or of a file of /proc or /sys, up to 16 MiB."""
        if not self.is_file(path):
            return b""
        try:
            with self.outside(self.resolve(path)).open("rb") as file:
                return file.read(_LARGEST_FILE)
        except (OSError, ValueError):
            return b""

    def text(self, path: str) -> str:
        """Return the content of a file as text."""
        return self.read(path).decode("utf-8", "replace")


def _target(path: Path) -> str | None:
    """Return the text of a link; None if there is another kind of file."""
    return str(path.readlink()) if stat.S_ISLNK(path.lstat().st_mode) else None
