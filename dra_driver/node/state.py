# SPDX-License-Identifier: Apache-2.0
"""Keep the state of this node in SQLite: claims, owners of devices, and published devices. The state survives crashes, and two
processes share it during an update.

Rules of this file:

* Only committed transactions change the file. When a commit returns, it is on disk (synchronous=FULL), except "prepared": it is in
  the kernel's memory then, and on disk with the next commit. A killed process loses nothing by that. A power cut may lose it, but ends
  the boot too, and after a boot a Prepared row is a Started one again (`dra_driver.planning.recover`). "started" is on disk before
  hardware is set up.
* The table `owners` has one row for each (pool, device, share). SQLite itself refuses a second owner, an owner of a share beside an
  owner of the whole device, and owners of different devices that are the same hardware (`dra_driver.node.transaction`).
* A kubelet's call takes the same time for one prepared claim and for 1000, because it reads all rows by key.
* A damaged file is set aside together with its -wal and -shm, and never deleted. `StateStore.quarantined` is its new path. Its place
  is taken by a file that has the rows which are kept, so that no crash loses them (`dra_driver.node.successor`).
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from dra_driver.errors import DriverError, Fatal, Permanent
from dra_driver.model.state import PreparedClaim
from dra_driver.node.content import check_content, every_claim
from dra_driver.node.decoded_rows import DecodedRows
from dra_driver.node.files import never
from dra_driver.node.guard_file import is_of_earlier_boot, note_boot, open_guard
from dra_driver.node.opened import open_to_look, open_to_write, strict
from dra_driver.node.private import close_files
from dra_driver.node.rows import DamagedRow
from dra_driver.node.salvage import held_rows
from dra_driver.node.schema import check_reader, migrate, version_of
from dra_driver.node.sqlite_errors import driver_error, is_damage
from dra_driver.node.successor import FAILPOINTS as SUCCESSOR_FAILPOINTS
from dra_driver.node.successor import successor_of, take_place, write_successor
from dra_driver.node.transaction import StateTransaction
from dra_driver.node.wal import check_log

# Together with the 35 s of a call this is less than 40 s; a transaction takes milliseconds.
BUSY_SECONDS = 4
COMMITS = (
    "started",
    "prepared",
    "joined",
    "releasing",
    "learned",
    "undone",
    "released",
    "recovered",
    "published",
)
# A preparation waits for the disk once, at "started".
_MAY_BE_LOST_WITH_THE_BOOT = ("prepared",)
FAILPOINTS = (
    *(f"commit.{name}.{when}" for name in COMMITS for when in ("before", "after")),
    *SUCCESSOR_FAILPOINTS,
)


class StateStore:
    """The open state file. Threads may share it; one transaction runs at a time.

    Besides SQLite's own locks each process has a lock on the guard file. A process may rename a damaged file only while no other
    process has it open, and SQLite's locks do not show which processes have it open.
    """

    def __init__(
        self,
        path: Path,
        *,
        boot_id: str,
        point: Callable[[str], None] = never,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self.path = path
        self.quarantined: Path | None = None
        self.boot_id = boot_id
        self._point = point
        self._busy_seconds = busy_seconds
        self._has_log = False
        self._mutex = threading.Lock()
        self._decoded = DecodedRows()
        # Every process that has the file open has a shared lock on the guard. To set the file aside, it needs the exclusive lock.
        self._guard, alone = open_guard(path)
        try:
            self._db = self._open(alone=alone)
            if alone:
                note_boot(self._guard, boot_id)
            fcntl.flock(self._guard, fcntl.LOCK_SH)
        except BaseException as error:
            os.close(self._guard)
            self._name_damage(error)
            raise

    @contextmanager
    def transaction(self, commit: str) -> Iterator[StateTransaction]:
        """Run the body in one transaction that commits under this name (one of COMMITS). An exception undoes everything."""
        with self._mutex, self._translated(), self._synchronous(commit):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield StateTransaction(self._db, self.boot_id, decoded=self._decoded)
                self._point(f"commit.{commit}.before")
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise
        self._point(f"commit.{commit}.after")

    @contextmanager
    def reading(self) -> Iterator[StateTransaction]:
        """Read without a transaction. The body must not write."""
        with self._mutex, self._translated():
            yield StateTransaction(self._db, self.boot_id, decoded=self._decoded)

    def close(self) -> None:
        """Close the file. The store cannot be used afterwards."""
        with self._mutex:
            self._db.close()
            os.close(self._guard)

    def _name_damage(self, error: BaseException) -> None:
        """Say that a file was set aside: the next start finds the new one in its place, and cannot say it."""
        if self.quarantined is not None and isinstance(error, DriverError):
            error.args = (
                f"{error}. Before this, the damaged state file was set aside as {self.quarantined}",
            )

    @contextmanager
    def _synchronous(self, commit: str) -> Iterator[None]:
        # A rollback journal that was not forced to the disk can damage the file itself.
        if commit not in _MAY_BE_LOST_WITH_THE_BOOT or not self._has_log:
            yield
            return
        self._db.execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            self._db.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise driver_error(error, self.path, self._busy_seconds) from error

    def _open(self, *, alone: bool) -> sqlite3.Connection:
        with self._translated():
            self._finish_replacing()  # an earlier start may have ended in the middle of it
            try:
                return self._connect(alone=alone)
            except DamagedRow:
                self._condemn(held_rows(self.path))
            except sqlite3.DatabaseError as error:
                if not is_damage(error, self.path):
                    raise
                self._condemn()
            self._finish_replacing()
            return self._connect(alone=alone)

    def _condemn(self, kept: Collection[PreparedClaim] = ()) -> None:
        """Decide that the damaged file is replaced. Nothing is renamed yet."""
        _get_alone(self.path, self._guard)
        write_successor(self.path, kept, point=self._point)

    def _finish_replacing(self) -> None:
        ready = successor_of(self.path)
        if ready is not None:
            _get_alone(self.path, self._guard)
            self.quarantined = take_place(self.path, ready, point=self._point)

    def _connect(self, *, alone: bool) -> sqlite3.Connection:
        close_files(self.path)
        # Only the first process can check whether the log is whole. A later process finds the log that the first one has accepted.
        # Nor after a power cut, which may have lost the end of the log: then only the commit of a preparation is missing.
        checked = alone and not is_of_earlier_boot(self._guard, self.boot_id)
        if checked:
            check_log(self.path)
        db = open_to_write(self.path, self._busy_seconds)
        try:
            check_reader(db, self.path)
            # On a filesystem without WAL, SQLite keeps the rollback journal and returns that mode.
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
            self._has_log = mode == "wal"
            db.execute("PRAGMA synchronous = FULL")
            check_content(db)
            migrate(db)
        except BaseException:
            # To close it takes the log up. What is damaged in the pages or in a row is as damaged then.
            db.close()
            raise
        strict(db)
        return db


def read_claims(path: Path) -> tuple[PreparedClaim, ...]:
    """Read the claims of a state file of any schema; empty if the file does not exist or is empty. The file and its log stay as they are, so
    that the driver's next start can check them.

    Raises DriverError if the file cannot be read, also if only newer drivers may read it.
    """
    try:
        # SQLite would remove the log beside an empty file, and with it the trace of what was lost.
        has_content = path.stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        has_content = False
    except PermissionError as error:
        raise Permanent(
            f"cannot look at state file {path}: permission denied; it is root's alone, so run this command as root"
        ) from error
    ready = successor_of(path)  # the driver's next start begins with it
    if not has_content and ready is None:
        return ()
    path = ready or path
    try:
        with closing(open_to_look(path)) as db:
            check_reader(db, path)
            check_content(db)
            return every_claim(db) if version_of(db) else ()
    except sqlite3.Error as error:
        raise driver_error(error, path, BUSY_SECONDS) from error


def _get_alone(path: Path, guard: int) -> None:
    """Take the exclusive lock on the guard: only then may the state file be renamed."""
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Fatal(
            f"state file {path} is damaged and another driver process has it open; end that process first"
        ) from error
