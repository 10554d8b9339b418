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
* A damaged file is set aside together with its -wal and -shm, and never deleted. `StateStore.quarantined` is its new path.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from dra_driver.errors import DriverError, Fatal, Permanent, Temporary
from dra_driver.model.state import PreparedClaim
from dra_driver.node.files import never, translated
from dra_driver.node.guard_file import is_of_earlier_boot, note_boot, open_guard
from dra_driver.node.private import close_files
from dra_driver.node.rows import DamagedRow, columns_of, damaged
from dra_driver.node.salvage import held_rows
from dra_driver.node.schema import SCHEMA, check_reader, migrate, triggers_of, version_of
from dra_driver.node.transaction import StateTransaction
from dra_driver.node.wal import LogSeen, check_log, look_at_log

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
    "rename.damaged.before",
    "rename.damaged.after",
)

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
        # Every process that has the file open has a shared lock on the guard. To set the file aside, it needs the exclusive lock.
        self._guard, alone = open_guard(path)
        try:
            self._db = self._open(alone=alone)
            if alone:
                note_boot(self._guard, boot_id)
            fcntl.flock(self._guard, fcntl.LOCK_SH)
        except BaseException:
            os.close(self._guard)
            raise

    @contextmanager
    def transaction(self, commit: str) -> Iterator[StateTransaction]:
        """Run the body in one transaction that commits under this name (one of COMMITS). An exception undoes everything."""
        with self._mutex, self._translated(), self._synchronous(commit):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield StateTransaction(self._db, self.boot_id)
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
            yield StateTransaction(self._db, self.boot_id)

    def close(self) -> None:
        """Close the file. The store cannot be used afterwards."""
        with self._mutex:
            self._db.close()
            os.close(self._guard)

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
            raise _driver_error(error, self.path, self._busy_seconds) from error

    def _open(self, *, alone: bool) -> sqlite3.Connection:
        with self._translated():
            try:
                return self._connect(alone=alone)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error, self.path):
                    raise
                self.quarantined = aside = _set_aside(self.path, self._guard, self._point)
                believed = held_rows(aside) if isinstance(error, DamagedRow) else ()
            db = self._connect(alone=alone)
            for row in believed:
                StateTransaction(db, self.boot_id).start(row)
            return db

    def _connect(self, *, alone: bool) -> sqlite3.Connection:
        close_files(self.path)
        # Only the first process can check whether the log is whole. A later process finds the log that the first one has accepted.
        # Nor after a power cut, which may have lost the end of the log: then only the commit of a preparation is missing.
        checked = alone and not is_of_earlier_boot(self._guard, self.boot_id)
        seen = look_at_log(self.path) if checked else None
        db = sqlite3.connect(
            self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            check_reader(db, self.path)
            # On a filesystem without WAL, SQLite keeps the rollback journal and returns that mode.
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
            self._has_log = mode == "wal"
            db.execute("PRAGMA synchronous = FULL")
            if seen is not None:
                _check_log(db, self.path, seen)
            _check(db)
            migrate(db)
        except BaseException:
            db.close()
            raise
        return db


def read_claims(path: Path) -> tuple[PreparedClaim, ...]:
    """Read the claims of a state file of any schema, without changing the file; empty if the file does not exist.

    Raises DriverError if the file cannot be read, also if only newer drivers may read it.
    """
    try:
        if not path.exists():
            return ()
    except PermissionError as error:
        raise Permanent(
            f"cannot look at state file {path}: permission denied; it is root's alone, so run this command as root"
        ) from error
    try:
        # "rw" makes no new file, but allows writes: SQLite needs them for commits that a killed process left in the -wal.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as db:
            check_reader(db, path)
            _check(db)
            return _every_claim(db) if version_of(db) else ()
    except sqlite3.Error as error:
        raise _driver_error(error, path, BUSY_SECONDS) from error


def _check(db: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if the content is not as it was written."""
    found = db.execute("PRAGMA quick_check").fetchone()
    if found != ("ok",):
        raise damaged(f"quick_check: {found}")
    if not version_of(db):
        return  # nothing in it yet
    stored = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_schema WHERE type = 'trigger'")}
    if any(one not in stored for one in triggers_of(version_of(db))):
        raise damaged("a trigger is not as it was written")
    db.execute("BEGIN")  # both tables of one moment
    claims = _every_claim(db)
    owners = set(db.execute("SELECT pool, device, share, claim_uid FROM owners"))
    db.execute("COMMIT")
    owed = {
        (key.pool, key.device, key.share, claim.ref.uid) for claim in claims for key in claim.owned
    }
    if owners != owed and version_of(db) <= SCHEMA:  # claims of a newer driver may own more
        raise damaged(f"the owners {sorted(owners)} are not those of the claims, {sorted(owed)}")


def _every_claim(db: sqlite3.Connection) -> tuple[PreparedClaim, ...]:
    """Read the claims of a file of any schema, before the file is migrated."""
    return StateTransaction(db, "", columns=columns_of(version_of(db))).all_claims()


def _check_log(db: sqlite3.Connection, path: Path, seen: LogSeen) -> None:
    # A checkpoint copies the valid frames into the main file, and returns their number; -1 if the database has no log.
    _, taken, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    page_bytes = db.execute("PRAGMA page_size").fetchone()[0]
    check_log(path, seen, taken=max(taken, 0), page_bytes=page_bytes)


def _set_aside(path: Path, guard: int, point: Callable[[str], None] = never) -> Path:
    """Rename the damaged file and its companions. Returns the new name."""
    try:
        fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Fatal(
            f"state file {path} is damaged and another driver process has it open; end that process first"
        ) from error
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    try:
        for suffix in ("-wal", "-shm", ""):
            companion = path.with_name(path.name + suffix)
            if companion.exists():
                point("rename.damaged.before")
                companion.replace(aside.with_name(aside.name + suffix))
                point("rename.damaged.after")
        fcntl.flock(guard, fcntl.LOCK_SH)
    except OSError as error:
        raise translated(error, f"cannot set the damaged state file {path} aside") from error
    return aside


def _is_damage(error: sqlite3.Error, path: Path) -> bool:
    """Whether the file itself is damaged. If not, another process, the disk or the directory is the reason of the error."""
    if _code(error) in _REFUSED:
        # A damaged header may say that only newer SQLite libraries may write. Then SQLite opens the file read-only.
        plainly = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY
        return plainly and os.access(path, os.W_OK)
    return _code(error) not in _PASSING


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; 0 for an error of the Python module itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _driver_error(error: sqlite3.Error, path: Path, busy_seconds: float) -> DriverError:
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
        return Permanent(f"cannot write state file {path}: {error}; its directory must be writable")
    return Permanent(
        f"state file {path}: {error}; restart the driver, which sets a damaged file aside and rebuilds it"
    )
