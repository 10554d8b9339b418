# SPDX-License-Identifier: Apache-2.0
"""Held rows beside a damaged one."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.errors import Permanent
from dra_driver.model.api.resource_slice import Device
from dra_driver.model.ids import DeviceName
from dra_driver.model.lease import Hardware, Lease
from dra_driver.model.state import Held, Phase, PreparedClaim, PreparedDevice, Users
from dra_driver.node.salvage import held_rows
from dra_driver.node.state import StateStore, read_claims
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


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


def flip(path: Path, table: str, column: str, where: str, bit: int) -> None:
    """Turn over a bit in the middle of a text."""
    with closing(sqlite3.connect(path)) as db:
        (text,) = db.execute(f"SELECT {column} FROM {table} WHERE {where}").fetchone()
    content = bytearray(text.encode())
    content[len(content) // 2] ^= 1 << bit
    change(path, f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE {where}", bytes(content))


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


COLUMNS = (
    "uid",
    "namespace",
    "name",
    "phase",
    "boot_id",
    "devices",
    "cdi_spec",
    "users",
    "held",
    "leases",
    "metadata",
)


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("column", COLUMNS)
def test_a_flipped_bit_in_any_text_costs_its_own_row_only(
    tmp_path: Path, column: str, bit: int
) -> None:
    path = tmp_path / "state.db"
    kept, bad = row("kept", "gpu-0"), row("bad", "gpu-2")
    leases = (Lease(bad.ref.uid, "gpu", DeviceName("gpu-2"), 0),)
    write(path, kept, replace(bad, leases=leases, metadata="what a container reads"))
    flip(path, "claims", column, "uid = 'uid-bad'", bit)
    with pytest.raises(Permanent, match="restart the driver") as caught:
        read_claims(path)
    assert str(caught.value).isprintable()  # bytes that are not UTF-8 harm no terminal and no log
    store = StateStore(path, boot_id=A_BOOT)
    assert store.quarantined is not None
    with store.reading() as state:
        assert state.all_claims() == (kept,)
        assert state.read(keys=kept.owned).owners == {kept.owned[0]: kept.ref}
    store.close()


@pytest.mark.parametrize("digests", [True, False])
def test_a_row_without_digest_has_utf8_too(tmp_path: Path, digests: bool) -> None:
    """Rows of claims without devices have none, nor those of older drivers."""
    path = tmp_path / "state.db"
    kept, bad = row("kept", "gpu-0"), row("bad", "gpu-2")
    write(path, kept, bad if digests else replace(bad, devices=()))
    flip(path, "claims", "cdi_spec", "uid = 'uid-bad'", 7)
    assert held_rows(path) == (kept,)


TEXTS = (
    ("hardware", "device"),
    ("hardware", "parent"),
    ("occupied", "parent"),
    ("owners", "device"),
    ("owners", "claim_uid"),
    ("consumed", "capacity"),
    ("published", "device"),
    ("published", "content"),
)


@pytest.mark.parametrize(("table", "column"), TEXTS)
def test_bytes_in_another_table_cost_no_held_row(tmp_path: Path, table: str, column: str) -> None:
    """Else each look at the table would be an error, also after the next start."""
    path = tmp_path / "state.db"
    kept = row("kept", "gpu-0")
    store = StateStore(path, boot_id=A_BOOT)
    with store.transaction("published") as transaction:
        transaction.learn_hardware(A_POOL, {DeviceName("gpu-0"): Hardware("GPU-0")})
        transaction.set_published(A_POOL, (Device(name="gpu-0"),))
        transaction.start(kept)
    store.close()
    change(path, f"INSERT INTO consumed VALUES ('{A_POOL}', 'gpu-0', '', 'memory', 'x', 1, 1)")
    flip(path, table, column, "TRUE", 7)
    store = StateStore(path, boot_id=A_BOOT)
    assert store.quarantined is not None
    with store.reading() as state:
        assert state.all_claims() == (kept,)
        assert state.published(A_POOL) == ()
    store.close()


def test_text_that_is_not_ascii_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    kept = replace(row("kept", "gpu-0"), cdi_spec='{"ü": "\N{ROCKET}"}')
    write(path, kept)
    assert read_claims(path) == (kept,)
    store = StateStore(path, boot_id=A_BOOT)
    assert store.quarantined is None
    with store.reading() as state:
        assert state.all_claims() == (kept,)
    store.close()


def test_bytes_that_come_while_the_driver_runs_are_named(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    write(path, row("kept", "gpu-0"))
    store = StateStore(path, boot_id=A_BOOT)
    flip(path, "claims", "cdi_spec", "TRUE", 7)
    with (
        pytest.raises(Permanent, match="restart the driver, which sets a damaged file aside"),
        store.reading() as state,
    ):
        state.all_claims()
    store.close()


def test_nothing_is_kept_of_a_file_whose_pages_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    write(path, row("one", "gpu-0"))
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'hardware'"
        ).fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"x" * 4096)
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
