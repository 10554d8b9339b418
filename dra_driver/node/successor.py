# SPDX-License-Identifier: Apache-2.0
"""Put a new state file into the place of a damaged one. Wherever a crash or a full disk ends this, no held row is lost.

1. `write_successor` writes the new file beside the damaged one, with all rows that are kept, and forces it to the disk. While it is
   half written it has another name, and nothing has happened to the damaged file: the next start begins anew.
2. It gets the name `<state file>.new-N`. From then on the damaged file counts for nothing, and `damaged-N` is its next name.
3. `take_place` only renames: the damaged file with its companions, and then the new file. Each start does first what is left of
   this. A file without its log is an older state, so it must never be opened on the way.

Only the process that has the exclusive lock on the guard may do this.
"""

import os
import re
import sqlite3
from collections.abc import Callable, Collection
from contextlib import closing, suppress
from pathlib import Path

from dra_driver.errors import Permanent
from dra_driver.model.state import PreparedClaim
from dra_driver.node.files import never, translated
from dra_driver.node.private import open_private
from dra_driver.node.schema import migrate
from dra_driver.node.transaction import StateTransaction

FAILPOINTS = tuple(
    f"rename.{name}.{when}"
    for name in ("ready", "damaged", "successor")
    for when in ("before", "after")
)
# The file itself goes last. A -journal that stayed would be played back into the new file, and a -wal too.
_SUFFIXES = ("-wal", "-shm", "-journal", "")


def successor_of(path: Path) -> Path | None:
    """Return the complete new file that waits to take the place of the state file; None if there is none."""
    number = re.compile(rf"{re.escape(path.name)}\.new-\d+")
    return next((path.with_name(name) for name in _names(path) if number.fullmatch(name)), None)


def write_successor(
    path: Path,
    kept: Collection[PreparedClaim] = (),
    *,
    point: Callable[[str], None] = never,
) -> Path:
    """Write the new file, with the rows that are kept. Returns its path. An error leaves the damaged file as it was.

    Without rows it is an empty file, which can be made on a full disk too.
    """
    half_written = path.with_name(f"{path.name}.new")
    ready = path.with_name(f"{path.name}.new-{_free_number(path)}")
    try:
        half_written.unlink(missing_ok=True)
        os.close(open_private(half_written))
        if kept:
            _fill(half_written, path, kept)
        point("rename.ready.before")
        half_written.replace(ready)
        _force_names(path)
    except OSError as error:
        raise translated(
            error, f"cannot write a new state file beside the damaged {path}"
        ) from error
    finally:
        with suppress(OSError):  # its name may be `ready` by now
            half_written.unlink(missing_ok=True)
    point("rename.ready.after")
    return ready


def take_place(path: Path, ready: Path, *, point: Callable[[str], None] = never) -> Path:
    """Set the damaged file aside, and give its name to the new one. Returns the damaged file's new path."""
    aside = path.with_name(f"{path.name}.damaged-{ready.name.rpartition('-')[2]}")
    try:
        for suffix in _SUFFIXES:
            old = path.with_name(path.name + suffix)
            if old.exists():
                point("rename.damaged.before")
                old.replace(aside.with_name(aside.name + suffix))
                point("rename.damaged.after")
        _force_names(path)  # after a power cut the new file must not meet the old log
        point("rename.successor.before")
        ready.replace(path)
        point("rename.successor.after")
        _force_names(path)
    except OSError as error:
        raise translated(error, f"cannot set the damaged state file {path} aside") from error
    return aside


def _fill(file: Path, path: Path, kept: Collection[PreparedClaim]) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        # A half-written file is thrown away, so nothing has to be rolled back. Each commit forces it to the disk (synchronous=FULL).
        db.execute("PRAGMA journal_mode = MEMORY")
        db.execute("PRAGMA synchronous = FULL")
        migrate(db)
        db.execute("BEGIN")
        for row in kept:
            try:
                StateTransaction(db, "").restore(row)
            except sqlite3.IntegrityError as error:
                raise Permanent(
                    f"state file {path} is damaged, and a device of held claim {row.ref} is owned by another held claim; nothing "
                    f"was changed: stop the containers that used these devices (`crictl stop`, or a reboot), then run "
                    f"`dra-driver cleanup --force` on this node"
                ) from error
        db.execute("COMMIT")


def _free_number(path: Path) -> int:
    """Return the first number that no damaged file has, nor one of its companions."""
    taken = re.compile(rf"{re.escape(path.name)}\.damaged-(\d+)(?:-.*)?")
    numbers = {int(found[1]) for name in _names(path) if (found := taken.fullmatch(name))}
    return next(number for number in range(1, len(numbers) + 2) if number not in numbers)


def _names(path: Path) -> list[str]:
    try:
        return sorted(found.name for found in path.parent.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise translated(error, f"cannot list {path.parent}") from error


def _force_names(path: Path) -> None:
    """Force the renames in the directory to the disk."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
