# SPDX-License-Identifier: Apache-2.0
"""A log that lost committed transactions is told from one that a killed process left in the middle of a commit."""

import errno
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.errors import Permanent, Temporary
from dra_driver.model.state import Phase, PreparedClaim
from dra_driver.node.guard_file import guard_of
from dra_driver.node.state import StateStore, read_claims
from dra_driver.node.successor import FAILPOINTS
from dra_driver.node.wal import Index, Log, check_log, read_index, read_log
from dra_driver.testing.builders import a_ref, a_uid
from dra_driver.testing.failpoints import Failpoints, raising

PAGE, FRAME = 4096, 4096 + 24


def a_row(name: str) -> PreparedClaim:
    return PreparedClaim(a_ref(name), Phase.PREPARED, "boot-1", (), "x" * 9000)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a process that was killed after three commits."""
    home, copy = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("copy")
    store = StateStore(home / "state.db", boot_id="boot-1")
    for name in ("one", "two", "three"):
        with store.transaction("started") as transaction:
            transaction.start(a_row(name))
    for file in home.iterdir():
        shutil.copy(file, copy)
    store.close()
    return copy


def opened(path: Path) -> tuple[set[str], bool]:
    """The claims that a start finds, and whether the file was set aside."""
    store = StateStore(path, boot_id="boot-1")
    with store.reading() as state:
        found = {claim.ref.name for claim in state.all_claims()}
    store.close()
    return found, store.quarantined is not None


def frames(log: Path) -> int:
    return (log.stat().st_size - 32) // FRAME


def change(path: Path, place: int, bits: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= bits
    path.write_bytes(content)


def cut_two_frames(directory: Path) -> None:
    log = directory / "state.db-wal"
    with log.open("rb+") as file:
        file.truncate(32 + (frames(log) - 2) * FRAME)


LOSSES: dict[str, Callable[[Path], None]] = {
    "a frame in the middle": lambda at: change(at / "state.db-wal", 32 + 3 * FRAME + 500),
    "its checksum": lambda at: change(at / "state.db-wal", 32 + 3 * FRAME + 17),
    "the header": lambda at: change(at / "state.db-wal", 9),
    "the header's salt": lambda at: change(at / "state.db-wal", 17),
    "cut": cut_two_frames,
    "cut to nothing": lambda at: (at / "state.db-wal").write_bytes(b"") and None,
    "removed": lambda at: (at / "state.db-wal").unlink(),
    "the last frame": lambda at: change(at / "state.db-wal", -500),
    "a frame in the middle, no index": lambda at: (
        change(at / "state.db-wal", 32 + 3 * FRAME + 500),
        (at / "state.db-shm").unlink(),
    )[1],
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_a_log_that_lost_a_commit_is_damage(
    killed: Path, tmp_path: Path, loss: Callable[[Path], None]
) -> None:
    copy = shutil.copytree(killed, tmp_path / "copy")
    loss(copy)
    assert opened(copy / "state.db") == (set(), True)


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.glob("state.db*")}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_a_damaged_log_is_still_one_after_a_start_that_could_not_replace_it(
    killed: Path, tmp_path: Path, loss: Callable[[Path], None]
) -> None:
    copy = shutil.copytree(killed, tmp_path / "copy")
    loss(copy)
    before = contents(copy)
    full = raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with pytest.raises(Temporary, match="the disk is full"):
        StateStore(
            copy / "state.db", boot_id="boot-1", point=Failpoints({"rename.ready.before": full})
        )
    assert contents(copy) == before
    assert opened(copy / "state.db") == (set(), True)


class CrashError(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("point", FAILPOINTS)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
def test_a_crash_at_any_step_brings_no_older_state_back(
    killed: Path, tmp_path: Path, loss: Callable[[Path], None], point: str
) -> None:
    copy = shutil.copytree(killed, tmp_path / "copy")
    loss(copy)
    before = contents(copy)
    with pytest.raises(CrashError):
        StateStore(
            copy / "state.db", boot_id="boot-1", point=Failpoints({point: raising(CrashError())})
        )
    claims, _ = opened(copy / "state.db")
    assert claims == set()
    aside = {f"damaged-1{name.removeprefix('state.db')}" for name in before} - {"damaged-1.guard"}
    assert {
        name.removeprefix("state.db.") for name in contents(copy) if name not in before
    } == aside


# With another size of a page in the log's header SQLite tries for ten seconds, and gives up.
@pytest.mark.parametrize("how", sorted(LOSSES.keys() - {"the header"}))
def test_a_tool_that_looks_before_the_start_hides_no_damage(
    killed: Path, tmp_path: Path, how: str
) -> None:
    copy = shutil.copytree(killed, tmp_path / "copy")
    LOSSES[how](copy)
    before = contents(copy)
    read_claims(copy / "state.db")
    after = contents(copy)
    assert {name: after[name] for name in before} == before
    assert opened(copy / "state.db") == (set(), True)


@pytest.mark.parametrize("how", ["index before the log", "torn"])
def test_a_power_cut_costs_the_last_preparations_only(tmp_path: Path, how: str) -> None:
    """The commit of a preparation waits for no disk, so the index may be there without it, or a later one without an earlier one."""
    home, cut = tmp_path / "home", tmp_path / "cut"
    with closing(StateStore(home / "state.db", boot_id="boot-1")) as store:
        with store.transaction("started") as transaction:
            transaction.start(a_row("one"))
        there = (home / "state.db-wal").stat().st_size
        for text in ("{}", "{ }"):
            with store.transaction("prepared") as transaction:
                transaction.set_prepared(a_uid("one"), text)
        shutil.copytree(home, cut)
    log = cut / "state.db-wal"
    content = log.read_bytes()
    if how == "torn":
        log.write_bytes(content[:there] + bytes(FRAME) + content[there + FRAME :])
        (cut / "state.db-shm").unlink()
    else:
        log.write_bytes(content[:there])
    same_boot = shutil.copytree(cut, tmp_path / "same-boot")
    assert opened(same_boot / "state.db") == (set(), True)  # nothing but damage does that
    for _ in range(2):
        with closing(StateStore(cut / "state.db", boot_id="boot-2")) as store:
            assert store.quarantined is None
            with store.reading() as state:
                (row,) = state.all_claims()
            assert (row.ref.name, row.cdi_spec) == ("one", a_row("one").cdi_spec)


def test_a_log_that_was_cut_hides_the_newer_pages_of_the_main_file(
    killed: Path, tmp_path: Path
) -> None:
    copy, cut = shutil.copytree(killed, tmp_path / "copy"), tmp_path / "cut"
    with closing(sqlite3.connect(copy / "state.db")) as db:
        db.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        shutil.copytree(copy, cut)
    assert read_index(cut / "state.db").backfilled == frames(cut / "state.db-wal")
    cut_two_frames(cut)
    assert read_log(cut / "state.db").accepted > 0
    assert opened(cut / "state.db") == (set(), True)


def with_half_of_a_commit_left(killed: Path, directory: Path, *later: str) -> Path:
    """The files of a node on which a large commit wrote all its frames and did not happen, and smaller ones came after it.

    So it is if the process is killed while it forces the frames to the disk, and another one is there that goes on; or if the disk
    reports an error to it, and it goes on itself.
    """
    large, small = (shutil.copytree(killed, directory / name) for name in ("large", "small"))
    left = directory / "left"
    with closing(StateStore(large / "state.db", boot_id="boot-1")) as store:
        with store.transaction("started") as transaction:
            transaction.start(replace(a_row("large"), cdi_spec="x" * 60_000))
        written = (large / "state.db-wal").read_bytes()
    with closing(StateStore(small / "state.db", boot_id="boot-1")) as store:
        for name in later:
            shutil.copy(small / "state.db-shm", directory / "index-before")
            with store.transaction("started") as transaction:
                transaction.start(replace(a_row(name), cdi_spec="x"))
        shutil.copytree(small, left)
    log = left / "state.db-wal"
    append(log, written[log.stat().st_size :])
    found = read_log(left / "state.db")
    assert read_index(left / "state.db").frames == found.accepted < found.last_commit
    return left


@pytest.mark.parametrize("later", [("small",), ("small", "next")])
def test_what_is_left_of_a_commit_that_did_not_happen_is_no_damage(
    killed: Path, tmp_path: Path, later: tuple[str, ...]
) -> None:
    left = with_half_of_a_commit_left(killed, tmp_path, *later)
    assert opened(left / "state.db") == ({"one", "two", "three", *later}, False)


@pytest.mark.parametrize("later", [("small",), ("small", "next")])
def test_a_commit_that_the_index_does_not_have_ends_before_them_too(
    killed: Path, tmp_path: Path, later: tuple[str, ...]
) -> None:
    """A process wrote all frames of it over those of the first one, and was killed before it wrote the index."""
    left = with_half_of_a_commit_left(killed, tmp_path, *later)
    shutil.copy(tmp_path / "index-before", left / "state.db-shm")
    assert read_index(left / "state.db").salts == read_log(left / "state.db").salts
    assert read_index(left / "state.db").frames < read_log(left / "state.db").accepted
    assert {claim.ref.name for claim in read_claims(left / "state.db")} >= {*later}
    assert opened(left / "state.db") == ({"one", "two", "three", *later}, False)


@pytest.mark.parametrize("looks", [False, True])
def test_without_an_index_it_counts_as_damage(killed: Path, tmp_path: Path, looks: bool) -> None:
    """Nothing tells it from a damaged log then. The index that a tool made, which looked before, would not either."""
    left = with_half_of_a_commit_left(killed, tmp_path, "small")
    (left / "state.db-shm").unlink()
    if looks:
        assert len(read_claims(left / "state.db")) == 4
        assert read_index(left / "state.db") == Index()
    assert opened(left / "state.db") == (set(), True)


def test_a_damaged_log_before_it_is_damage(killed: Path, tmp_path: Path) -> None:
    left = with_half_of_a_commit_left(killed, tmp_path, "small")
    accepted = read_log(left / "state.db").accepted
    change(left / "state.db-wal", 32 + accepted * FRAME - 500)
    assert opened(left / "state.db") == (set(), True)


def append(path: Path, more: bytes) -> None:
    path.write_bytes(path.read_bytes() + more)


def change_both(path: Path, place: int) -> None:
    """In both copies of the index's header."""
    change(path, place)
    change(path, place + 48)


def half_commit(directory: Path) -> None:
    """Two frames of a transaction whose last one never came."""
    log = directory / "state.db-wal"
    content = log.read_bytes()
    frame = bytearray(content[-FRAME:])
    frame[4:8] = bytes(4)
    frame[30] ^= 1
    append(log, bytes(frame) * 2 + bytes(frame)[:100])


GOOD: dict[str, Callable[[Path], None]] = {
    "as it is": lambda _at: None,
    "no index": lambda at: (at / "state.db-shm").unlink(),
    "half an index": lambda at: (at / "state.db-shm").write_bytes(b"x" * 50) and None,
    "an index of two minds": lambda at: change(at / "state.db-shm", 17),
    "an index that is not what was written": lambda at: change_both(at / "state.db-shm", 17),
    "an index of zeros": lambda at: (at / "state.db-shm").write_bytes(bytes(32768)) and None,
    "half a commit": half_commit,
    "half a frame": lambda at: append(at / "state.db-wal", b"x" * 3000),
}


@pytest.mark.parametrize("how", GOOD.values(), ids=GOOD.keys())
def test_a_log_that_lost_nothing_is_taken_up(
    killed: Path, tmp_path: Path, how: Callable[[Path], None]
) -> None:
    copy = shutil.copytree(killed, tmp_path / "copy")
    how(copy)
    before = contents(copy)
    assert {claim.ref.name for claim in read_claims(copy / "state.db")} == {"one", "two", "three"}
    after = contents(copy)
    assert {name: after[name] for name in before} == before
    assert opened(copy / "state.db") == ({"one", "two", "three"}, False)


def test_a_second_process_leaves_the_log_to_the_first(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    first = StateStore(path, boot_id="boot-1")
    second = StateStore(path, boot_id="boot-1")
    for store, name in ((first, "one"), (second, "two")):
        with store.transaction("started") as transaction:
            transaction.start(a_row(name))
    second.close()
    first.close()
    assert opened(path) == ({"one", "two"}, False)


def test_what_stands_in_the_main_file_needs_no_log(killed: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(killed, tmp_path / "copy")
    with closing(sqlite3.connect(copy / "state.db")) as db:
        db.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        for file in copy.glob("state.db*"):
            shutil.copy(file, tmp_path)
    (tmp_path / "state.db-wal").unlink()
    assert opened(tmp_path / "state.db") == ({"one", "two", "three"}, False)


def test_a_database_without_a_log_has_none(tmp_path: Path) -> None:
    assert read_index(tmp_path / "state.db") == Index()
    assert read_log(tmp_path / "state.db") == Log()
    check_log(tmp_path / "state.db")


@pytest.mark.parametrize("loss", [Path.unlink, lambda file: file.write_bytes(b"")])
@pytest.mark.parametrize("looks", [False, True])
def test_a_log_without_its_database_is_damage(
    killed: Path, tmp_path: Path, loss: Callable[[Path], None], looks: bool
) -> None:
    """SQLite would make an empty database, and remove the log."""
    copy = shutil.copytree(killed, tmp_path / "copy")
    loss(copy / "state.db")
    (copy / "state.db-shm").unlink()
    if looks:
        assert read_claims(copy / "state.db") == ()
    assert opened(copy / "state.db") == (set(), True)
    assert (copy / "state.db.damaged-1-wal").exists()


def test_a_log_that_cannot_be_read_is_named(killed: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(killed, tmp_path / "copy")
    (copy / "state.db-wal").unlink()
    (copy / "state.db-wal").mkdir()
    with pytest.raises(Permanent, match=r"cannot read .*state\.db-wal: Is a directory"):
        StateStore(copy / "state.db", boot_id="boot-1")


@pytest.mark.parametrize("seed", range(30))
def test_sqlite_accepts_as_many_frames_as_we_say(tmp_path: Path, seed: int) -> None:
    """In logs that were begun anew, whose transactions were rolled back or grew larger than the cache, and that have a flipped bit."""
    chance = random.Random(seed)
    path, copy = tmp_path / "state.db", tmp_path / "copy"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA cache_size = 2")
        db.execute("CREATE TABLE rows (text BLOB)")
        for _ in range(chance.randrange(1, 25)):
            db.execute("BEGIN")
            for _ in range(chance.choice((1, 1, 30))):
                db.execute("INSERT INTO rows VALUES (randomblob(?))", (chance.randrange(9000),))
            db.execute(chance.choice(("COMMIT", "COMMIT", "ROLLBACK")))
            if chance.random() < 0.2:
                db.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        copy.mkdir()
        for file in tmp_path.glob("state.db*"):
            shutil.copy(file, copy)
    log = copy / "state.db-wal"
    whole = read_log(copy / "state.db")
    assert whole.accepted == whole.last_commit == read_index(copy / "state.db").frames
    check_log(copy / "state.db")
    if seed % 2:
        change(log, chance.randrange(log.stat().st_size), 1 << chance.randrange(8))
    found = read_log(copy / "state.db")
    (copy / "state.db-shm").unlink()
    with closing(sqlite3.connect(copy / "state.db")) as db:
        _, taken, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    assert found.accepted == max(taken, 0)


def test_a_full_disk_keeps_no_state_from_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "state.db"
    assert opened(path) == (set(), False)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        StateStore(path, boot_id="boot-2").close()
    # Else the next boot would check the log, and set the state aside if the power cut has taken its end.
    assert guard_of(path).read_bytes() == b"a driver process of boot boot-1"
    assert opened(path) == (set(), False)
    assert guard_of(path).read_bytes() == b"a driver process of boot boot-1"
