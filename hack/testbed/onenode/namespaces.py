# SPDX-License-Identifier: Apache-2.0
"""How does a program get into the node, and how does one get rid of it?

A node is a set of mount, network and process namespaces with a process 1 (init.py). Programs are
put in with `nsenter`, which stays outside as the parent of the real process; signals therefore go
to that child, by the number it has outside.
"""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TypeVar

from hack.testbed.onenode import init

INIT = Path(init.__file__)
NS_GET_PARENT = 0xB702  # linux/nsfs.h
T = TypeVar("T")


class TestBedError(Exception):
    """The test bed itself does not work; the message says where to look."""

    __test__ = False  # to pytest a name that starts with Test is a test


def wait_until(question: Callable[[], T], what: str, *, timeout_seconds: float = 60.0) -> T:
    """Ask until the answer is true and return it; give up, with the last answer, at the deadline."""
    deadline = time.monotonic() + timeout_seconds
    while not (answer := question()):
        if time.monotonic() > deadline:
            raise TestBedError(f"waited {timeout_seconds:g} s for {what}; last answer: {answer!r}")
        time.sleep(0.1)
    return answer


def children(pid: int) -> list[int]:
    """The processes that `pid` started, by their numbers outside the namespaces."""
    try:
        listing = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in listing.split()]


def _pid_namespaces(process: Path) -> Iterator[int]:
    """The inode of its pid namespace, then of those around it as far as we may see (a container has its own)."""
    with ExitStack() as opened:
        handle = os.open(process / "ns" / "pid", os.O_RDONLY | os.O_CLOEXEC)
        while True:
            opened.callback(os.close, handle)
            yield os.fstat(handle).st_ino
            try:
                handle = fcntl.ioctl(handle, NS_GET_PARENT)
            except PermissionError:
                return  # the outermost that we are in


def hold_mount_point(folder: Path) -> int:
    """Make the folder, if it is not there, and keep other clusters from removing it.

    A folder that one cluster removes takes away every mount that another cluster has on it, which
    would then write into the machine's own folders. So each holds a shared lock on it.
    """
    while True:
        folder.mkdir(exist_ok=True)
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(held, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if folder.stat().st_ino == os.fstat(held).st_ino:
                return held
        os.close(held)  # somebody removed it before it was locked


def release_mount_point(folder: Path, held: int) -> None:
    """Remove the folder if it is empty and no other cluster holds it."""
    with suppress(OSError):
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.rmdir()
    os.close(held)


class Program:
    """One program inside the namespaces: a Popen whose signals reach the program itself."""

    def __init__(self, entered: subprocess.Popen[bytes]) -> None:
        self.entered = entered

    @property
    def pid(self) -> int:
        """The program's number outside the namespaces."""
        started = wait_until(
            lambda: children(self.entered.pid) or self.entered.poll() is not None,
            f"the program of {self.entered.args!r}",
        )
        if not isinstance(started, list):
            raise ProcessLookupError(f"{self.entered.args!r} ended with {self.entered.returncode}")
        return started[0]

    def running(self) -> bool:
        """Has it not ended yet?"""
        return self.entered.poll() is None

    def stop(self, sent: signal.Signals = signal.SIGKILL, *, timeout_seconds: float = 30) -> int:
        """Send a signal and wait for the end; answer the exit status as `nsenter` has it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, sent)
        return self.entered.wait(timeout_seconds)


class Namespaces:
    """The namespaces of one node, from `open` to `close`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._unshare: subprocess.Popen[bytes] | None = None
        self._init_pid = 0
        self._mount_points: list[int] = []

    def open(self) -> None:
        """Make them, with an empty kubelet folder, /run, /var/log and /etc/kubernetes."""
        for folder, below_root in init.NODE_FOLDERS.items():
            (self.root / below_root).mkdir(parents=True, exist_ok=True)
            self._mount_points.append(hold_mount_point(folder))
        flags = ("--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")
        self._unshare = subprocess.Popen(
            ["unshare", *flags, sys.executable, str(INIT), str(self.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the program outside
        )
        if (
            self._unshare.stdout is None
            or init.READY not in self._unshare.stdout.readline().decode()
        ):
            raise TestBedError(
                f"{INIT} ended before the namespaces were ready (see its error above)"
            )
        self._init_pid = children(self._unshare.pid)[0]

    @property
    def init_pid(self) -> int:
        """Process 1, by its number outside."""
        return self._init_pid

    def close(self) -> None:
        """End every process inside, and with them the namespaces."""
        if self._unshare is None:
            return
        if self._unshare.stdin is not None:
            self._unshare.stdin.close()
        self._unshare.wait(30)
        if self._unshare.stdout is not None:
            self._unshare.stdout.close()
        self._unshare = None
        for folder, held in zip(init.NODE_FOLDERS, self._mount_points, strict=True):
            release_mount_point(folder, held)
        self._mount_points.clear()

    def enter_command(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` inside."""
        return ["nsenter", "-t", str(self._init_pid), "-m", "-n", "-p", *argv]

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        stdout: IO[bytes] | int,
        stderr: IO[bytes] | int = subprocess.STDOUT,
        stdin: int = subprocess.DEVNULL,
    ) -> Program:
        """Start a program inside and do not wait for it."""
        entered = subprocess.Popen(
            self.enter_command(argv),
            env=env,
            cwd=self.root,
            stdout=stdout,
            stderr=stderr,
            stdin=stdin,
            start_new_session=True,
        )
        return Program(entered)

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str], stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program inside to its end."""
        return subprocess.run(
            self.enter_command(argv),
            env=env,
            cwd=self.root,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def processes(self) -> list[int]:
        """Everything that lives inside, containers too, but process 1, by the numbers outside."""
        inside = Path(f"/proc/{self._init_pid}/ns/pid").stat().st_ino
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self._init_pid:
                with suppress(OSError):  # it has just ended
                    if inside in _pid_namespaces(entry):
                        found.append(int(entry.name))
        return found

    def kill_all(self, *, but: Collection[int]) -> None:
        """End every process but those, and process 1."""

        def killed() -> bool:
            doomed = set(self.processes()) - set(but)
            for pid in doomed:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not doomed

        wait_until(killed, "the processes of the node to end")
