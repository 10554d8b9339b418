# SPDX-License-Identifier: Apache-2.0
"""What this node remembers about claims, in SQLite: crash-safe, shared by two processes during an update.

Rules that this file keeps:

* A commit is the only moment at which anything counts; it is on disk when it returns (synchronous=FULL).
* The table `owners` has one row for each (pool, device, share): SQLite itself refuses a second owner.
* Costs of a call do not depend on how many claims are prepared: everything is read by key.
* Migrations only add. `user_version` is the newest schema that wrote the file, `min_reader` the oldest driver schema
  that may still read it, so that a rolled-back driver goes on working.
* A file that SQLite cannot read is set aside together with its -wal and -shm, never deleted; the caller learns it.
"""

import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dra_driver.errors import DriverError, Fatal, Permanent, Temporary
from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import ClaimUid, DeviceKey, DeviceName, PoolName, ShareId
from dra_driver.model.state import NodeState, Phase, PreparedClaim, PreparedDevice
from dra_driver.node.files import never, translated

SCHEMA = 1
BUSY_SECONDS = 4  # with the 35 s of a call less than 40 s; a transaction takes milliseconds
COMMITS = ("started", "prepared", "released", "recovered")
FAILPOINTS = (
    *(f"commit.{name}.{when}" for name in COMMITS for when in ("before", "after")),
    "rename.damaged.before",
    "rename.damaged.after",
)

_MIGRATIONS = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    INSERT INTO meta VALUES ('min_reader', '1');
    CREATE TABLE claims (
        uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL,
        phase TEXT NOT NULL, boot_id TEXT NOT NULL, devices TEXT NOT NULL, cdi_spec TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE owners (
        pool TEXT NOT NULL, device TEXT NOT NULL, share TEXT NOT NULL, claim_uid TEXT NOT NULL,
        PRIMARY KEY (pool, device, share)
    ) WITHOUT ROWID;
    CREATE INDEX owners_by_claim ON owners (claim_uid);
    """,
)
# What SQLite's result codes mean for whoever must act.
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DISK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_REFUSED = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_CLAIM_COLUMNS = "uid, namespace, name, phase, boot_id, devices, cdi_spec"


class StateTransaction:
    """One transaction: what is decided inside it holds until it commits."""

    def __init__(self, connection: sqlite3.Connection, boot_id: str) -> None:
        self._db = connection
        self._boot_id = boot_id

    def read(self, *, uids: Iterable[ClaimUid] = (), keys: Iterable[DeviceKey] = ()) -> NodeState:
        """These claims and the owners of these keys, as far as there are any."""
        claims = {uid: claim for uid in uids if (claim := self._claim(uid)) is not None}
        owners = {key: owner for key in keys if (owner := self._owner(key)) is not None}
        return NodeState(self._boot_id, claims, owners)

    def start(self, claim: PreparedClaim) -> None:
        """Reserve the claim's devices and write its row; Permanent when another claim owns one of them."""
        self.forget(claim.ref.uid)
        for key in claim.owned:
            try:
                self._db.execute(
                    "INSERT INTO owners (pool, device, share, claim_uid) VALUES (?, ?, ?, ?)",
                    (key.pool, key.device, key.share, claim.ref.uid),
                )
            except sqlite3.IntegrityError as error:
                raise Permanent(
                    f"device {key} of claim {claim.ref} is owned by claim {self._owner(key)}"
                ) from error
        row = (
            claim.ref.uid,
            claim.ref.namespace,
            claim.ref.name,
            claim.phase.value,
            claim.boot_id,
            _dump_devices(claim.devices),
            claim.cdi_spec,
        )
        # Columns by name: a newer driver may have added others.
        self._db.execute(f"INSERT INTO claims ({_CLAIM_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)  # noqa: S608  a constant

    def set_phase(self, uid: ClaimUid, phase: Phase) -> None:
        """Move a claim between Started and Prepared; an unknown one is left unknown."""
        self._db.execute("UPDATE claims SET phase = ? WHERE uid = ?", (phase.value, uid))

    def forget(self, uid: ClaimUid) -> None:
        """Release the claim's devices and drop its row; an unknown claim is fine."""
        self._db.execute("DELETE FROM owners WHERE claim_uid = ?", (uid,))
        self._db.execute("DELETE FROM claims WHERE uid = ?", (uid,))

    def all_claims(self) -> tuple[PreparedClaim, ...]:
        """Every claim, by UID; for the start and for tools, never for a kubelet's call."""
        rows = self._db.execute(f"SELECT {_CLAIM_COLUMNS} FROM claims ORDER BY uid")  # noqa: S608  a constant
        return tuple(_load_claim(row) for row in rows)

    def owned_devices(self, pool: PoolName) -> frozenset[DeviceName]:
        """Devices of the pool that some claim owns, wholly or by a share."""
        rows = self._db.execute("SELECT DISTINCT device FROM owners WHERE pool = ?", (pool,))
        return frozenset(DeviceName(device) for (device,) in rows)

    def _claim(self, uid: ClaimUid) -> PreparedClaim | None:
        row = self._db.execute(
            f"SELECT {_CLAIM_COLUMNS} FROM claims WHERE uid = ?",  # noqa: S608  a constant
            (uid,),
        ).fetchone()
        return _load_claim(row) if row else None

    def _owner(self, key: DeviceKey) -> ClaimRef | None:
        row = self._db.execute(
            "SELECT namespace, name, uid FROM owners JOIN claims ON uid = claim_uid WHERE pool = ? AND device = ? AND share = ?",
            (key.pool, key.device, key.share),
        ).fetchone()
        return ClaimRef(row[0], row[1], ClaimUid(row[2])) if row else None


class StateStore:
    """The open state file. Threads may share it; one transaction runs at a time."""

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
        self._mutex = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise translated(error, f"cannot make state directory {path.parent}") from error
        # Every process that has the file open holds this lock shared; setting the file aside takes it alone.
        self._guard = _open_guard(path)
        try:
            self._db = self._open()
        except BaseException:
            os.close(self._guard)
            raise

    @contextmanager
    def transaction(self, commit: str) -> Iterator[StateTransaction]:
        """Run the body in one transaction that commits under this name (one of COMMITS); an exception undoes it all."""
        with self._mutex, self._translated():
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
        """Read only: nothing is reserved by it."""
        with self._mutex, self._translated():
            yield StateTransaction(self._db, self.boot_id)

    def close(self) -> None:
        """Close the file; the store is of no use afterwards."""
        with self._mutex:
            self._db.close()
            os.close(self._guard)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _driver_error(error, self.path, self._busy_seconds) from error

    def _open(self) -> sqlite3.Connection:
        with self._translated():
            try:
                return self._connect()
            except sqlite3.DatabaseError as error:
                if _code(error) not in _DAMAGED:
                    raise
                self.quarantined = _set_aside(self.path, self._guard, self._point)
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            # Where the filesystem cannot do WAL, SQLite answers the mode that it keeps: the rollback journal.
            db.execute("PRAGMA journal_mode = WAL").fetchone()
            db.execute("PRAGMA synchronous = FULL")
            _check(db)
            _migrate(db, self.path)
        except BaseException:
            db.close()
            raise
        return db


def _open_guard(path: Path) -> int:
    guard = path.with_name(f"{path.name}.guard")
    try:
        handle = os.open(guard, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise translated(error, f"cannot open {guard}") from error
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


def _check(db: sqlite3.Connection) -> None:
    found = db.execute("PRAGMA quick_check").fetchone()
    if found != ("ok",):
        damage = sqlite3.DatabaseError(f"quick_check: {found}")
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    db.execute("BEGIN IMMEDIATE")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA:
        (minimum,) = db.execute("SELECT value FROM meta WHERE key = 'min_reader'").fetchone()
        if int(minimum) > SCHEMA:
            raise Fatal(
                f"state file {path} needs a driver that reads schema {minimum}, this one reads {SCHEMA}: install the newer driver again"
            )
    for script in _MIGRATIONS[version:]:
        for statement in script.split(";"):
            db.execute(statement)
    if version < SCHEMA:
        db.execute(f"PRAGMA user_version = {SCHEMA}")
    db.execute("COMMIT")


def _set_aside(path: Path, guard: int, point: Callable[[str], None] = never) -> Path:
    """Rename the damaged file and its companions; answers the new name."""
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


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 where the module itself complains."""
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


def _dump_devices(devices: Sequence[PreparedDevice]) -> str:
    return json.dumps(
        [
            {
                "requests": device.request_names,
                "pool": device.pool,
                "device": device.device,
                "cdi": device.cdi_ids,
                "uuid": device.uuid,
                "share": device.share_id,
                "admin": device.admin_access,
            }
            for device in devices
        ]
    )


def _load_claim(row: tuple[str, str, str, str, str, str, str]) -> PreparedClaim:
    uid, namespace, name, phase, boot_id, devices, cdi_spec = row
    loaded = tuple(
        PreparedDevice(
            request_names=tuple(entry["requests"]),
            pool=PoolName(entry["pool"]),
            device=DeviceName(entry["device"]),
            cdi_ids=tuple(entry["cdi"]),
            uuid=entry["uuid"],
            share_id=ShareId(entry.get("share", "")),
            admin_access=entry.get("admin", False),
        )
        for entry in json.loads(devices)
    )
    return PreparedClaim(
        ClaimRef(namespace, name, ClaimUid(uid)), Phase(phase), boot_id, loaded, cdi_spec
    )
