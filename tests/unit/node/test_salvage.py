# SPDX-License-Identifier: Apache-2.0
"""Held rows beside a damaged one."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.model.ids import DeviceName
from dra_driver.model.state import Held, Phase, PreparedClaim, PreparedDevice, Users
from dra_driver.node.salvage import held_rows
from dra_driver.node.state import StateStore
from dra_driver.testing.builders import A_BOOT, A_POOL, a_ref

HELD = Held("the kubelet unprepared it", "2026-01-02T03:04:05Z")


def row(name: str, device: str, held: Held | None = HELD) -> PreparedClaim:
    devices = (PreparedDevice(("gpu",), A_POOL, DeviceName(device), ("a/b=c",), "uuid"),)
    users = Users(("pod",), sole=True)
    return PreparedClaim(a_ref(name), Phase.STARTED, A_BOOT, devices, "{}", users, held)


def write(path: Path, *rows: PreparedClaim) -> None:
    store = StateStore(path, boot_id=A_BOOT)
    with store.transaction("started") as transaction:
        for one in rows:
            transaction.start(one)
    store.close()


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


def test_held_rows_are_kept_beside_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    kept, prepared = row("kept", "gpu-0"), row("prepared", "gpu-1", None)
    write(path, kept, prepared, row("bad", "gpu-2"))
    change(path, "UPDATE claims SET held = replace(held, 'kubelet', 'kubelex') WHERE uid='uid-bad'")
    store = StateStore(path, boot_id=A_BOOT)
    assert store.quarantined is not None
    with store.reading() as state:
        assert state.all_claims() == (kept,)
        assert state.read(keys=kept.owned).owners == {kept.owned[0]: kept.ref}
    store.close()


def test_nothing_is_kept_of_a_file_whose_pages_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    write(path, row("one", "gpu-0"))
    # Owners that are not those of the claims: which of both is right nobody knows.
    change(path, "DELETE FROM owners")
    store = StateStore(path, boot_id=A_BOOT)
    assert store.quarantined is not None
    with store.reading() as state:
        assert state.all_claims() == ()
    store.close()


def test_a_file_that_cannot_be_read_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"\xff" * 5000)
    assert held_rows(tmp_path / "noise") == ()
    write(tmp_path / "state.db", replace(row("one", "gpu-0"), held=None))
    assert held_rows(tmp_path / "state.db") == ()


def test_a_file_that_cannot_be_read_now_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        held_rows(tmp_path / "absent")


def test_a_trigger_that_is_not_as_it_was_written_is_damage(tmp_path: Path) -> None:
    """It keeps two claims from one piece of hardware, and SQLite's own check does not read it."""
    path = tmp_path / "state.db"
    write(path, row("kept", "gpu-0"))
    change(path, "DROP TRIGGER occupied_once")
    store = StateStore(path, boot_id=A_BOOT)
    assert store.quarantined is not None
    store.close()
