# SPDX-License-Identifier: Apache-2.0
"""How does `dra-driver doctor` read the state file of a host, which may be another machine's disk?

SQLite writes beside the file when it opens it, and follows links there. At a foreign root it opens a copy, so nothing on the host is
changed and no link of the host leads out of it. On this machine it opens the file itself, as the driver does.
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from dra_driver.daemon.dependencies import STATE_FILE
from dra_driver.daemon.host import Host
from dra_driver.errors import DriverError
from dra_driver.model.state import PreparedClaim, Unknown
from dra_driver.node.files import content_of
from dra_driver.node.state import read_claims

LARGEST = 64 * 2**20
"""Of the file and of its log, in bytes. A thousand claims take a few MiB."""
_LOG = "-wal"
_TRIES = 3
_MEMORY = Path("/dev/shm")  # noqa: S108  the copy is in a folder of its own, with mode 0700
"""Where a container may write whose own file system is read-only."""


def claims_of(host: Host, state_dir: Path) -> tuple[PreparedClaim, ...] | str | Unknown:
    """Return the claims in the state file; why it cannot be read; or `Unknown` if this user may not read it.

    `state_dir` is the host's path.
    """
    shown = state_dir / STATE_FILE
    file = host.outside(shown)
    try:
        is_file = content_of(file, most=0, links=False) is not None
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except PermissionError:
        return Unknown(f"this user may not read {shown}")
    except OSError as error:
        return f"cannot read {shown}: {error.strerror}"
    if not is_file:
        return f"{shown} is no regular file; find out who made it, then remove it"
    return _read(file, shown) if host.is_this_machine else _read_copy(file, shown)


def _read(file: Path, shown: Path) -> tuple[PreparedClaim, ...] | str:
    try:
        return read_claims(file)
    except DriverError as error:
        return str(error).replace(str(file), str(shown))


def _read_copy(file: Path, shown: Path) -> tuple[PreparedClaim, ...] | str | Unknown:
    try:
        with TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None) as folder:
            copy = Path(folder) / STATE_FILE
            if any(_copy(file, copy) for _ in range(_TRIES)):
                return _read(copy, shown)
    except OSError as error:
        return Unknown(f"cannot copy {shown} to read it: {error.strerror}")
    return Unknown(
        f"cannot copy {shown} to read it: a driver writes it just now, or it or its log is larger than {LARGEST} bytes"
    )


def _copy(file: Path, copy: Path) -> bool:
    """Copy a state file with its log, which has the latest commits. Returns whether both are of one moment. Raises OSError."""
    log = file.with_name(file.name + _LOG)
    before = _look(file), _look(log)
    for one, target in ((file, copy), (log, copy.with_name(copy.name + _LOG))):
        target.unlink(missing_ok=True)
        try:
            content = content_of(one, most=LARGEST + 1, links=False)
        except FileNotFoundError:
            continue
        if content is None or len(content) > LARGEST:
            return False
        target.write_bytes(content)
    return before == (_look(file), _look(log))


def _look(path: Path) -> tuple[int, int, int] | None:
    """Return what changes with each write; None if there is nothing."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
