# SPDX-License-Identifier: Apache-2.0
"""Nobody but the driver's user reaches the state and the locks, also where an older driver left them open."""

import os
import shutil
import sqlite3
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dra_driver.errors import DriverError, Permanent
from dra_driver.node.lock import Locks, open_lock
from dra_driver.node.peers import Peer, Peers
from dra_driver.node.private import close_directory, close_files
from dra_driver.node.state import StateStore, read_claims

NOBODY = 65534
STATE = ("state.db", "state.db-wal", "state.db-shm", "state.db.guard")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def opened(path: Path) -> closing[StateStore]:
    return closing(StateStore(path, boot_id="boot-1"))


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A directory that every user of this machine reaches, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_left_by_an_older_driver(path: Path) -> None:
    """The state and its directory with the modes that a umask of 022 gave."""
    with opened(path) as store:
        with store.transaction("started"):
            pass
        for companion in path.parent.glob("state.db*"):
            shutil.copy(companion, path.parent / f"copy-{companion.name}")
    for copy in path.parent.glob("copy-*"):
        copy.rename(copy.with_name(copy.name.removeprefix("copy-")))
    for file in path.parent.iterdir():
        file.chmod(0o644)
    path.parent.chmod(0o755)


@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_what_is_made_is_closed_from_the_start(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "plugins" / "gpu" / "state.db"
    before = os.umask(umask)
    try:
        with opened(path) as store, store.transaction("started"):
            assert {name: mode(path.with_name(name)) for name in STATE} == dict.fromkeys(
                STATE, 0o600
            )
    finally:
        os.umask(before)
    assert mode(path.parent) == 0o700
    assert mode(path.parent.parent) != 0o700  # it is the kubelet's


def test_what_an_older_driver_left_open_is_closed_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "gpu" / "state.db"
    as_left_by_an_older_driver(path)
    damaged = path.with_name("state.db.damaged-1-wal")
    damaged.write_bytes(b"")
    damaged.chmod(0o644)
    assert {mode(file) for file in path.parent.iterdir()} == {0o644}
    with opened(path):
        assert {file.name: mode(file) for file in path.parent.iterdir()} == dict.fromkeys(
            (*STATE, damaged.name), 0o600
        )
        assert mode(path.parent) == 0o700


@pytest.mark.real  # only root can become somebody else
def test_another_user_cannot_lock_the_state_out(reachable: Path) -> None:
    """A lock on a file needs no right to write it, only an open file."""
    path = reachable / "gpu" / "state.db"
    as_left_by_an_older_driver(path)

    def opens(file: Path) -> bool:
        ended = subprocess.run(
            ["/bin/sh", "-c", 'exec 3< "$1"', "sh", file],
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            capture_output=True,
            check=False,
        )
        return ended.returncode == 0

    assert opens(path.with_name("state.db-shm"))
    with opened(path):
        assert [file.name for file in path.parent.iterdir() if opens(file)] == []
        path.parent.chmod(0o755)  # each file is closed by itself as well
        assert [file.name for file in path.parent.iterdir() if opens(file)] == []


def test_an_older_driver_beside_it_makes_no_open_file(tmp_path: Path) -> None:
    """SQLite gives the companions the mode of the file, whoever makes them."""
    path = tmp_path / "gpu" / "state.db"
    with opened(path):
        pass
    with closing(sqlite3.connect(path)) as older:
        older.execute("BEGIN IMMEDIATE")
        older.execute("CREATE TABLE one (a)")
        older.execute("COMMIT")
        assert {mode(file) for file in path.parent.iterdir()} == {0o600}


def test_a_directory_that_others_use_too_stays_open_and_its_state_is_closed(tmp_path: Path) -> None:
    """A --state-dir of /var/lib must not lock everybody out of /var/lib."""
    tmp_path.chmod(0o755)
    (tmp_path / "of-somebody-else").write_text("")
    with opened(tmp_path / "state.db"):
        assert mode(tmp_path) == 0o755
        assert {mode(file) for file in tmp_path.glob("state.db*")} == {0o600}


def test_with_all_that_a_driver_puts_there_its_directory_is_still_its_own(tmp_path: Path) -> None:
    for name in ("locks", "peers"):
        (tmp_path / name).mkdir()
    for name in ("dra.sock", "dra-1a2b3c4d.sock", ".0a1b", "state.db-journal"):
        (tmp_path / name).write_text("")
    tmp_path.chmod(0o755)
    close_directory(tmp_path, "state.db")
    assert mode(tmp_path) == 0o700


def test_locks_and_peers_have_directories_of_their_own_that_are_closed(tmp_path: Path) -> None:
    for name in ("locks", "peers"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o755)
    locks, peers = Locks(tmp_path / "locks"), Peers(tmp_path / "peers")
    locks.clear_leftovers()
    peers.join(Peer(1, "1", str(tmp_path / "dra.sock"), str(tmp_path / "reg.sock")))
    with locks.locked(["claim-1"], until=0, purpose="x"):
        files = [tmp_path / "locks" / "claim-1.lock", tmp_path / "peers" / "dra.sock.peer"]
        assert [(mode(file), mode(file.parent)) for file in files] == [(0o600, 0o700)] * 2
    peers.leave()
    shutil.rmtree(tmp_path / "locks")
    locks.clear_leftovers()  # nothing is there yet, and nothing is made
    assert not (tmp_path / "locks").exists()
    with locks.locked(["claim-1"], until=0, purpose="x"):
        assert mode(tmp_path / "locks") == 0o700


def take_lock(folder: Path, name: str) -> None:
    match name.partition("/")[0]:
        case "locks":
            with Locks(folder / "locks").locked(["claim-1"], until=0, purpose="x"):
                pass
        case "peers":
            Peers(folder / "peers").join(Peer(1, "1", "dra.sock", "reg.sock"))
        case _:
            StateStore(folder / "state.db", boot_id="boot-1")


@pytest.mark.parametrize("name", ["locks/claim-1.lock", "state.db.guard", "peers/dra.sock.peer"])
def test_a_lock_that_is_a_link_is_named_and_not_followed(tmp_path: Path, name: str) -> None:
    target, link = tmp_path / "etc-passwd", tmp_path / "gpu" / name
    target.write_text("root")
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    folder = tmp_path / "gpu"
    with pytest.raises(DriverError) as caught:
        take_lock(folder, name)
    assert str(link) in str(caught.value)
    assert "a symbolic link stands there, which the driver neither makes nor follows" in str(
        caught.value
    )
    assert target.read_text() == "root"


@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "state.db-shm"])
def test_a_state_file_that_is_a_link_is_named_and_not_followed(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"")
    target.chmod(0o644)
    folder = tmp_path / "gpu"
    folder.mkdir()
    (folder / name).symlink_to(target)
    with pytest.raises(Permanent, match=f"{folder / name}: a symbolic link stands there"):
        StateStore(folder / "state.db", boot_id="boot-1")
    assert (target.read_bytes(), mode(target)) == (b"", 0o644)


def test_a_peer_file_that_is_a_link_tells_nothing(tmp_path: Path) -> None:
    written = tmp_path / "planted"
    written.write_text('{"process": 1, "version": "", "endpoint": "/e", "registration": "/r"}')
    (tmp_path / "peers").mkdir()
    (tmp_path / "peers" / "e.peer").symlink_to(written)
    assert Peers(tmp_path / "peers").alive() == ()


def test_files_that_cannot_be_closed_are_an_error_that_names_them(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match=f"cannot close {tmp_path / 'no' / 'state.db'} to others"):
        close_files(tmp_path / "no" / "state.db")
    (tmp_path / "file").write_text("")
    with pytest.raises(DriverError, match=f"cannot make directory {tmp_path / 'file' / 'gpu'}"):
        close_directory(tmp_path / "file" / "gpu")


@pytest.mark.real  # only root can become somebody else
def test_a_lock_that_is_anothers_and_open_to_all_is_not_used(reachable: Path) -> None:
    path = reachable / "claim-1.lock"
    path.write_text("")
    path.chmod(0o666)
    before = len(list(Path("/proc/self/fd").iterdir()))
    os.seteuid(NOBODY)
    try:
        with pytest.raises(DriverError, match=f"cannot open lock {path}: not permitted"):
            open_lock(path)
    finally:
        os.seteuid(0)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_whoever_may_not_look_at_the_state_is_told_so(reachable: Path) -> None:
    """As `dra-driver devices` of an ordinary user."""
    path = reachable / "gpu" / "state.db"
    with opened(path):
        pass
    path.parent.chmod(
        0o000
    )  # for an ordinary user that runs this test; another one is root's for the moment
    user = os.geteuid()
    os.seteuid(NOBODY if user == 0 else user)
    try:
        with pytest.raises(Permanent, match=f"cannot look at state file {path}: permission"):
            read_claims(path)
    finally:
        os.seteuid(user)
        path.parent.chmod(0o700)
    assert read_claims(path) == ()


@pytest.mark.parametrize("with_log", [False, True])
def test_whoever_may_not_read_the_state_is_told_so(reachable: Path, with_log: bool) -> None:
    """In a directory that other programs use too, an ordinary user sees the files."""
    path = reachable / "gpu" / "state.db"
    with opened(path):
        path.parent.chmod(0o755)
        if with_log:
            shutil.copytree(path.parent, reachable / "killed")
            path = reachable / "killed" / "state.db"
    path.chmod(0o000)  # for an ordinary user that runs this test
    user = os.geteuid()
    os.seteuid(NOBODY if user == 0 else user)
    try:
        with pytest.raises(
            Permanent, match=f"cannot open or write state file {path}: .* must be writable"
        ):
            read_claims(path)
    finally:
        os.seteuid(user)
        path.chmod(0o600)
    before = sorted(path.parent.iterdir())
    assert read_claims(path) == ()
    assert sorted(path.parent.iterdir()) == before
