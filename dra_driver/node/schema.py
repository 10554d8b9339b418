# SPDX-License-Identifier: Apache-2.0
"""What are the tables of the state file, how does an older file become one of today, and which drivers may read it?

* Migrations only add: tables, columns that may be NULL, indices, triggers. `user_version` is the newest schema that wrote the
  file. A driver may read the file only if its own schema is at least `min_reader`. So an older driver goes on working after a
  rollback. A driver reads and writes the tables and columns that it knows, and leaves all others as they are.
* A release that needs a higher `min_reader` may raise it only in the next minor version or later. Before that, the driver of the
  previous version can run beside the new one during an update, and must still be able to read the file. The meaning of today's
  tables and columns, and of the words for phases, changes only in the same way.
"""

import sqlite3
from collections.abc import Collection
from contextlib import closing
from functools import cache
from itertools import chain
from pathlib import Path

from dra_driver.errors import Fatal

SCHEMA = 4

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

_Definition = tuple[str | int | None, ...]
"""What SQLite says of a table, an index or a trigger, or of one of its columns. The second value is its name."""
# Of tables not the text: ALTER TABLE changes it, also that of a newer driver, which may have added columns.
_DEFINITIONS = (
    "SELECT type, name, tbl_name, CASE type WHEN 'trigger' THEN sql END FROM sqlite_schema",
    """SELECT 'column', one.name, has.name, has.type, has."notnull", has.pk
        FROM sqlite_schema AS one, pragma_table_info(one.name) AS has WHERE one.type = 'table'""",
    """SELECT 'key', one.name, has.name, has.seqno
        FROM sqlite_schema AS one, pragma_index_info(one.name) AS has WHERE one.type = 'index'""",
)


def migrate(db: sqlite3.Connection) -> None:
    """Add what today's schema has and the file does not."""
    db.execute("BEGIN IMMEDIATE")
    version = version_of(db)
    for statements in _MIGRATIONS[version:]:
        for statement in statements:
            db.execute(statement)
    if version < SCHEMA:
        db.execute(f"PRAGMA user_version = {SCHEMA}")
    db.execute("COMMIT")


def version_of(db: sqlite3.Connection) -> int:
    """Return the newest schema that wrote the file; 0 if nothing is in it yet."""
    found: int = db.execute("PRAGMA user_version").fetchone()[0]
    return found


def check_reader(db: sqlite3.Connection, path: Path) -> None:
    """Raise Fatal if a newer driver wrote the file and this driver may not read it. Nothing is written."""
    version = version_of(db)
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
            f"install the newer driver again; or drain the node, reboot it, and run `dra-driver cleanup --force` on it (without the "
            f"reboot, containers that still run would share their devices with the next pods)"
        )


def tables_of(version: int) -> Collection[str]:
    """Return the names of the tables that a file of this schema has, as far as this driver knows them."""
    statements = chain.from_iterable(_MIGRATIONS[:version])
    return [one.split()[2] for one in statements if one.startswith("CREATE TABLE")]


def not_as_written(db: sqlite3.Connection) -> Collection[str]:
    """Return the names of our tables, indexes and triggers that the file has not, or not as its schema has them."""
    expected = _of_schema(min(version_of(db), SCHEMA))
    return sorted({str(name) for _, name, *_ in expected - _definitions(db)})


@cache
def _of_schema(version: int) -> frozenset[_Definition]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for statement in chain.from_iterable(_MIGRATIONS[:version]):
            db.execute(statement)
        return _definitions(db)


def _definitions(db: sqlite3.Connection) -> frozenset[_Definition]:
    return frozenset(chain.from_iterable(map(db.execute, _DEFINITIONS)))
