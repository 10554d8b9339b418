# SPDX-License-Identifier: Apache-2.0
"""Which files are in a folder that an admin fills, and did they change? Usually it is a ConfigMap that is mounted into the pod. A single
file counts as a folder with this file.

The kubelet replaces all files of such a mount at once: they are symbolic links through `..data`, which it turns to a new folder. Names
that begin with a dot are therefore no files of the admin. Nothing in the folder can cost more than MOST_FILES files of LARGEST_FILE.
"""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from dra_driver.node.files import content_of, translated

MOST_FILES = 64
LARGEST_FILE = 1024 * 1024


class FolderContent(Struct, frozen=True):
    """The files by name, in the order of their names, and a sentence for each that was not read; `unread` has the names of these.
    `listed`: the folder itself could be.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    listed: bool = True
    unread: tuple[str, ...] = ()


def mark(folder: Path) -> object:
    """A value that changes whenever a file of the folder changes. It costs a look at each name, and reads no file."""
    try:
        folder, names = _place(folder)
    except OSError as error:
        return error.errno
    return tuple((name, _look(folder / name)) for name in names)


def read(folder: Path) -> FolderContent:
    """Read the folder. What cannot be read is a problem, and the rest is still read."""
    try:
        folder, names = _place(folder)
    except OSError as error:
        problem = str(translated(error, f"cannot read the folder {folder}"))
        return FolderContent(problems=(problem,), listed=False)
    files: dict[str, bytes] = {}
    problems: list[str] = []
    unread: list[str] = names[MOST_FILES:]
    if len(names) > MOST_FILES:
        problems.append(
            f"{folder} has more than {MOST_FILES} files, and those from {names[MOST_FILES]!a} on are not read: put several documents into one file"
        )
    for name in names[:MOST_FILES]:
        try:
            found = _content(folder / name)
        except OSError as error:
            problems.append(str(translated(error, f"cannot read {folder / name}")))
            unread.append(name)
        else:
            if isinstance(found, str):
                problems.append(f"{folder / name} {found}")
                unread.append(name)
            else:
                files[name] = found
    return FolderContent(files, tuple(problems), unread=tuple(unread))


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def _place(path: Path) -> tuple[Path, list[str]]:
    """The folder, and the names in it that count. Raises OSError."""
    try:
        return path, _names(path)
    except NotADirectoryError:
        return path.parent, [path.name]


def _look(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_size, found.st_ctime_ns


def _content(path: Path) -> bytes | str:
    """The content, or why it is not read."""
    text = content_of(path, most=LARGEST_FILE + 1)
    if text is None:
        return "is no file, and is not read: take it out of this folder"
    if len(text) > LARGEST_FILE:
        return f"is larger than {LARGEST_FILE // 1024**2} MiB, and is not read: split it into several files"
    return text
