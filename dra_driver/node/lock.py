# SPDX-License-Identifier: Apache-2.0
"""Locks that hold between threads and between processes, by flock on a file for each name.

During a rolling update two driver processes serve one node. A lock dies with its holder, so no crash leaves one behind.
The file's text names the holder for whoever waits in vain. The holder removes the file before it lets go; a waiter that
then got a lock on the removed file notices that the path leads elsewhere and tries again.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dra_driver.errors import Temporary
from dra_driver.node.files import translated
from dra_driver.node.private import close_directory, open_private

_FIRST_PAUSE_SECONDS = 0.002
_LONGEST_PAUSE_SECONDS = 0.1


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

    @contextmanager
    def held(self, names: Iterable[str], *, until: float, purpose: str) -> Iterator[None]:
        """Hold all locks of these names, taken in order of name so that two callers never wait for each other.

        `until` is a time of `clock`. Raises Temporary, naming the holder, when one is not free by then; none is held then.
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
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                os.close(handle)

    def clear_leftovers(self) -> None:
        """Remove the files of killed holders; what somebody holds stays."""
        if self._directory.is_dir():
            close_directory(self._directory)  # an older driver left it open
        for path in self._directory.glob("*.lock"):
            taken = take(path)
            if isinstance(taken, int):
                # Under the lock: a waiter that gets it next sees that the path leads elsewhere.
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                os.close(taken)

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
    """Somebody else holds the lock; `holder` is what it says of itself."""

    def __init__(self, name: str, holder: str) -> None:
        super().__init__(
            f"{name} is locked by {holder}; waited as long as the kubelet waits, it tries again"
        )
        self.holder = holder


def _name_holder(handle: int, purpose: str) -> None:
    """Write into the file who holds it. It is a courtesy: on a full disk the lock holds without it.

    The file is never cut to nothing first: ext4 forces a file that was to the disk when it is closed, which costs as much as a
    commit.
    """
    text = f"process {os.getpid()}, {purpose}".encode()
    with suppress(OSError):
        os.pwrite(handle, text, 0)
        if os.fstat(handle).st_size > len(text):  # a killed holder's name was longer
            os.ftruncate(handle, len(text))


def open_lock(path: Path) -> int:
    """A handle of the lock's file, made with its directory if it is missing. Raises DriverError when that cannot be, also for a link."""
    try:
        with suppress(FileNotFoundError):
            return open_private(path)
        close_directory(path.parent)
        return open_private(path)
    except OSError as error:
        raise translated(error, f"cannot open lock {path}") from error


def take(path: Path, opened: Callable[[Path], int] = open_lock) -> int | str:
    """One try for the lock: a handle that holds it until it is closed, or what the holder says of itself."""
    handle = opened(path)
    if try_lock(handle) and leads_to(path, handle):
        return handle
    holder = os.pread(handle, 1000, 0).decode("utf-8", "replace")
    os.close(handle)
    return holder or "a process that did not give its name"


def try_lock(handle: int) -> bool:
    """Take the lock alone, if nobody has it; a failed try loses the shared lock that the handle may have."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def leads_to(path: Path, handle: int) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(handle)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
