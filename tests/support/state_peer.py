# SPDX-License-Identifier: Apache-2.0
"""Another version of the driver, as far as the state file can tell: a process that reads and writes one schema in plain SQL.

    python tests/support/state_peer.py FILE SCHEMA

Schema 1 is the first driver's, 2 and 3 are those of the next ones. Schema 5 is an imagined newer one: it adds a column, a table and a
trigger when it opens the file, and does not raise `min_reader`. It shares nothing with `dra_driver`, so that no change there can change it too.

Each line on standard input is a command, each line on standard output its answer as JSON:
`start UID DEVICE`, `prepared UID`, `forget UID`, `claims`, `owners`, `notes`, `hold` (until the next line).
"""

import fcntl
import json
import sqlite3
import sys
from pathlib import Path
from typing import Any

NEXT = (
    "ALTER TABLE claims ADD COLUMN note TEXT",
    "CREATE TABLE notes (uid TEXT PRIMARY KEY, note TEXT NOT NULL) WITHOUT ROWID",
    # An older driver deletes claims and knows no notes.
    "CREATE TRIGGER notes_end AFTER DELETE ON claims BEGIN DELETE FROM notes WHERE uid = old.uid; END",
    "PRAGMA user_version = 5",
)
DEVICES = [
    {"requests": ["gpu"], "pool": "node-1", "cdi": [], "uuid": "uuid", "share": "", "admin": False}
]


class Peer:
    """The open file."""

    def __init__(self, path: Path, schema: int) -> None:
        self.schema = schema
        self.guard = path.with_name(f"{path.name}.guard").open("a+b")
        fcntl.flock(self.guard, fcntl.LOCK_SH)
        self.db = sqlite3.connect(path, timeout=30, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL").fetchone()
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute("BEGIN IMMEDIATE")
        (version,) = self.db.execute("PRAGMA user_version").fetchone()
        (minimum,) = self.db.execute("SELECT value FROM meta WHERE key = 'min_reader'").fetchone()
        if version > schema and int(minimum) > schema:
            sys.exit(f"cannot read schema {version}")
        for statement in NEXT if version < schema == 5 else ():
            self.db.execute(statement)
        self.db.execute("COMMIT")

    def do(self, verb: str, *words: str) -> Any:
        """One command in one transaction."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            answer = getattr(self, verb)(*words)
        except sqlite3.IntegrityError:
            self.db.execute("ROLLBACK")
            return "owned"
        self.db.execute("COMMIT")
        return answer

    def start(self, uid: str, device: str) -> str:
        self.forget(uid)
        self.db.execute(
            "INSERT INTO owners (pool, device, share, claim_uid) VALUES ('node-1', ?, '', ?)",
            (device, uid),
        )
        devices = json.dumps([{**DEVICES[0], "device": device}])
        row = (
            uid,
            "default",
            uid,
            "Started",
            "boot-1",
            devices,
            f"written by schema {self.schema}",
        )
        self.db.execute(
            "INSERT INTO claims (uid, namespace, name, phase, boot_id, devices, cdi_spec) VALUES (?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        if self.schema == 5:
            self.db.execute("UPDATE claims SET note = 'noted' WHERE uid = ?", (uid,))
            self.db.execute("INSERT INTO notes VALUES (?, 'noted')", (uid,))
        return "done"

    def prepared(self, uid: str) -> str:
        self.db.execute("UPDATE claims SET phase = 'Prepared' WHERE uid = ?", (uid,))
        return "done"

    def forget(self, uid: str) -> str:
        self.db.execute("DELETE FROM owners WHERE claim_uid = ?", (uid,))
        self.db.execute("DELETE FROM claims WHERE uid = ?", (uid,))
        return "done"

    def claims(self) -> Any:
        return dict(self.db.execute("SELECT uid, phase FROM claims").fetchall())

    def owners(self) -> Any:
        return dict(self.db.execute("SELECT device, claim_uid FROM owners").fetchall())

    def notes(self) -> Any:
        columns = dict(self.db.execute("SELECT uid, note FROM claims").fetchall())
        return [columns, dict(self.db.execute("SELECT uid, note FROM notes").fetchall())]

    def hold(self) -> str:
        print('"held"', flush=True)
        sys.stdin.readline()
        return "done"


if __name__ == "__main__":
    peer = Peer(Path(sys.argv[1]), int(sys.argv[2]))
    print('"ready"', flush=True)
    for line in sys.stdin:
        print(json.dumps(peer.do(*line.split())), flush=True)
