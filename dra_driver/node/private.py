# SPDX-License-Identifier: Apache-2.0
"""Make files that only root can use: files have mode 0600, their directory 0700.

A user who may read a file may also lock it. One shared lock on a byte of the -shm would block every prepare call. Earlier drivers
used the modes of the umask, so the driver corrects the modes at each start. A process that already has the file open keeps it open
until the process ends. The driver neither makes nor follows symbolic links, because they may lead to another program's file.
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
# What a driver puts into the directory of its state: sockets, and the directories of locks, peers and metadata.
_OURS = re.compile(r"dra(-.+)?\.sock|\.[0-9a-f]{4}|locks|peers|metadata")


def close_directory(directory: Path, state_name: str = "") -> None:
    """Make the directory, or take the rights of other users away. Raises DriverError.

    `state_name` is the name of a state file in the directory. If the directory also has files that no driver makes, other programs
    use the directory too, and its mode stays.
    """
    try:
        directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        open_to_others = stat.S_IMODE(directory.stat().st_mode) & _OTHERS
        if open_to_others and not (state_name and _is_shared(directory, state_name)):
            directory.chmod(DIRECTORY_MODE)
    except OSError as error:
        raise translated(error, f"cannot make directory {directory}") from error


def open_private(path: Path) -> int:
    """Open a file, make it if it is missing, and take the rights of other users away. Returns its file descriptor. Raises OSError,
    also if the path is a symbolic link.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    with ExitStack() as unless_closed_to_others:
        unless_closed_to_others.callback(os.close, handle)
        if stat.S_IMODE(os.fstat(handle).st_mode) & _OTHERS:
            os.fchmod(handle, FILE_MODE)
        unless_closed_to_others.pop_all()
    return handle


def close_files(state_file: Path) -> None:
    """Make the state file if it is missing. Take away the rights of other users to the file, to its -wal, -shm and -journal, and to
    files that were set aside. Raises DriverError.

    SQLite makes a new -wal and -shm with the mode of the state file. Existing files are not opened here: closing their file
    descriptors would release all locks that another connection of this process has on them.
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
        return  # most companions do not exist, and SQLite removes them when a process ends


def _is_shared(directory: Path, state_name: str) -> bool:
    return any(
        not (path.name.startswith(state_name) or _OURS.fullmatch(path.name))
        for path in directory.iterdir()
    )
