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
* Migrations only add: tables, columns that may be NULL, indices, triggers. `user_version` is the newest schema that wrote the
  file. A driver may read the file only if its own schema is at least `min_reader`. So an older driver goes on working after a
  rollback. A driver reads and writes the tables and columns that it knows, and leaves all others as they are.
* A release that needs a higher `min_reader` may raise it only in the next minor version or later. Before that, the driver of the
  previous version can run beside the new one during an update, and must still be able to read the file. The meaning of today's
  tables and columns, and of the words for phases, changes only in the same way.
* A damaged file is set aside together with its -wal and -shm, and never deleted. `StateStore.quarantined` is its new path.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import chain
from pathlib import Path

from dra_driver.errors import DriverError, Fatal, Permanent, Temporary
from dra_driver.model.state import PreparedClaim
from dra_driver.node.files import never, translated
from dra_driver.node.lock import leads_to, try_lock
from dra_driver.node.private import close_directory, close_files, open_private
from dra_driver.node.rows import DamagedRow, columns_of, damaged
from dra_driver.node.salvage import held_rows
from dra_driver.node.transaction import StateTransaction
from dra_driver.node.wal import LogSeen, check_log, look_at_log

SCHEMA = 4
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

# From each schema to the next, statement by statement.
_MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "INSERT INTO meta VALUES ('min_reader', '1')",
        """CREATE TABLE claims (
            uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL,
            phase TEXT NOT NULL, boot_id TEXT NOT NULL, devices TEXT NOT NULL, cdi_spec TEXT NOT NULL
        ) WITHOUT ROWID""",
        """CREATE TABLE owners (
            pool TEXT NOT NULL, device TEXT NOT NULL, share TEXT NOT NULL, claim_uid TEXT NOT NULL,
            PRIMARY KEY (pool, device, share)
        ) WITHOUT ROWID""",
        "CREATE INDEX owners_by_claim ON owners (claim_uid)",
    ),
    # The published devices. If a device vanished while the driver was down, the driver can publish it again as it was.
    (
        """CREATE TABLE published (
            pool TEXT NOT NULL, position INTEGER NOT NULL, device TEXT NOT NULL, content TEXT NOT NULL,
            PRIMARY KEY (pool, position)
        ) WITHOUT ROWID""",
    ),
    # The users of a claim, and whether it is held. A device is owned as a whole or by shares, never both.
    (
        "ALTER TABLE claims ADD COLUMN users TEXT",
        "ALTER TABLE claims ADD COLUMN held TEXT",
        """CREATE TRIGGER owners_whole_or_shares BEFORE INSERT ON owners
            WHEN EXISTS (
                SELECT 1 FROM owners WHERE pool = NEW.pool AND device = NEW.device AND (share = '') <> (NEW.share = '')
            )
            BEGIN SELECT RAISE(ABORT, 'a whole device and its shares exclude each other'); END""",
    ),
    # The leases of a claim, the physical resource behind each device, what each owner occupies of it, and what shares consume.
    (
        "ALTER TABLE claims ADD COLUMN leases TEXT",
        "ALTER TABLE claims ADD COLUMN metadata TEXT",
        """CREATE TABLE hardware (
            pool TEXT NOT NULL, device TEXT NOT NULL, parent TEXT NOT NULL, part TEXT NOT NULL,
            PRIMARY KEY (pool, device, parent, part)
        ) WITHOUT ROWID""",
        """CREATE TABLE occupied (
            parent TEXT NOT NULL, part TEXT NOT NULL, pool TEXT NOT NULL, device TEXT NOT NULL, share TEXT NOT NULL,
            claim_uid TEXT NOT NULL, PRIMARY KEY (parent, part, pool, device, share)
        ) WITHOUT ROWID""",
        "CREATE INDEX occupied_by_claim ON occupied (claim_uid)",
        """CREATE TRIGGER occupied_once BEFORE INSERT ON occupied
            WHEN EXISTS (
                SELECT 1 FROM occupied WHERE parent = NEW.parent AND (part = NEW.part OR part = '' OR NEW.part = '')
                    AND (pool, device) <> (NEW.pool, NEW.device)
            )
            BEGIN SELECT RAISE(ABORT, 'devices that are the same hardware exclude each other'); END""",
        """CREATE TRIGGER owner_occupies AFTER INSERT ON owners
            BEGIN INSERT INTO occupied (parent, part, pool, device, share, claim_uid)
                SELECT parent, part, NEW.pool, NEW.device, NEW.share, NEW.claim_uid FROM hardware
                WHERE pool = NEW.pool AND device = NEW.device;
            END""",
        """CREATE TRIGGER owner_leaves AFTER DELETE ON owners
            BEGIN DELETE FROM occupied WHERE claim_uid = OLD.claim_uid AND pool = OLD.pool AND device = OLD.device
                AND share = OLD.share;
            END""",
        """CREATE TABLE consumed (
            pool TEXT NOT NULL, device TEXT NOT NULL, share TEXT NOT NULL, capacity TEXT NOT NULL, claim_uid TEXT NOT NULL,
            large INTEGER NOT NULL, small INTEGER NOT NULL, PRIMARY KEY (pool, device, share, capacity)
        ) WITHOUT ROWID""",
        "CREATE INDEX consumed_by_capacity ON consumed (pool, device, capacity, claim_uid, large, small)",
        """CREATE TRIGGER owner_consumes_no_more AFTER DELETE ON owners
            BEGIN DELETE FROM consumed WHERE pool = OLD.pool AND device = OLD.device AND share = OLD.share;
            END""",
    ),
)
# SQLite's result codes, by who must act.
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DISK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_REFUSED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_PASSING = (*_LOCKED, *_DISK, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT)


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
        self._guard, alone = _open_guard(path)
        try:
            self._db = self._open(alone=alone)
            if alone:
                _note_boot(self._guard, boot_id)
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
        checked = alone and _boot_noted(self._guard) in ("", _note_of(self.boot_id))
        seen = look_at_log(self.path) if checked else None
        db = sqlite3.connect(
            self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            _check_reader(db, self.path)
            # On a filesystem without WAL, SQLite keeps the rollback journal and returns that mode.
            (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
            self._has_log = mode == "wal"
            db.execute("PRAGMA synchronous = FULL")
            if seen is not None:
                _check_log(db, self.path, seen)
            _check(db)
            _migrate(db)
        except BaseException:
            db.close()
            raise
        return db


def guard_of(path: Path) -> Path:
    """Return the path of the guard file. Every process that has the state open has a shared lock on the guard file."""
    return path.with_name(f"{path.name}.guard")


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
            _check_reader(db, path)
            _check(db)
            return _every_claim(db) if _version(db) else ()
    except sqlite3.Error as error:
        raise _driver_error(error, path, BUSY_SECONDS) from error


def _open_guard(path: Path) -> tuple[int, bool]:
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


def _note_of(boot_id: str) -> str:
    # `cleanup` shows it as the name of who has the guard.
    return f"a driver process of boot {boot_id}"


def _boot_noted(guard: int) -> str:
    """Return the note of the boot in which the state was opened last; empty if no driver has written one."""
    return os.pread(guard, 200, 0).decode("utf-8", "replace")


def _note_boot(guard: int, boot_id: str) -> None:
    note = _note_of(boot_id)
    if _boot_noted(guard) != note:
        # On a full disk the driver starts all the same: a start that finds no note checks the log.
        with suppress(OSError):
            os.ftruncate(guard, 0)
            os.pwrite(guard, note.encode(), 0)
            os.fsync(guard)  # the note has to survive the power cut for which it is made


def _check(db: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if the content is not as it was written."""
    found = db.execute("PRAGMA quick_check").fetchone()
    if found != ("ok",):
        raise damaged(f"quick_check: {found}")
    if not _version(db):
        return  # nothing in it yet
    stored = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_schema WHERE type = 'trigger'")}
    ours = chain.from_iterable(_MIGRATIONS[: _version(db)])
    if any(one.startswith("CREATE TRIGGER") and one not in stored for one in ours):
        raise damaged("a trigger is not as it was written")
    db.execute("BEGIN")  # both tables of one moment
    claims = _every_claim(db)
    owners = set(db.execute("SELECT pool, device, share, claim_uid FROM owners"))
    db.execute("COMMIT")
    owed = {
        (key.pool, key.device, key.share, claim.ref.uid) for claim in claims for key in claim.owned
    }
    if owners != owed and _version(db) <= SCHEMA:  # claims of a newer driver may own more
        raise damaged(f"the owners {sorted(owners)} are not those of the claims, {sorted(owed)}")


def _every_claim(db: sqlite3.Connection) -> tuple[PreparedClaim, ...]:
    """Read the claims of a file of any schema, before the file is migrated."""
    return StateTransaction(db, "", columns=columns_of(_version(db))).all_claims()


def _check_log(db: sqlite3.Connection, path: Path, seen: LogSeen) -> None:
    # A checkpoint copies the valid frames into the main file, and returns their number; -1 if the database has no log.
    _, taken, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    page_bytes = db.execute("PRAGMA page_size").fetchone()[0]
    check_log(path, seen, taken=max(taken, 0), page_bytes=page_bytes)


def _migrate(db: sqlite3.Connection) -> None:
    db.execute("BEGIN IMMEDIATE")
    version = _version(db)
    for statements in _MIGRATIONS[version:]:
        for statement in statements:
            db.execute(statement)
    if version < SCHEMA:
        db.execute(f"PRAGMA user_version = {SCHEMA}")
    db.execute("COMMIT")


def _version(db: sqlite3.Connection) -> int:
    found: int = db.execute("PRAGMA user_version").fetchone()[0]
    return found


def _check_reader(db: sqlite3.Connection, path: Path) -> None:
    """Raise Fatal if a newer driver wrote the file and this driver may not read it. Nothing is written."""
    version = _version(db)
    if version <= SCHEMA:
        return
    try:
        row = db.execute("SELECT value FROM meta WHERE key = 'min_reader'").fetchone()
        needed = int(row[0])
    except (sqlite3.OperationalError, TypeError, ValueError):
        needed = version  # the file does not say which older drivers may read it
    if needed > SCHEMA:
        raise Fatal(
            f"state file {path} needs a driver that reads schema {needed}, this one reads {SCHEMA}; nothing was changed: "
            f"install the newer driver again, or drain the node and run `dra-driver cleanup --force` on it"
        )


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
    if code in _DISK:
        return Temporary(
            f"cannot write state file {path}: {error}; free space on its disk, the kubelet tries again"
        )
    if code in _REFUSED:
        return Permanent(f"cannot write state file {path}: {error}; its directory must be writable")
    return Permanent(
        f"state file {path}: {error}; restart the driver, which sets a damaged file aside and rebuilds it"
    )
