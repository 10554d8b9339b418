# SPDX-License-Identifier: Apache-2.0
"""The state file: what a commit means, and what becomes of a file that is damaged, old, new or busy."""

import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.errors import Fatal, Permanent, Temporary
from dra_driver.model.ids import DeviceKey, DeviceName, PoolName, ShareId
from dra_driver.model.state import Held, NodeState, Phase, PreparedClaim, PreparedDevice, Users
from dra_driver.node.schema import SCHEMA
from dra_driver.node.state import COMMITS, FAILPOINTS, StateStore
from dra_driver.testing.builders import A_POOL, a_pod, a_ref
from dra_driver.testing.failpoints import Failpoints, raising

DEADLINE = 300  # seconds, against hanging only


def a_row(
    name: str = "wine", device: str = "gpu-0", *, share: str = "", admin: bool = False
) -> PreparedClaim:
    entry = PreparedDevice(
        ("gpu", "ü"), A_POOL, DeviceName(device), ("k=x", "k=y"), "uuid", ShareId(share), admin
    )
    return PreparedClaim(a_ref(name), Phase.STARTED, "boot-1", (entry,), '{"ü": 1}\n')


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "state.db"


def opened(path: Path, **options) -> closing[StateStore]:
    return closing(StateStore(path, boot_id="boot-1", **options))


def start(store: StateStore, *rows: PreparedClaim) -> None:
    with store.transaction("started") as transaction:
        for row in rows:
            transaction.start(row)


def all_rows(store: StateStore) -> tuple[PreparedClaim, ...]:
    with store.reading() as state:
        return state.all_claims()


def test_a_new_file_has_the_newest_schema_and_no_claims(path: Path) -> None:
    with opened(path) as store:
        assert all_rows(store) == ()
        assert store.quarantined is None
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
        assert db.execute("SELECT * FROM meta").fetchall() == [("min_reader", "1")]
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_what_was_written_is_read_back_after_a_restart(path: Path) -> None:
    rows = (a_row("a"), a_row("b", "gpu-1", share="s1"), a_row("c", admin=True))
    with opened(path) as store:
        start(store, *rows)
    with opened(path) as store:
        assert all_rows(store) == rows
        key, share = (
            DeviceKey(A_POOL, DeviceName("gpu-0")),
            DeviceKey(A_POOL, DeviceName("gpu-1"), ShareId("s1")),
        )
        free = DeviceKey(A_POOL, DeviceName("gpu-1"))
        with store.reading() as state:
            assert state.read(uids=["uid-a", "uid-z"], keys=[key, share, free]) == NodeState(
                "boot-1", {"uid-a": rows[0]}, {key: a_ref("a"), share: a_ref("b"), free: a_ref("b")}
            )
            assert state.owned_devices(A_POOL) == {"gpu-0", "gpu-1"}
            assert state.owned_devices(PoolName("other")) == frozenset()


def test_a_row_moves_from_phase_to_phase_and_is_forgotten_with_its_devices(path: Path) -> None:
    with opened(path) as store:
        start(store, a_row())
        with store.transaction("prepared") as transaction:
            transaction.set_phase(a_ref("wine").uid, Phase.PREPARED)
            transaction.set_phase(a_ref("unknown").uid, Phase.PREPARED)
        assert [row.phase for row in all_rows(store)] == [Phase.PREPARED]
        with store.transaction("released") as transaction:
            transaction.forget(a_ref("wine").uid)
            transaction.forget(a_ref("unknown").uid)
        assert all_rows(store) == ()
        start(store, a_row("beer"))


def test_starting_again_replaces_the_row(path: Path) -> None:
    with opened(path) as store:
        start(store, a_row())
        start(store, a_row(device="gpu-1"))
        assert all_rows(store) == (a_row(device="gpu-1"),)
        with store.reading() as state:
            assert state.owned_devices(A_POOL) == {"gpu-1"}


def test_starting_again_forgets_no_pod_of_this_boot(path: Path) -> None:
    """Another thread may have added a pod since the row was read."""
    one, two = Users((a_pod("one"),)), Users((a_pod("two"),))
    with opened(path) as store:
        start(store, replace(a_row(), users=one))
        start(store, replace(a_row(), users=two))
        (row,) = all_rows(store)
        assert row.users == one.joined(two)
        start(store, replace(a_row(), users=two, boot_id="boot-9"))
        (row,) = all_rows(store)
        assert row.users == two


def test_the_file_itself_refuses_a_second_owner(path: Path) -> None:
    with opened(path) as store:
        start(store, a_row("first"))
        with pytest.raises(Permanent) as caught:
            start(store, a_row("other", "gpu-1"), a_row("second"))
        assert str(caught.value) == (
            "device node-1/gpu-0 of claim default/second (uid uid-second) is owned by claim default/first (uid uid-first)"
        )
        assert all_rows(store) == (a_row("first"),)


def test_the_file_itself_refuses_a_share_beside_the_whole_and_the_whole_beside_a_share(
    path: Path,
) -> None:
    with opened(path) as store:
        start(store, a_row("whole"), a_row("one", "gpu-1", share="s1"))
        for second in (a_row("second", share="s1"), a_row("second", "gpu-1")):
            with pytest.raises(Permanent, match=r"is owned by claim default/(whole|one)"):
                start(store, second)
        start(store, a_row("two", "gpu-1", share="s2"))


def test_of_several_owners_in_the_way_one_is_named_that_was_not_asked_for(path: Path) -> None:
    whole = DeviceKey(A_POOL, DeviceName("gpu-1"))
    share = DeviceKey(A_POOL, DeviceName("gpu-1"), ShareId("s3"))
    with opened(path) as store:
        start(store, a_row("one", "gpu-1", share="s1"), a_row("two", "gpu-1", share="s2"))
        with store.reading() as state:
            assert state.read(keys=[whole, share]).owners == {whole: a_ref("one")}
            asked = state.read(uids=["uid-one"], keys=[whole])
            assert asked.owners == {whole: a_ref("two")}
            both = state.read(uids=["uid-one", "uid-two"], keys=[whole])
            assert both.owners == {whole: a_ref("one")}


def test_pods_are_added_once_each_and_stay_through_every_phase(path: Path) -> None:
    uid = a_ref("wine").uid
    with opened(path) as store:
        start(store, a_row())
        with store.transaction("joined") as transaction:
            transaction.add_users(uid, Users(("pod-1",)))
            transaction.add_users(uid, Users(("pod-2", "pod-1"), unnamed=True))
            transaction.add_users(uid, Users(("pod-3",)))
            transaction.add_users(a_ref("unknown").uid, Users(("pod-4",)))
        held = Held("the kubelet unprepared it", "2027-01-15T08:00:00Z")
        with store.transaction("prepared") as transaction:
            transaction.set_phase(uid, Phase.PREPARED)
        with store.transaction("releasing") as transaction:
            transaction.hold(uid, held, Users(("pod-5",)))
            transaction.hold(a_ref("unknown").uid, held)
    with opened(path) as store, store.reading() as state:
        (row,) = state.held_claims()
        assert (row.phase, row.held) == (Phase.STARTED, held)
        assert row.users == Users(("pod-1", "pod-2", "pod-3", "pod-5"), unnamed=True)


def test_an_exception_undoes_the_whole_transaction(path: Path) -> None:
    with opened(path) as store:
        with (
            suppress(KeyboardInterrupt),
            store.transaction("started") as transaction,
        ):
            transaction.start(a_row())
            raise KeyboardInterrupt
        assert all_rows(store) == ()
        start(store, a_row())


def test_every_commit_has_a_failpoint_on_both_sides(path: Path) -> None:
    points = Failpoints()
    with opened(path, point=points) as store:
        for name in COMMITS:
            with store.transaction(name):
                pass
    assert points.passed == tuple(name for name in FAILPOINTS if name.startswith("commit."))


def test_only_the_commit_that_a_boot_undoes_anyway_is_not_forced_to_the_disk(path: Path) -> None:
    """For SQLite, NORMAL (1) leaves a commit in the kernel's memory and FULL (2) waits for the disk."""
    found: list[tuple[str, int]] = []

    def note(point: str) -> None:
        if point.endswith(".before"):
            found.append((point, store._db.execute("PRAGMA synchronous").fetchone()[0]))

    with opened(path, point=note) as store:
        store._has_log = False  # with a rollback journal all wait
        with store.transaction("prepared"):
            pass
        assert found.pop() == ("commit.prepared.before", 2)
        store._has_log = True
        for name in (*COMMITS, *reversed(COMMITS)):
            with suppress(KeyError), store.transaction(name):
                raise KeyError  # an undone one leaves no trace
            with store.transaction(name):
                pass
    assert {point for point, mode in found if mode == 1} == {"commit.prepared.before"}
    assert {point for point, mode in found if mode == 2} == {
        f"commit.{name}.before" for name in COMMITS if name != "prepared"
    }


@pytest.mark.parametrize(("when", "kept"), [("before", ()), ("after", (a_row(),))])
def test_only_the_commit_counts(path: Path, when: str, kept: tuple[PreparedClaim, ...]) -> None:
    points = Failpoints({f"commit.started.{when}": raising(RuntimeError("crash"))})
    with opened(path, point=points) as store:
        with pytest.raises(RuntimeError):
            start(store, a_row())
        assert all_rows(store) == kept


CRASHING = """
import os, signal, sys
from pathlib import Path
from dra_driver.node.state import StateStore
from dra_driver.model.state import Held, Phase, Users
from dra_driver.testing.builders import a_uid

def die(name):
    if name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

store = StateStore(Path(sys.argv[1]), boot_id="boot-1", point=die)
with store.transaction("prepared") as transaction:
    transaction.set_phase(a_uid("wine"), Phase.PREPARED)
"""


@pytest.mark.parametrize(("when", "phase"), [("before", Phase.STARTED), ("after", Phase.PREPARED)])
def test_a_process_killed_around_a_commit_leaves_all_or_nothing(
    path: Path, when: str, phase: Phase
) -> None:
    with opened(path) as store:
        start(store, a_row())
    killed = subprocess.run(
        [sys.executable, "-c", CRASHING, str(path), f"commit.prepared.{when}"],
        timeout=DEADLINE,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    with opened(path) as store:
        assert [row.phase for row in all_rows(store)] == [phase]
        assert store.quarantined is None


HOLDING = """
import sys
from pathlib import Path
from dra_driver.node.state import StateStore
store = StateStore(Path(sys.argv[1]), boot_id="boot-1")
with store.transaction("started"):
    print("held", flush=True)
    sys.stdin.readline()
"""


class Holder:
    """Another driver process, in the middle of a transaction."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", HOLDING, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "held\n"

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._process.communicate("\n", timeout=DEADLINE)


def test_a_file_that_another_process_keeps_locked_is_named(path: Path) -> None:
    with opened(path, busy_seconds=0.05) as store:
        start(store, a_row())
        with Holder(path):
            with pytest.raises(Temporary) as caught:
                start(store, a_row("beer", "gpu-1"))
            assert all_rows(store) == (a_row(),)  # readers go on
        assert str(caught.value) == (
            f"state file {path} is locked by another process for longer than 0.05 s; `fuser {path}` names it"
        )
        start(store, a_row("beer", "gpu-1"))


def test_two_processes_take_turns_on_one_file(path: Path) -> None:
    with opened(path) as one, opened(path) as two:
        start(one, a_row("a"))
        start(two, a_row("b", "gpu-1"))
        assert all_rows(one) == all_rows(two) == (a_row("a"), a_row("b", "gpu-1"))
        with pytest.raises(Permanent, match="is owned by claim default/a"):
            start(two, a_row("c"))


def damage_header(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[:16] = b"not a database!!"
    path.write_bytes(content)


def damage_a_page(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 : 4096 + 64] = b"\xff" * 64
    path.write_bytes(content)


def truncate(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def miscount_the_free_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[36:40] = (5).to_bytes(4, "big")
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage", [damage_header, damage_a_page, truncate, miscount_the_free_pages]
)
def test_a_damaged_file_is_set_aside_whole_and_a_new_one_begun(path: Path, damage) -> None:
    with opened(path) as store:
        start(store, a_row())
    for attempt in (1, 2):
        damage(path)
        damaged = path.read_bytes()
        path.with_name("state.db-wal").write_bytes(b"wal")
        with opened(path) as store:
            aside = path.with_name(f"state.db.damaged-{attempt}")
            assert store.quarantined == aside
            assert all_rows(store) == ()
            start(store, a_row())
        assert aside.read_bytes() == damaged


def test_a_full_disk_is_temporary_and_undoes_the_transaction(path: Path) -> None:
    with opened(path) as store:
        start(store, a_row())
        (pages,) = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own full disk
        with pytest.raises(Temporary) as caught:
            start(store, *(a_row(f"c{index}", f"gpu-{index + 1}") for index in range(200)))
        assert str(caught.value) == (
            f"cannot write state file {path}: database or disk is full; free space on its disk, the kubelet tries again"
        )
        assert all_rows(store) == (a_row(),)


def test_an_error_of_the_disk_is_no_full_disk_for_sure(path: Path) -> None:
    with opened(path) as store:
        start(store, a_row())
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = path.with_name("state.db-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            with pytest.raises(Temporary) as caught:
                start(store, a_row("other", "gpu-1"))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert str(caught.value) == (
            f"cannot read or write state file {path}: disk I/O error; free space on its disk if it is full, "
            "else look for its errors in the kernel's log (`dmesg`); the kubelet tries again"
        )
        assert all_rows(store) == (a_row(),)


def test_an_empty_file_is_a_new_one(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"")
    with opened(path) as store:
        assert store.quarantined is None
        start(store, a_row())


def test_a_damaged_file_that_another_process_has_open_is_not_touched(path: Path) -> None:
    with opened(path) as store:
        start(store, a_row())
    with Holder(path):
        damage_header(path)
        before = sorted(found.name for found in path.parent.iterdir())
        with pytest.raises(Fatal) as caught:
            StateStore(path, boot_id="boot-1")
        assert str(caught.value) == (
            f"state file {path} is damaged and another driver process has it open; end that process first"
        )
        assert sorted(found.name for found in path.parent.iterdir()) == before
    with opened(path) as store:
        assert store.quarantined is not None


def test_a_file_in_another_journal_mode_is_as_good(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    # While somebody reads in the rollback journal, the mode cannot change: like a filesystem without WAL.
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("CREATE TABLE theirs (x)")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM theirs").fetchall()
        with pytest.raises(Temporary, match="is locked by another process"):
            StateStore(path, boot_id="boot-1", busy_seconds=0.05)
    with opened(path) as store:
        start(store, a_row())


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "sub" / "state.db"
    with pytest.raises(Permanent, match=f"cannot make directory {path.parent}: "):
        StateStore(path, boot_id="boot-1")


def test_a_guard_that_cannot_be_opened_is_named(path: Path) -> None:
    guard = path.with_name("state.db.guard")
    guard.mkdir(parents=True)
    with pytest.raises(Permanent, match=f"cannot open {guard}: "):
        StateStore(path, boot_id="boot-1")


def test_a_path_that_is_a_directory_is_named(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(Permanent) as caught:
        StateStore(path, boot_id="boot-1")
    assert str(caught.value) == (
        f"cannot open or write state file {path}: unable to open database file; its directory must be writable, also for a command "
        "that only reads it"
    )


def test_a_closed_store_says_so(path: Path) -> None:
    store = StateStore(path, boot_id="boot-1")
    store.close()
    with pytest.raises(Permanent, match=f"state file {path}: Cannot operate on a closed database"):
        all_rows(store)


def test_a_row_without_the_newer_fields_is_read(path: Path) -> None:
    with opened(path) as store:
        start(store, a_row())
        with closing(sqlite3.connect(path)) as db:
            db.execute(
                'UPDATE claims SET devices = \'[{"requests": ["gpu"], "pool": "p", "device": "d", "cdi": [], "uuid": "u"}]\''
            )
            db.commit()
        (row,) = all_rows(store)
        assert row.devices == (PreparedDevice(("gpu",), PoolName("p"), DeviceName("d"), (), "u"),)
