# SPDX-License-Identifier: Apache-2.0
"""A bit turned over in a table that follows from the claims, or in its index, is noticed and costs no held row."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.errors import Permanent
from dra_driver.model.ids import DeviceName, ShareId
from dra_driver.model.lease import Hardware, Lease
from dra_driver.model.state import Held, Phase, PreparedClaim, PreparedDevice
from dra_driver.node.content import check_content
from dra_driver.node.rows import DamagedRow
from dra_driver.node.state import StateStore, read_claims
from dra_driver.testing.builders import A_BOOT, A_POOL, a_ref

PAGE = 4096
GPUS = {DeviceName(f"gpu-{number}"): Hardware(f"GPU-{number}") for number in range(4)}


def a_row(name: str, first: int) -> PreparedClaim:
    """It has a whole GPU, and a share of the next one."""
    ref = a_ref(name)
    whole, shared = DeviceName(f"gpu-{first}"), DeviceName(f"gpu-{first + 1}")
    share = ShareId(f"share-{first}")
    amount = {"memory": "1Gi"}
    return PreparedClaim(
        ref,
        Phase.STARTED,
        A_BOOT,
        (
            PreparedDevice(("gpu",), A_POOL, whole, ("a/b=c",), "uuid"),
            PreparedDevice(("gpu",), A_POOL, shared, ("a/b=d",), "uuid", share_id=share),
        ),
        "{}",
        leases=(
            Lease(ref.uid, "gpu", whole, 0, parent=f"GPU-{first}"),
            Lease(
                ref.uid,
                "gpu",
                shared,
                1,
                share_id=share,
                consumed_capacity=amount,
                parent=f"GPU-{first + 1}",
            ),
        ),
    )


LIVE = a_row("live", 2)
KEPT = replace(a_row("kept", 0), held=Held("the kubelet unprepared it", "2026-01-02T03:04:05Z"))


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("good") / "state.db"
    with closing(StateStore(path, boot_id=A_BOOT)) as store:
        with store.transaction("published") as transaction:
            transaction.learn_hardware(A_POOL, GPUS)
        with store.transaction("started") as transaction:
            transaction.start(KEPT)
            transaction.start(LIVE)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, good: bytes) -> Path:
    path = tmp_path / "state.db"
    path.write_bytes(good)
    return path


@contextmanager
def changed(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as db, db:
        yield db


def page_of(path: Path, tree: str) -> int:
    """Where the only page of a table or an index begins."""
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?", (tree,)
        ).fetchone()
    return (int(root) - 1) * PAGE


def cells_of(page: bytes) -> range:
    """Where the rows of the page are."""
    return range(int.from_bytes(page[5:7]), PAGE)


def turn(content: bytes, place: int, bit: int) -> bytes:
    turned = bytearray(content)
    turned[place] ^= 1 << bit
    return bytes(turned)


def restarted(path: Path) -> tuple[bool, tuple[PreparedClaim, ...]]:
    """Whether the file is set aside, and the claims that are left. Nobody else gets their devices."""
    with closing(StateStore(path, boot_id=A_BOOT)) as store:
        with store.reading() as state:
            claims = state.all_claims()
        for claim in claims:
            thief = replace(claim, ref=a_ref("thief"), held=None, leases=())
            with (
                pytest.raises(Permanent, match="is owned by claim"),
                store.transaction("started") as transaction,
            ):
                transaction.start(thief)
        return store.quarantined is not None, claims


def test_a_good_file_is_used(path: Path) -> None:
    assert restarted(path) == (False, (KEPT, LIVE))


TREES = (
    "owners",
    "owners_by_claim",
    "occupied",
    "occupied_by_claim",
    "consumed",
    "consumed_by_capacity",
)


@pytest.mark.parametrize("tree", TREES)
def test_a_bit_turned_over_in_a_row_costs_no_held_row(path: Path, good: bytes, tree: str) -> None:
    """In the file itself: a statement of SQL would change table and index alike."""
    begin = page_of(path, tree)
    for place in cells_of(good[begin : begin + PAGE])[::7]:
        bit = place * 3 % 8
        path.write_bytes(turn(good, begin + place, bit))
        with pytest.raises(Permanent, match="restart the driver"):
            read_claims(path)
        assert restarted(path) == (True, (KEPT,)), (place, bit)


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("bit", [0, 1, 7])
def test_a_device_with_another_name_costs_no_held_row(
    path: Path, good: bytes, tree: str, bit: int
) -> None:
    begin = page_of(path, tree)
    last = good.index(b"gpu-", begin, begin + PAGE) + 4
    path.write_bytes(turn(good, last, bit))
    assert restarted(path) == (True, (KEPT,))


@pytest.mark.parametrize("tree", TREES)
def test_a_bit_turned_over_in_the_head_of_a_page_costs_no_held_row(
    path: Path, good: bytes, tree: str
) -> None:
    """SQLite may find the page malformed, or the bit may do no harm."""
    begin = page_of(path, tree)
    for place in range(12):
        path.write_bytes(turn(good, begin + place, place * 3 % 8))
        _, claims = restarted(path)
        assert KEPT in claims, place


@pytest.mark.parametrize("tree", ["owners", "owners_by_claim"])
def test_a_page_that_cannot_be_read_costs_no_held_row(path: Path, good: bytes, tree: str) -> None:
    begin = page_of(path, tree)
    path.write_bytes(good[:begin] + b"x" * PAGE + good[begin + PAGE :])
    assert restarted(path) == (True, (KEPT,))


@pytest.mark.parametrize("tree", ["published", "hardware", "claims"])
def test_a_page_of_another_table_that_cannot_be_read_costs_all_rows(
    path: Path, good: bytes, tree: str
) -> None:
    """The content may be of another moment."""
    begin = page_of(path, tree)
    path.write_bytes(good[:begin] + b"x" * PAGE + good[begin + PAGE :])
    assert restarted(path) == (True, ())


def test_damage_outside_of_the_tables_costs_all_rows(path: Path, good: bytes) -> None:
    """SQLite finds a page that nothing uses."""
    pages = len(good) // PAGE + 1
    content = good[:28] + pages.to_bytes(4) + good[32:] + bytes(PAGE)
    path.write_bytes(content)
    assert restarted(path) == (True, ())


def test_a_damaged_claim_beside_a_damaged_index_costs_all_rows(path: Path) -> None:
    with changed(path) as db:
        db.execute("UPDATE claims SET cdi_spec = '[]' WHERE uid = ?", (LIVE.ref.uid,))
    content = path.read_bytes()
    begin = page_of(path, "owners_by_claim")
    path.write_bytes(turn(content, content.index(b"gpu-", begin) + 4, 1))
    assert restarted(path) == (True, ())


SAID_BY_BOTH = {
    "that nobody owns anything": ("DELETE FROM owners", True),
    "another device": ("UPDATE owners SET device = 'gpu-9' WHERE device = 'gpu-0'", True),
    "an owner without a row": ("UPDATE owners SET claim_uid = 'x' WHERE device = 'gpu-0'", False),
    "that another claim owns it": (
        f"UPDATE owners SET claim_uid = '{LIVE.ref.uid}' WHERE device = 'gpu-0'",
        False,
    ),
}


@pytest.mark.parametrize(("statement", "kept"), SAID_BY_BOTH.values(), ids=SAID_BY_BOTH.keys())
def test_what_table_and_index_say_can_show_that_the_claims_are_old(
    path: Path, statement: str, kept: bool
) -> None:
    with changed(path) as db:
        db.execute(statement)
    assert restarted(path) == (True, (KEPT,) if kept else ())


def test_claims_that_own_the_same_device_are_not_believed(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with (
        closing(StateStore(other, boot_id=A_BOOT)) as store,
        store.transaction("started") as transaction,
    ):
        transaction.start(a_row("other", 0))
    with changed(path) as db:
        db.execute("ATTACH ? AS other", (str(other),))
        db.execute("INSERT INTO claims SELECT * FROM other.claims")
    assert restarted(path) == (True, ())


@pytest.mark.parametrize("bit", [7, 0])
def test_a_bit_turned_over_in_the_page_of_the_schema_is_noticed_or_does_no_harm(
    path: Path, good: bytes, bit: int
) -> None:
    """Bit 7 makes texts that are not UTF-8, also in SQLite's messages about them; bit 0 makes other names."""
    for place in range(bit, PAGE, 13):
        path.write_bytes(turn(good, place, bit))
        with suppress(Permanent):
            assert read_claims(path) == (KEPT, LIVE), place


@pytest.mark.parametrize("bit", [7, 0])
def test_each_start_uses_the_right_content_or_sets_the_file_aside(
    path: Path, good: bytes, bit: int
) -> None:
    for place in range(bit, PAGE, 157):
        path.write_bytes(turn(good, place, bit))
        set_aside, claims = restarted(path)
        assert claims in ((), (KEPT,)) if set_aside else claims == (KEPT, LIVE), place


OTHER_SCHEMAS = {
    "a column of published": (b"content TEXT", b"contenu TEXT", True),
    "the type of a column": (b"position INTEGER", b"position INTEGES", True),
    "a type in hardware": (
        b"TABLE hardware (\n            pool TEXT",
        b"TABLE hardware (\n            pool TEXU",
        True,
    ),
    "a column of meta": (b"value TEXT NOT", b"valee TEXT NOT", True),
    "a trigger": (b"RAISE(ABORT, 'devices", b"RAISE(ABORT, 'devicer", True),
    "a column of claims": (b"namespace TEXT", b"namespacd TEXT", False),
    "what is no SQL": (b"CREATE TABLE consumed", b"CREATE \xd4ABLE consumed", False),
}


@pytest.mark.parametrize(("was", "now", "kept"), OTHER_SCHEMAS.values(), ids=OTHER_SCHEMAS)
def test_a_schema_that_is_not_as_it_was_written_costs_no_held_row_if_the_claims_have_theirs(
    path: Path, good: bytes, was: bytes, now: bytes, kept: bool
) -> None:
    assert good.count(was) == 1
    path.write_bytes(good.replace(was, now))
    with pytest.raises(Permanent, match="restart the driver, which sets a damaged file aside"):
        read_claims(path)
    assert restarted(path) == (True, (KEPT,) if kept else ())


def test_a_message_that_is_not_utf_8_is_shown_in_a_form_that_harms_no_log(
    path: Path, good: bytes
) -> None:
    path.write_bytes(good.replace(b"CREATE TABLE consumed", b"CREATE \xd4ABLE consumed"))
    with pytest.raises(Permanent, match=r"malformed database schema .* near \"\\xd4ABLE\""):
        read_claims(path)


def test_a_file_that_cannot_be_read_now_is_not_taken_for_a_damaged_one(path: Path) -> None:
    begin = page_of(path, "owners")
    content = path.read_bytes()
    path.write_bytes(turn(content, content.index(b"gpu-", begin) + 4, 1))
    for after in range(1, 4000, 50):
        with closing(sqlite3.connect(path)) as db:
            db.set_progress_handler(lambda: True, after)  # SQLite counts within each statement
            with pytest.raises(sqlite3.DatabaseError) as caught:
                check_content(db)
        if isinstance(caught.value, DamagedRow):
            break
        assert caught.value.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT
