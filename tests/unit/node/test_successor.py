# SPDX-License-Identifier: Apache-2.0
"""A damaged state file is replaced by a new one: a crash or a full disk at any step loses no held row."""

import re
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.model.ids import ClaimUid, DeviceName, PodUid
from dra_driver.model.lease import Lease
from dra_driver.model.state import Held, Phase, PreparedClaim, PreparedDevice, Users
from dra_driver.node.rows import dump_leases
from dra_driver.node.state import StateStore, read_claims
from dra_driver.node.successor import FAILPOINTS, successor_of, take_place, write_successor
from dra_driver.testing.builders import A_BOOT, A_POOL, a_ref

HELD = Held("the kubelet unprepared it", "2026-01-02T03:04:05Z")
SUFFIXES = ("-wal", "-shm", "-journal", "")


def row(name: str, device: str, parent: str = "") -> PreparedClaim:
    ref = a_ref(name)
    devices = (PreparedDevice(("gpu",), A_POOL, DeviceName(device), ("a/b=c",), "uuid"),)
    leases = (Lease(ref.uid, "gpu", DeviceName(device), 0, parent=parent),)
    users = Users((PodUid("pod"),), sole=True)
    return PreparedClaim(ref, Phase.STARTED, A_BOOT, devices, "{}", users, HELD, leases=leases)


KEPT = row("kept", "gpu-0", "GPU-0")
BAD = row("bad", "gpu-2", "GPU-2")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def opened(path: Path, point: Callable[[str], None] = lambda _: None) -> closing[StateStore]:
    return closing(StateStore(path, boot_id=A_BOOT, point=point))


def written(path: Path, *rows: PreparedClaim) -> None:
    with opened(path) as store, store.transaction("started") as transaction:
        for one in rows:
            transaction.start(one)


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


def damage_a_row(path: Path) -> None:
    change(
        path, "UPDATE claims SET held = replace(held, 'kubelet', 'kubelex') WHERE uid = 'uid-bad'"
    )


class Passing:
    """A `point` that lets some pass, and then acts."""

    def __init__(self, skip: int, act: Callable[[], None]) -> None:
        self.left = skip
        self.act = act
        self.passed: list[str] = []

    def __call__(self, name: str) -> None:
        self.passed.append(name)
        if len(self.passed) == self.left + 1:
            self.act()


class CrashError(BaseException):
    """The process ends here."""


def crash() -> None:
    raise CrashError


@contextmanager
def room_again() -> Iterator[None]:
    """Undo `fill` at the end."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def fill() -> None:
    """From here on no file gets another byte."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))


def assert_kept(store: StateStore) -> None:
    with store.reading() as state:
        assert state.all_claims() == (KEPT,)
        assert state.read(keys=KEPT.owned).owners == {KEPT.owned[0]: KEPT.ref}
        assert state.occupied(A_POOL) == {DeviceName("gpu-0"): frozenset({("GPU-0", "")})}


def test_every_step_has_its_failpoints(path: Path) -> None:
    written(path, KEPT, BAD)
    damage_a_row(path)
    passing = Passing(100, crash)
    with opened(path, passing) as store:
        assert_kept(store)
    assert passing.passed == list(FAILPOINTS)


@pytest.mark.parametrize("skip", range(len(FAILPOINTS)), ids=FAILPOINTS)
def test_a_crash_at_any_step_loses_no_held_row(path: Path, skip: int) -> None:
    written(path, KEPT, BAD)
    damage_a_row(path)
    with pytest.raises(CrashError):
        StateStore(path, boot_id=A_BOOT, point=Passing(skip, crash))
    if skip > 0:  # before this the damaged file is still the state
        assert read_claims(path) == (KEPT,)
    complete = FAILPOINTS[skip] == "rename.successor.after"
    aside = path.with_name("state.db.damaged-1")
    with opened(path) as store:
        assert store.quarantined == (None if complete else aside)
        assert_kept(store)
    assert sorted(one.name for one in path.parent.iterdir()) == [
        "state.db",
        "state.db.damaged-1",
        "state.db.guard",
    ]
    with pytest.raises(Permanent, match=r"uid-bad"):
        read_claims(aside)


@pytest.mark.parametrize("skip", range(len(FAILPOINTS)), ids=FAILPOINTS)
def test_a_full_disk_at_any_step_loses_no_held_row(path: Path, skip: int) -> None:
    written(path, KEPT, BAD)
    damage_a_row(path)
    with room_again(), pytest.raises(Temporary, match="free space") as caught:
        StateStore(path, boot_id=A_BOOT, point=Passing(skip, fill))
    aside = path.with_name("state.db.damaged-1")
    assert f"the damaged state file was set aside as {aside}" in str(caught.value)
    with opened(path) as store:
        assert_kept(store)


def test_a_disk_that_is_full_from_the_start_leaves_the_damaged_file_alone(path: Path) -> None:
    written(path, KEPT, BAD)
    damage_a_row(path)
    before = path.read_bytes()
    with room_again():
        fill()
        with pytest.raises(Temporary):
            StateStore(path, boot_id=A_BOOT)
    assert path.read_bytes() == before
    assert not [one.name for one in path.parent.iterdir() if re.search("new|damaged", one.name)]
    with opened(path) as store:
        assert_kept(store)


@pytest.mark.parametrize("skip", range(len(FAILPOINTS)), ids=FAILPOINTS)
def test_a_file_with_damaged_pages_is_kept_whole_through_a_crash(path: Path, skip: int) -> None:
    damaged = b"no database" * 1000
    path.write_bytes(damaged)
    with pytest.raises(CrashError):
        StateStore(path, boot_id=A_BOOT, point=Passing(skip, crash))
    with opened(path) as store, store.reading() as state:
        assert state.all_claims() == ()
    assert path.with_name("state.db.damaged-1").read_bytes() == damaged
    assert not path.with_name("state.db.damaged-2").exists()


def test_damaged_pages_need_no_room_to_be_set_aside(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    with room_again(), pytest.raises(Temporary, match="was set aside as"):
        StateStore(path, boot_id=A_BOOT, point=Passing(0, fill))
    assert path.with_name("state.db.damaged-1").exists()
    assert path.read_bytes() == b""


def test_no_companion_is_left_for_the_new_file(path: Path) -> None:
    for suffix in SUFFIXES:
        path.with_name(f"state.db{suffix}").write_text(f"old {suffix}")
    ready = write_successor(path)
    assert successor_of(path) == ready == path.with_name("state.db.new-1")
    assert take_place(path, ready) == path.with_name("state.db.damaged-1")
    assert {found.name: found.read_text() for found in path.parent.iterdir()} == {
        "state.db": "",
        **{f"state.db.damaged-1{suffix}": f"old {suffix}" for suffix in SUFFIXES},
    }


def test_a_number_is_free_if_no_companion_has_it_either(path: Path) -> None:
    for name in ("damaged-1", "damaged-2-wal", "damaged-4", "damaged-x"):
        path.with_name(f"state.db.{name}").write_text("")
    assert write_successor(path).name == "state.db.new-3"


def test_held_claims_of_the_same_hardware_are_both_kept(path: Path) -> None:
    twin = row("twin", "gpu-1", "GPU-1")
    written(path, KEPT, twin, BAD)
    # The same hardware came to have another name while both had it.
    twin = replace(twin, leases=row("twin", "gpu-1", "GPU-0").leases)
    leases = dump_leases(ClaimUid("uid-twin"), twin.leases)
    change(path, "UPDATE claims SET leases = ? WHERE uid = 'uid-twin'", leases)
    damage_a_row(path)
    for quarantined in (path.with_name("state.db.damaged-1"), None):
        with opened(path) as store, store.reading() as state:
            assert store.quarantined == quarantined
            assert state.all_claims() == (KEPT, twin)
    with opened(path) as store, store.transaction("released") as transaction:
        transaction.forget(KEPT.ref.uid)
    third = row("third", "gpu-3", "GPU-0")
    with (
        opened(path) as store,
        pytest.raises(Permanent, match="is owned by claim default/twin"),
        store.transaction("started") as transaction,
    ):
        transaction.start(third)


def test_two_held_claims_that_own_one_device_are_left_to_a_person(path: Path) -> None:
    double = replace(row("double", "gpu-0"), leases=None)
    with pytest.raises(Permanent) as caught:
        write_successor(path, (KEPT, double))
    assert str(caught.value) == (
        f"state file {path} is damaged, and a device of held claim {double.ref} is owned by another held claim; nothing was "
        "changed: stop the containers that used these devices (`crictl stop`, or a reboot), then run `dra-driver cleanup --force` "
        "on this node"
    )
    assert list(path.parent.iterdir()) == []


def test_the_claims_are_those_of_a_file_that_waits_for_its_place(path: Path) -> None:
    write_successor(path, (KEPT, row("other", "gpu-1")))
    assert [claim.ref.name for claim in read_claims(path)] == ["kept", "other"]


def test_what_cannot_be_written_or_renamed_is_named(path: Path) -> None:
    path.write_text("damaged")
    path.with_name("state.db-wal").write_text("wal")
    path.with_name("state.db.damaged-1-wal").mkdir()
    said = re.escape(f"cannot set the damaged state file {path} aside: ")
    with pytest.raises(Permanent, match=said):
        take_place(path, path.with_name("state.db.new-1"))
    path.with_name("state.db.new").mkdir()
    said = re.escape(f"cannot write a new state file beside the damaged {path}: ")
    with pytest.raises(Permanent, match=said):
        write_successor(path)
    with pytest.raises(DriverError, match="cannot list "):
        successor_of(path.parent / ("long" * 100) / "state.db")
    assert successor_of(path / "state.db") is None
    assert path.read_text() == "damaged"
