# SPDX-License-Identifier: Apache-2.0
"""Rows that did not change are not decoded again; a row that did is, whoever changed it."""

import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.errors import DriverError
from dra_driver.model.state import Phase, PreparedClaim
from dra_driver.node.decoded_rows import DecodedRows
from dra_driver.node.rows import dump_claim
from dra_driver.node.state import StateStore
from dra_driver.testing.builders import A_BOOT, a_ref

ONE = PreparedClaim(a_ref("one"), Phase.STARTED, A_BOOT, (), "")
OTHER = PreparedClaim(a_ref("other"), Phase.PREPARED, A_BOOT, (), "{}")


def test_a_row_that_is_the_same_gives_the_same_claim() -> None:
    decoded = DecodedRows()
    first = decoded.claims([dump_claim(ONE), dump_claim(OTHER)])
    assert first == (ONE, OTHER)
    prepared = replace(ONE, phase=Phase.PREPARED)
    again = decoded.claims([dump_claim(OTHER), dump_claim(prepared)])
    assert again == (OTHER, prepared)
    assert again[0] is first[1]


def test_a_row_that_went_is_not_kept() -> None:
    decoded = DecodedRows()
    first = decoded.claims([dump_claim(ONE)])
    assert decoded.claims([]) == ()
    assert decoded.claims([dump_claim(ONE)])[0] is not first[0]


def test_what_another_process_writes_and_what_damage_changes_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store, another = StateStore(path, boot_id=A_BOOT), StateStore(path, boot_id=A_BOOT)
    with store.transaction("started") as transaction:
        transaction.start(ONE)
    with store.reading() as state:
        (first,) = state.all_claims()
    with store.reading() as state:
        assert state.all_claims()[0] is first
    with another.transaction("started") as transaction:
        transaction.start(OTHER)
    with store.reading() as state:
        assert len(state.all_claims()) == 2
    with sqlite3.connect(path) as db:
        db.execute("UPDATE claims SET phase = 'Unknown' WHERE uid = ?", (ONE.ref.uid,))
    with pytest.raises(DriverError, match="cannot be read"), store.reading() as state:
        state.all_claims()
    another.close()
    store.close()
