# SPDX-License-Identifier: Apache-2.0
"""Read the held rows of a state file that is about to be set aside because of one damaged row, or of damaged tables that follow from
the claims.

The driver can find Prepared claims without the row: they have CDI files, the kubelet lists them, and the API server has them. But
only the row shows that a device is held: the API server and the kubelet have forgotten its pod, whose containers may still run. So
the driver copies the held rows with a correct digest into the new file. If other pages or the log of the file are damaged, it
copies no row, because the content may be out of date (`dra_driver.node.content`, `dra_driver.node.wal`).
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from dra_driver.model.state import PreparedClaim
from dra_driver.node.opened import open_to_look
from dra_driver.node.rows import DamagedRow, columns_of, load_claim
from dra_driver.node.sqlite_errors import is_damage


def held_rows(path: Path) -> tuple[PreparedClaim, ...]:
    """Return the held rows that are as they were written. Empty for a file of an older driver, which has no held rows.

    Raises sqlite3.Error if the file cannot be read now: then it must stay where it is, for the next start.
    """
    found: list[PreparedClaim] = []
    try:
        with closing(open_to_look(path)) as db:
            columns = columns_of(db.execute("PRAGMA user_version").fetchone()[0])
            for row in db.execute(f"SELECT {columns} FROM claims WHERE held IS NOT NULL"):  # noqa: S608  a constant
                try:
                    found.append(load_claim(row))
                except DamagedRow:
                    continue
    except sqlite3.Error as error:
        if not is_damage(error, path):
            raise
        return ()
    return tuple(found)
