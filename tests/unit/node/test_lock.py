# SPDX-License-Identifier: Apache-2.0
"""Locks between threads and between processes."""

import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from threading import Barrier, Event, Thread

import pytest

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.node import lock
from dra_driver.node.lock import Locks
from dra_driver.testing.stage import wait_for
from tests.support.local_node import ManualClock

DEADLINE = 300  # seconds, against hanging only
HOLDER = """
import sys, time
from pathlib import Path
from dra_driver.node.lock import Locks
with Locks(Path(sys.argv[1])).locked(["device-gpu-0"], until=time.monotonic() + 30, purpose="setting up"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def manual(directory: Path, clock: ManualClock) -> Locks:
    return Locks(directory / "locks", clock=clock, sleep=clock.sleep)


def test_a_lock_keeps_another_out_and_its_file_is_removed_later(
    tmp_path: Path, clock: ManualClock
) -> None:
    locks = manual(tmp_path, clock)
    with locks.locked(["claim-1", "claim-1"], until=0, purpose="preparing"):
        assert [path.name for path in (tmp_path / "locks").iterdir()] == ["claim-1.lock"]
        with (
            pytest.raises(Temporary) as caught,
            locks.locked(["claim-1"], until=clock() + 1, purpose="x"),
        ):
            raise AssertionError("both hold it")
    assert str(caught.value) == (
        f"claim-1 is locked by process {os.getpid()}, preparing; waited as long as the kubelet waits, it tries again"
    )
    assert clock.pauses[:7] == [0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.1]
    with locks.locked(["claim-1"], until=0, purpose="again"):
        locks.tidy()  # somebody has it again
        assert [path.name for path in (tmp_path / "locks").iterdir()] == ["claim-1.lock"]
    locks.tidy()
    assert list((tmp_path / "locks").iterdir()) == []
    locks.tidy()
    with locks.locked(["claim-1"], until=0, purpose="anew"):
        pass


def test_a_file_that_cannot_be_removed_keeps_no_other_one(
    tmp_path: Path, clock: ManualClock
) -> None:
    locks = manual(tmp_path, clock)
    with locks.locked(["claim-1", "claim-2"], until=0, purpose="preparing"):
        pass
    folder = tmp_path / "locks"
    (folder / "claim-1.lock").unlink()
    (folder / "claim-1.lock").symlink_to("elsewhere")
    locks.tidy()
    assert [path.name for path in folder.iterdir()] == ["claim-1.lock"]
    (folder / "claim-1.lock").unlink()
    (folder / "claim-1.lock").touch()
    locks.tidy()  # it is not forgotten
    assert list(folder.iterdir()) == []


def test_files_are_removed_while_the_process_runs(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_TIDY_SECONDS", 0.001)
    locks, stop = manual(tmp_path, clock), Event()
    with locks.locked(["claim-1"], until=0, purpose="preparing"):
        pass
    thread = Thread(target=locks.run, args=(stop,), daemon=True)
    thread.start()
    wait_for(lambda: not list((tmp_path / "locks").iterdir()), "an empty folder")
    stop.set()
    thread.join(DEADLINE)
    assert not thread.is_alive()


@pytest.mark.parametrize("name", ["device-gpu-0", "hardware-00112233"])
def test_the_file_of_a_lock_of_hardware_stays_until_the_next_start(
    tmp_path: Path, clock: ManualClock, name: str
) -> None:
    """It is used again and again, and to make a file anew takes longer than to open it."""
    locks = manual(tmp_path, clock)
    path = tmp_path / "locks" / f"{name}.lock"
    with locks.locked([name], until=0, purpose="setting up"):
        inode = path.stat().st_ino
    locks.tidy()
    with locks.locked([name], until=0, purpose="resetting"):
        assert path.stat().st_ino == inode
        with (
            pytest.raises(Temporary, match=f"process {os.getpid()}, resetting;"),
            locks.locked([name], until=clock(), purpose="x"),
        ):
            raise AssertionError("both hold it")
    locks.clear_leftovers()
    assert not path.exists()


def test_when_one_of_several_is_taken_none_is_kept(tmp_path: Path, clock: ManualClock) -> None:
    locks = manual(tmp_path, clock)
    with locks.locked(["b"], until=0, purpose="x"):
        with pytest.raises(Temporary), locks.locked(["c", "a", "b"], until=0, purpose="y"):
            raise AssertionError
        with locks.locked(["a", "c"], until=0, purpose="z"):
            pass


def test_two_callers_with_names_in_different_order_never_wait_for_each_other(
    tmp_path: Path,
) -> None:
    locks = Locks(tmp_path)
    start, done = Barrier(2, timeout=DEADLINE), []

    def work(names: list[str]) -> None:
        start.wait()
        for _ in range(50):
            with locks.locked(names, until=1e12, purpose="x"):
                done.append(names)

    threads = [
        Thread(target=work, args=(names,), daemon=True) for names in (["a", "b"], ["b", "a"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert len(done) == 100


def test_many_threads_never_hold_one_lock_together(tmp_path: Path) -> None:
    locks, inside, worst = Locks(tmp_path), [0], []

    def work() -> None:
        for _ in range(25):
            with locks.locked(["a"], until=1e12, purpose="x"):
                inside[0] += 1
                worst.append(inside[0])
                inside[0] -= 1

    threads = [Thread(target=work, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert worst == [1] * 100


def test_another_process_keeps_us_out_and_its_death_lets_us_in(
    tmp_path: Path, clock: ManualClock
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        locks = Locks(tmp_path, clock=clock, sleep=clock.sleep)
        with (
            pytest.raises(Temporary, match=f"is locked by process {holder.pid}, setting up;"),
            locks.locked(["device-gpu-0"], until=0, purpose="x"),
        ):
            raise AssertionError
        holder.send_signal(signal.SIGKILL)
        holder.wait(DEADLINE)
    assert (tmp_path / "device-gpu-0.lock").exists()
    with locks.locked(["device-gpu-0"], until=0, purpose="x"):
        pass


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_no_lock(tmp_path: Path) -> None:
    """The waiter has the old file open when it is removed."""
    clock, entered, leave = ManualClock(), Event(), Event()
    locks = manual(tmp_path, clock)
    path = tmp_path / "locks" / "a.lock"

    def hold() -> None:
        with locks.locked(["a"], until=0, purpose="first"):
            entered.set()
            assert leave.wait(DEADLINE)

    holder = Thread(target=hold, daemon=True)
    holder.start()
    assert entered.wait(DEADLINE)
    stale = os.open(path, os.O_RDWR)
    leave.set()
    holder.join(DEADLINE)
    locks.tidy()
    assert lock.try_lock(stale)
    assert not lock.leads_to(path, stale)
    with locks.locked(["a"], until=0, purpose="second"):
        assert not lock.leads_to(path, stale)
    os.close(stale)


class OvertakenLocks(Locks):
    """Its first file is removed between open and flock, as a holder does that lets go in that moment."""

    overtaken = False

    def _open(self, path: Path) -> int:
        handle = super()._open(path)
        if not self.overtaken:
            self.overtaken = True
            path.unlink()
        return handle


def test_a_waiter_that_was_overtaken_locks_the_file_that_others_see(
    tmp_path: Path, clock: ManualClock
) -> None:
    overtaken = OvertakenLocks(tmp_path / "locks", clock=clock, sleep=clock.sleep)
    with (
        overtaken.locked(["a"], until=clock() + 1, purpose="x"),
        pytest.raises(Temporary),
        manual(tmp_path, clock).locked(["a"], until=0, purpose="y"),
    ):
        raise AssertionError


def test_a_holder_that_could_not_write_its_name_is_still_waited_for(
    tmp_path: Path, clock: ManualClock
) -> None:
    locks = manual(tmp_path, clock)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))  # like a full disk
        with (
            locks.locked(["a"], until=0, purpose="x"),
            pytest.raises(Temporary, match="a is locked by a process that did not give its name"),
            locks.locked(["a"], until=0, purpose="y"),
        ):
            raise AssertionError
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "locks").write_text("")
    with (
        pytest.raises(Permanent, match=f"cannot open lock {tmp_path}/locks/a.lock: "),
        manual(tmp_path, clock).locked(["a"], until=0, purpose="x"),
    ):
        raise AssertionError


def test_an_error_inside_lets_go(tmp_path: Path, clock: ManualClock) -> None:
    locks = manual(tmp_path, clock)
    with pytest.raises(DriverError), locks.locked(["a"], until=0, purpose="x"):
        raise DriverError(errno.EIO)
    with locks.locked(["a"], until=0, purpose="y"):
        pass


def test_files_of_killed_holders_are_cleared_away_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "claim-a.lock").write_text("process 1, preparing")
    locks = Locks(tmp_path)
    with locks.locked(["claim-b"], until=0, purpose="testing"):
        locks.clear_leftovers()
        assert [path.name for path in tmp_path.iterdir()] == ["claim-b.lock"]
    Locks(tmp_path / "none").clear_leftovers()


def test_a_shorter_name_leaves_nothing_of_a_killed_holders_longer_one(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.write_text("process 1, preparing something with a very long name " * 3)
    with Locks(tmp_path).locked(["a"], until=0, purpose="x"):
        assert path.read_text() == f"process {os.getpid()}, x"


def test_a_lock_that_cannot_be_looked_at_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.lock"

    def failing(_path: Path, _handle: int) -> bool:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(lock, "leads_to", failing)
        with pytest.raises(OSError, match="Input/output"):
            lock.take(path)
    taken = lock.take(path)
    assert isinstance(taken, int)
    os.close(taken)
