# SPDX-License-Identifier: Apache-2.0
"""Is the content of a state file as it was written? And if not: are the rows of its claims to be believed?

* The tables `owners`, `occupied` and `consumed` each have an index with all of their columns. So each of their rows is in the file twice,
  and SQLite reads whichever it finds cheaper: it may list the owners from the index, and ask the table whether a device has one.
  One flipped bit lets the two disagree, and then two claims get one device. SQLite's integrity_check compares them; its
  quick_check does not. For 10,000 claims it takes 58 ms instead of 29, of 1.3 s that the start takes to read their rows.
* What these three tables say follows from the claims, whose rows have digests. So if nothing else is damaged, the claims are
  believed: DamagedRow is raised, and the held rows are kept (`dra_driver.node.salvage`). But a page of claims may be one of an earlier
  moment, if the disk lost a write. Then rows of claims own the same device, or table and index both give a device to another
  claim, and nothing is believed.
* SQLite's integrity_check does not know how the tables should be. One flipped bit gives a column another name, or lets a trigger refuse
  nothing. So the schema is compared with that of a new file. If the table `claims` is as it was, the held rows are kept.
"""

import sqlite3
from collections.abc import Collection
from contextlib import closing

from dra_driver.model.state import PreparedClaim
from dra_driver.node.opened import is_text
from dra_driver.node.rows import DamagedRow, columns_of
from dra_driver.node.schema import SCHEMA, migrate, not_as_written, tables_of, version_of
from dra_driver.node.sqlite_errors import damaged
from dra_driver.node.transaction import StateTransaction

Owner = tuple[str, str, str, str]
"""A row of the table `owners`: pool, device, share, UID of the claim."""
_FOLLOW_FROM_CLAIMS = frozenset({"owners", "occupied", "consumed"})
# A table WITHOUT ROWID is the index of its primary key. With NOT INDEXED, SQLite reads the other one all the same.
_IN_TABLE, _IN_INDEX = "sqlite_autoindex_owners_1", "owners_by_claim"


def check_content(db: sqlite3.Connection) -> None:
    """Raise sqlite3.DatabaseError if the content is not as it was written; DamagedRow if good rows of claims may be kept."""
    found = _integrity_check(db)
    if found != "ok":
        raise _damage_of(db, f"integrity_check: {found}")
    if not version_of(db):
        return  # nothing in it yet
    if changed := not_as_written(db):
        what = f"the schema of {', '.join(changed)} is not as it was written"
        raise damaged(what) if "claims" in changed else DamagedRow(what)
    for table in tables_of(version_of(db)):
        for row in db.execute(f"SELECT * FROM {table}"):  # noqa: S608  a constant
            if not all(map(is_text, row)):
                raise DamagedRow(f"a row of the table {table} has a text that is not UTF-8")
    _check_owners(db)


def every_claim(db: sqlite3.Connection) -> tuple[PreparedClaim, ...]:
    """Read the claims of a file of any schema, before the file is migrated."""
    return StateTransaction(db, "", columns=columns_of(version_of(db))).all_claims()


def _check_owners(db: sqlite3.Connection) -> None:
    db.execute("BEGIN")  # both tables of one moment
    claims = every_claim(db)
    owners = _owners(db, _IN_TABLE)
    db.execute("COMMIT")
    owed = _owed(claims)
    if owners != owed and version_of(db) <= SCHEMA:  # claims of a newer driver may own more
        what = f"the owners {sorted(owners)} are not those of the claims, {sorted(owed)}"
        raise DamagedRow(what) if _are_believed(claims, owners) else damaged(what)


def _damage_of(db: sqlite3.Connection, what: str) -> sqlite3.DatabaseError:
    """Return the error for what integrity_check found in the file."""
    bad = {table for table in tables_of(version_of(db)) if _integrity_check(db, table) != "ok"}
    if not bad or not bad <= _FOLLOW_FROM_CLAIMS:
        return damaged(what)
    try:
        claims = every_claim(db)
    except DamagedRow:
        return damaged(what)
    said_twice = _owners(db, _IN_TABLE) & _owners(db, _IN_INDEX)
    return DamagedRow(what) if _are_believed(claims, said_twice) else damaged(what)


def _integrity_check(db: sqlite3.Connection, table: str = "") -> str:
    """Return what SQLite finds first, in a table and its indexes or in the whole file; SQLite before 3.33 always looks at the whole file."""
    try:
        found = db.execute(
            f"PRAGMA integrity_check({table})" if table else "PRAGMA integrity_check"
        )
        return str(found.fetchone()[0])
    except sqlite3.DatabaseError as error:
        _raise_unless_malformed(error)
        return str(error)


def _owners(db: sqlite3.Connection, where: str) -> set[Owner]:
    """Return the owners as the table or its index has them: what can be read of it."""
    found: set[Owner] = set()
    try:
        found.update(
            db.execute(f"SELECT pool, device, share, claim_uid FROM owners INDEXED BY {where}")  # noqa: S608  constants
        )
    except sqlite3.DatabaseError as error:
        _raise_unless_malformed(error)
    return found


def _raise_unless_malformed(error: sqlite3.DatabaseError) -> None:
    """Another error says that the file cannot be read now: then it must stay where it is."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_CORRUPT:
        raise error


def _owed(claims: Collection[PreparedClaim]) -> set[Owner]:
    return {
        (key.pool, key.device, key.share, claim.ref.uid) for claim in claims for key in claim.owned
    }


def _are_believed(claims: Collection[PreparedClaim], said: Collection[Owner]) -> bool:
    """Whether the claims can be those of the last moment, if `said` is what both table and index say of the owners."""
    if _exclude_each_other(claims):
        return False
    known = {claim.ref.uid for claim in claims}
    owed: dict[tuple[str, str], set[str]] = {}
    for pool, device, _, uid in _owed(claims):
        owed.setdefault((pool, device), set()).add(uid)
    return all(
        uid in known and uid in owed.get((pool, device), known) for pool, device, _, uid in said
    )


def _exclude_each_other(claims: Collection[PreparedClaim]) -> bool:
    """Whether two of the claims own one device, as a new state file would see it."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db)
        try:
            for claim in claims:
                StateTransaction(db, "").restore(claim)
        except sqlite3.IntegrityError:
            return True
    return False
