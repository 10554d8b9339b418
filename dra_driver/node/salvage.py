# SPDX-License-Identifier: Apache-2.0
"""Held rows of a state file that was set aside for one damaged row.

Prepared claims are known to others too: their CDI files stand, the kubelet names them, and the API server has them. Of a held
device only its row may know: its pod is forgotten everywhere, and its containers run on. So rows of which every byte is as it was
written are carried over. A file whose pages or log are damaged is believed in nothing: what it says may be of yesterday.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from dra_driver.model.state import PreparedClaim
from dra_driver.node.rows import COLUMNS, DamagedRow, load_claim


def held_rows(path: Path) -> tuple[PreparedClaim, ...]:
    """What can be believed of the file; nothing of one that an older driver wrote, for it held nothing."""
    found: list[PreparedClaim] = []
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            for row in db.execute(f"SELECT {COLUMNS} FROM claims WHERE held IS NOT NULL"):  # noqa: S608  a constant
                try:
                    found.append(load_claim(row))
                except DamagedRow:
                    continue
    except sqlite3.Error:
        return ()
    return tuple(found)
