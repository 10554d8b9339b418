# SPDX-License-Identifier: Apache-2.0
"""Write, read and remove files.

A file appears as a whole or not at all, so no reader sees half of a file. The driver does *not* force these files to the disk
(fsync): only the state has to survive a power cut, and the driver can write every file again from the state.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from dra_driver.errors import DriverError, Permanent, Temporary

TEMPORARY_SUFFIX = ".tmp"  # not .json or .yaml: no CDI reader looks at it
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# Different in each process. Process numbers may be equal, because each container has its own PID namespace.
_OURS = secrets.token_hex(4)
_numbers = count()
FAILPOINTS = ("rename.file.before", "rename.file.after")

_NEXT_STEPS = {
    errno.ENOSPC: "the disk is full; free space, the kubelet tries again",
    errno.EDQUOT: "the disk quota is used up; free space, the kubelet tries again",
    errno.EROFS: "the filesystem is read-only; mount it writable",
    errno.EACCES: "permission denied; the driver runs as root with this directory mounted writable",
    errno.EPERM: "not permitted; the driver runs as root with this directory mounted writable",
    errno.ENOENT: "the directory does not exist; create it or correct the path",
    errno.ELOOP: (
        "a symbolic link stands there, which the driver neither makes nor follows; find out who made it, then remove it"
    ),
}
_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE)


def never(_point: str) -> None:
    """A failpoint that does nothing."""


def write_atomic(
    path: Path, text: str, *, point: Callable[[str], None] = never, name: str = "file"
) -> None:
    """Write `text` to `path` in one step. After an error the file still has its old content, and no temporary file is left.

    `name` is the middle word of the failpoints.
    """
    temporary: Path | None = None
    try:
        beside = path.with_name(f".{path.name}.{_OURS}-{next(_numbers)}{TEMPORARY_SUFFIX}")
        handle = os.open(beside, _NEW, 0o600)
        temporary = beside
        try:
            left = memoryview(text.encode())
            while left:  # a signal or a full disk ends a write early
                left = left[os.write(handle, left) :]
            os.fchmod(handle, 0o644)
        finally:
            os.close(handle)
        point(f"rename.{name}.before")
        _rename(temporary, path)
        temporary = None
        point(f"rename.{name}.after")
    except OSError as error:
        raise translated(error, f"cannot write {path}") from error
    finally:
        if temporary is not None:
            with suppress(
                OSError
            ):  # on a filesystem that became read-only the file stays until the next start
                temporary.unlink(missing_ok=True)


def _rename(temporary: Path, path: Path) -> None:
    try:
        temporary.replace(path)
    except FileNotFoundError as error:
        # A driver removes temporary files when it starts. Another driver process may have removed the file of this process.
        raise Temporary(
            f"cannot write {path}: somebody removed {temporary.name} meanwhile; it is tried again"
        ) from error


def content_of(path: Path, *, most: int, links: bool = True) -> bytes | None:
    """Return the first `most` bytes of a file that others may have made; None if it is no file. Without `links` a symbolic link is an error.

    Raises OSError.
    """
    # Without waiting: a named pipe would hang until somebody writes.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags if links else flags | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read(most)


def remove(path: Path) -> None:
    """Remove a file, if it exists."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise translated(error, f"cannot remove {path}") from error


def refused_link(tried: str) -> DriverError:
    """Return the error for a symbolic link in the place of the driver's own file."""
    return translated(OSError(errno.ELOOP, os.strerror(errno.ELOOP)), tried)


def translated(error: OSError, tried: str) -> DriverError:
    """Make a DriverError from an OSError, with the operator's next step."""
    code = error.errno or 0
    message = f"{tried}: {_NEXT_STEPS.get(code, os.strerror(code))}"
    return Temporary(message) if code in _PASSING else Permanent(message)
