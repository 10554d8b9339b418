# SPDX-License-Identifier: Apache-2.0
"""Who else on this node reaches what the driver remembers? Nobody: files have mode 0600, their directory 0700.

Whoever opens a file may lock it, for reading is enough to do so: one shared lock on a byte of the -shm, and every prepare waits in
vain. Earlier drivers left the modes to the umask, so what is found open is closed at each start; who has a file open already
keeps it until they end. Links are neither made nor followed: behind one could be anybody's file.
"""

import os
import re
import stat
from contextlib import ExitStack, suppress
from pathlib import Path

from dra_driver.node.files import refused_link, translated

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
_OTHERS = 0o077
_COMPANIONS = ("-wal", "-shm", "-journal")
# What a driver puts beside its state: its sockets, and the directories of its locks and its peers.
_OURS = re.compile(r"dra(-.+)?\.sock|\.[0-9a-f]{4}|locks|peers")


def close_directory(directory: Path, state_name: str = "") -> None:
    """Make the directory, or close it to others. Raises DriverError.

    With the name of a state file: one that holds more than a driver puts there is used by others too, and stays open.
    """
    try:
        directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        open_to_others = stat.S_IMODE(directory.stat().st_mode) & _OTHERS
        if open_to_others and not (state_name and _is_shared(directory, state_name)):
            directory.chmod(DIRECTORY_MODE)
    except OSError as error:
        raise translated(error, f"cannot make directory {directory}") from error


def open_private(path: Path) -> int:
    """A handle of a lock's file, which is made or closed to others. Raises OSError, also for a link."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    with ExitStack() as unless_closed_to_others:
        unless_closed_to_others.callback(os.close, handle)
        if stat.S_IMODE(os.fstat(handle).st_mode) & _OTHERS:
            os.fchmod(handle, FILE_MODE)
        unless_closed_to_others.pop_all()
    return handle


def close_files(state_file: Path) -> None:
    """Make the state file, or close it and its companions to others. Raises DriverError.

    SQLite gives the companions that it makes the mode of the file. Nothing is opened that exists: to close a handle would let go
    the locks that another connection of this process has on it.
    """
    try:
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # this refuses links too
        with suppress(FileExistsError):
            os.close(os.open(state_file, new, FILE_MODE))
        aside = state_file.parent.glob(f"{state_file.name}.damaged-*")
        beside = (state_file.with_name(state_file.name + suffix) for suffix in _COMPANIONS)
        for path in (state_file, *beside, *aside):
            _close_file(path)
    except OSError as error:
        raise translated(error, f"cannot close {state_file} to others") from error


def _close_file(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise refused_link(f"cannot use {path}")
        if stat.S_IMODE(mode) & _OTHERS:
            path.chmod(FILE_MODE)
    except FileNotFoundError:
        return  # most companions, and any whose process has just ended


def _is_shared(directory: Path, state_name: str) -> bool:
    return any(
        not (path.name.startswith(state_name) or _OURS.fullmatch(path.name))
        for path in directory.iterdir()
    )
