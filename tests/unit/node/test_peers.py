# SPDX-License-Identifier: Apache-2.0
"""Processes of one driver on one node, and the remains of killed ones; with real processes where a lock must die."""

import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.errors import DriverError, Fatal
from dra_driver.node.lock import take
from dra_driver.node.peers import Peer, Peers
from tests.support.local_node import ManualClock

OTHER = """
import sys
from pathlib import Path
from dra_driver.node.peers import Peer, Peers
Peers(Path(sys.argv[1])).join(Peer(7, "0.9.0", sys.argv[2], sys.argv[3]))
print("joined", flush=True)
sys.stdin.readline()
"""


def peer(root: Path, name: str = "a") -> Peer:
    return Peer(os.getpid(), "1.0", str(root / f"dra-{name}.sock"), str(root / f"{name}-reg.sock"))


def listen(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process of the driver, called b."""
    wanted = peer(tmp_path, "b")
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            OTHER,
            str(tmp_path / "peers"),
            wanted.endpoint,
            wanted.registration,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "joined\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_a_process_is_known_by_its_socket_while_it_lives(tmp_path: Path) -> None:
    peers, me = Peers(tmp_path / "peers"), peer(tmp_path)
    assert peers.alive() == ()
    peers.join(me)
    assert peers.alive() == (me,)
    assert peers.serves(Path(me.endpoint))
    assert not peers.serves(tmp_path / "dra-x.sock")
    peers.leave()
    peers.leave()
    assert peers.alive() == ()
    assert list((tmp_path / "peers").iterdir()) == []


def test_a_name_that_no_file_can_have_is_nobodys(tmp_path: Path) -> None:
    """Whoever answers under our name may say any endpoint."""
    peers = Peers(tmp_path / "peers")
    peers.join(peer(tmp_path))
    assert not peers.serves(tmp_path / ("x" * 5000))
    assert not peers.serves(tmp_path / "nul\0")
    peers.leave()


def test_two_processes_stand_side_by_side(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    peers, me = Peers(tmp_path / "peers"), peer(tmp_path)
    peers.join(me)
    beside = peer(tmp_path, "b")
    assert peers.alive() == (me, Peer(7, "0.9.0", beside.endpoint, beside.registration))
    assert peers.bury() == ()
    peers.leave()


def test_a_second_process_on_one_socket_is_refused_and_told_who_is_there(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    clock = ManualClock()
    peers, wanted = Peers(tmp_path / "peers", clock=clock, sleep=clock.sleep), peer(tmp_path, "b")
    with pytest.raises(Fatal) as caught:
        peers.join(wanted)
    assert str(caught.value) == (
        f"another process of this driver serves {wanted.endpoint}: process 7, version 0.9.0; end it first, "
        f"or give each process a --pod-uid of its own"
    )
    assert sum(clock.pauses) == pytest.approx(3)
    other.kill()
    other.wait()
    peers.join(wanted)
    assert peers.alive() == (wanted,)
    peers.leave()


def test_a_killed_process_is_cleared_away_with_its_sockets_and_nothing_else(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    dead = peer(tmp_path, "b")
    listen(dead.endpoint)
    listen(dead.registration)
    (tmp_path / "dra-x.sock").write_text("")
    peers = Peers(tmp_path / "peers")
    peers.join(peer(tmp_path))
    other.kill()
    other.wait()
    assert not peers.serves(Path(dead.endpoint))
    assert peers.bury() == (Peer(7, "0.9.0", dead.endpoint, dead.registration),)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dra-x.sock", "peers"]
    assert [path.name for path in (tmp_path / "peers").iterdir()] == ["dra-a.sock.peer"]
    peers.leave()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"process": "x"}', '{"process": null}'])
def test_a_damaged_file_of_a_dead_process_is_removed(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "peers"
    folder.mkdir()
    (folder / "dra-b.sock.peer").write_text(text)
    peers = Peers(folder)
    assert peers.alive() == ()
    assert peers.bury() == ()
    assert list(folder.iterdir()) == []


def test_what_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    folder = tmp_path / "peers"
    folder.mkdir()
    file = tmp_path / "precious"
    file.write_text("x")
    told = {"process": 1, "version": "1", "endpoint": str(file), "registration": str(file)}
    (folder / "precious.peer").write_text(json.dumps(told))
    assert len(Peers(folder).bury()) == 1
    assert file.read_text() == "x"


def test_a_socket_that_cannot_be_removed_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "peers"
    folder.mkdir()
    (tmp_path / "file").write_text("")
    below = str(tmp_path / "file" / "below.sock")  # NotADirectoryError
    told = {"process": 1, "version": "1", "endpoint": below, "registration": below}
    (folder / "below.sock.peer").write_text(json.dumps(told))
    with pytest.raises(DriverError, match=f"cannot clear away {folder}/below.sock.peer"):
        Peers(folder).bury()
    taken = take(folder / "below.sock.peer")  # the lock was let go
    assert isinstance(taken, int)
    os.close(taken)


def test_a_holder_that_gave_no_name_is_still_refused(tmp_path: Path) -> None:
    clock = ManualClock()
    taken = take(tmp_path / "peers" / "dra-a.sock.peer")
    assert isinstance(taken, int)
    with pytest.raises(Fatal, match="a process that did not give its name"):
        Peers(tmp_path / "peers", clock=clock, sleep=clock.sleep).join(peer(tmp_path))
    os.close(taken)


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    peers = Peers(tmp_path / "peers")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        with pytest.raises(DriverError, match=os.strerror(errno.EFBIG)):
            peers.join(peer(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
        peers.leave()
