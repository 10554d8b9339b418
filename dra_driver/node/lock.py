# SPDX-License-Identifier: Apache-2.0
"""Lock between threads and between processes, by flock on one file for each name.

During a rolling update two driver processes serve one node. When a process ends, the kernel releases its locks, so a crash leaves
no lock behind. The file's text names the lock's owner, for the error message of another process. A file stays when its lock is released:
to remove it from a disk that has just taken a commit is a millisecond of a kubelet's call. `run` removes the files of claims a few seconds
later. It takes the lock for that. If another process then gets the lock of the removed file, it sees that the path has a different file or
none, and tries again. The files of hardware are few, and stay.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dra_driver.errors import DriverError, Temporary
from dra_driver.node.files import translated
from dra_driver.node.private import close_directory, open_private

_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.1
_STAY = ("device-", "hardware-")
_TIDY_SECONDS = 5.0


class Locks:
    """Named locks below a directory. `clock` is monotonic seconds, `sleep` waits between two tries."""

    def __init__(
        self,
        directory: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._sleep = sleep
        self._left: set[Path] = set()  # adding to a set is one step for all threads

    @contextmanager
    def locked(self, names: Iterable[str], *, until: float, purpose: str) -> Iterator[None]:
        """Take the locks of all these names, in the order of the names, so that two callers never wait for each other.

        `until` is a time of `clock`. If one lock is not free by `until`, releases the others and raises Temporary, with the name of
        the lock's owner.
        """
        taken: list[tuple[Path, int]] = []
        try:
            for name in sorted(set(names)):
                path = self._directory / f"{name}.lock"
                taken.append((path, self._acquire(path, until=until)))
                _name_holder(taken[-1][1], purpose)
            yield
        finally:
            for path, handle in reversed(taken):
                os.close(handle)
                if not path.name.startswith(_STAY):
                    self._left.add(path)

    def run(self, stop: threading.Event) -> None:
        """Every few seconds until `stop`: remove the files that are not needed any more."""
        while not stop.wait(_TIDY_SECONDS):
            self.tidy()

    def tidy(self) -> None:
        """Remove the files of released locks, but of hardware. The file of a lock that somebody has again stays until he releases it."""
        for _ in range(len(self._left)):
            path = self._left.pop()
            try:
                _remove_free(path)
            except (OSError, DriverError):
                self._left.add(path)

    def clear_leftovers(self) -> None:
        """Remove the lock files of killed processes. The files of locks that a process has stay."""
        if self._directory.is_dir():
            close_directory(self._directory)  # an older driver made it readable for others
        for path in self._directory.glob("*.lock"):
            _remove_free(path)

    def _acquire(self, path: Path, *, until: float) -> int:
        pause = _FIRST_PAUSE_SECONDS
        while isinstance(taken := take(path, self._open), str):
            if self._clock() >= until:
                raise Locked(path.stem, taken)
            self._sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
        return taken

    def _open(self, path: Path) -> int:
        return open_lock(path)


class Locked(Temporary):
    """Another thread or process has the lock; `holder` is the text in its file."""

    def __init__(self, name: str, holder: str) -> None:
        super().__init__(
            f"{name} is locked by {holder}; waited as long as the kubelet waits, it tries again"
        )
        self.holder = holder


def _remove_free(path: Path) -> None:
    taken = take(path)
    if isinstance(taken, int):
        _name_holder(taken, "removing this file")
        # Remove the file before the lock is released: the next process with this lock sees that the path lost the file.
        with suppress(OSError):
            path.unlink(missing_ok=True)
        os.close(taken)


def _name_holder(handle: int, purpose: str) -> None:
    """Write the owner into the file. The text is only for error messages: on a full disk the lock works without it.

    The file is not truncated to zero before the write: ext4 writes such a file to the disk when it is closed, which takes as long
    as a commit.
    """
    text = f"process {os.getpid()}, {purpose}".encode()
    with suppress(OSError):
        os.pwrite(handle, text, 0)
        if os.fstat(handle).st_size > len(text):  # the text of a killed owner was longer
            os.ftruncate(handle, len(text))


def open_lock(path: Path) -> int:
    """Open the lock's file, and make file and directory if they are missing. Returns a file descriptor. Raises DriverError, also if
    the path is a symbolic link.
    """
    try:
        with suppress(FileNotFoundError):
            return open_private(path)
        close_directory(path.parent)
        return open_private(path)
    except OSError as error:
        raise translated(error, f"cannot open lock {path}") from error


def take(path: Path, opened: Callable[[Path], int] = open_lock) -> int | str:
    """Try once to take the lock. Returns a file descriptor that has the lock until it is closed, or the text of the lock's owner."""
    handle = opened(path)
    with ExitStack() as unless_locked:
        unless_locked.callback(os.close, handle)
        if try_lock(handle) and leads_to(path, handle):
            unless_locked.pop_all()
            return handle
        holder = os.pread(handle, 1000, 0).decode("utf-8", "replace")
    return holder or "a process that did not give its name"


def try_lock(handle: int) -> bool:
    """Try to take the exclusive lock. If this fails, a shared lock of this file descriptor may be lost. Returns whether it succeeded."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def leads_to(path: Path, handle: int) -> bool:
    """Whether the file at `path` is still the file of this file descriptor."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(handle)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
