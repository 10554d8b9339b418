# SPDX-License-Identifier: Apache-2.0
"""The guard file beside the state file: which processes have the state open, and in which boot was it opened last?

SQLite's own locks do not show who has a file open. So every process that has it open has a shared lock on the guard; to set the
file aside, it needs the exclusive lock.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from dra_driver.node.files import translated
from dra_driver.node.lock import leads_to, try_lock
from dra_driver.node.private import close_directory, open_private


def guard_of(path: Path) -> Path:
    """Return the path of the guard file. Every process that has the state open has a shared lock on the guard file."""
    return path.with_name(f"{path.name}.guard")


def open_guard(path: Path) -> tuple[int, bool]:
    """Take a lock on the guard file. Returns its file descriptor, and whether the lock is exclusive.

    If another process already has the state file open, the lock is shared. If not, this process takes an exclusive lock, and the
    caller makes it shared after it has opened the state file.
    """
    guard = guard_of(path)
    while True:
        # While this process waits, a cleanup may remove the guard file and its directory.
        close_directory(path.parent, path.name)
        try:
            handle = open_private(guard)
        except OSError as error:
            raise translated(error, f"cannot open {guard}") from error
        alone = try_lock(handle)
        if not alone:
            fcntl.flock(handle, fcntl.LOCK_SH)
        if leads_to(guard, handle):
            return handle, alone
        os.close(handle)


def is_of_earlier_boot(guard: int, boot_id: str) -> bool:
    """Return whether a boot before this one is noted as the last in which the state was opened; False if none is noted."""
    return _noted(guard) not in ("", _note_of(boot_id))


def note_boot(guard: int, boot_id: str) -> None:
    """Write down that the state was opened in this boot."""
    note = _note_of(boot_id)
    if _noted(guard) != note:
        # On a full disk the driver starts all the same. The note of an earlier boot stays then: without one, a start after a power cut
        # would check the log, and set a sound state aside.
        with suppress(OSError):
            os.pwrite(guard, note.encode(), 0)
            os.ftruncate(guard, len(note.encode()))
            os.fsync(guard)  # the note has to survive the power cut for which it is made


def _note_of(boot_id: str) -> str:
    # `cleanup` shows it as the name of who has the guard.
    return f"a driver process of boot {boot_id}"


def _noted(guard: int) -> str:
    return os.pread(guard, 200, 0).decode("utf-8", "replace")
