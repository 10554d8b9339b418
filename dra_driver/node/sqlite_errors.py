# SPDX-License-Identifier: Apache-2.0
"""Which errors of SQLite say that the state file is damaged, and what does an operator do about the others?"""

import os
import sqlite3
from pathlib import Path

from dra_driver.errors import DriverError, Permanent, Temporary

# SQLite's result codes, by who must act.
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_REFUSED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_PASSING = (
    *_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
)


def damaged(what: str) -> sqlite3.DatabaseError:
    """Return an error for damage that this driver found: the same error that SQLite raises for a damaged page."""
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def is_damage(error: sqlite3.Error, path: Path) -> bool:
    """Whether the file itself is damaged. If not, another process, the disk or the directory is the reason of the error."""
    if _code(error) in _REFUSED:
        # A damaged header may say that only newer SQLite libraries may write. Then SQLite opens the file read-only.
        plainly = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY
        return plainly and os.access(path, os.W_OK)
    return _code(error) not in _PASSING


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; 0 for an error of the Python module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def driver_error(error: sqlite3.Error, path: Path, busy_seconds: float) -> DriverError:
    code = _code(error)
    if code in _LOCKED:
        return Temporary(
            f"state file {path} is locked by another process for longer than {busy_seconds:g} s; `fuser {path}` names it"
        )
    if code == sqlite3.SQLITE_FULL:
        return Temporary(
            f"cannot write state file {path}: {error}; free space on its disk, the kubelet tries again"
        )
    if (
        code == sqlite3.SQLITE_IOERR
    ):  # SQLite calls it so too if the disk is full for its index of the log
        return Temporary(
            f"cannot read or write state file {path}: {error}; free space on its disk if it is full, else look for its errors "
            f"in the kernel's log (`dmesg`); the kubelet tries again"
        )
    if code in _REFUSED:
        return Permanent(
            f"cannot open or write state file {path}: {error}; its directory must be writable, also for a command that only reads it"
        )
    return Permanent(
        f"state file {path}: {error}; restart the driver, which sets a damaged file aside and rebuilds it"
    )
