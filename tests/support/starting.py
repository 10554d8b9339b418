# SPDX-License-Identifier: Apache-2.0
"""Start a module of this project as a process: as the program itself, or forked from a process that has imported it.

A fork proves the same at a quarter of the cost, with coverage at a fifth: it is a process of its own with the same arguments, signals, exit codes and
files. `DRA_TESTS_START=program` starts every one as the program itself. coverage begins anew in each fork (`patch` in pyproject.toml).
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Protocol

ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.005
FORKS = os.environ.get("DRA_TESTS_START", "fork") == "fork"


class Process(Protocol):
    """What tests use of `subprocess.Popen`."""

    pid: int
    stdout: IO[bytes] | None

    @property
    def returncode(self) -> int | None:
        """What the last `poll` or `wait` found."""

    def poll(self) -> int | None:
        """The return code; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The return code, once it ended."""

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it ended."""

    def terminate(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL."""


class ForkServer:
    """The process of tests/support/fork_server.py, started when the first child is asked for; it ends with this process."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                (sys.executable, "-m", "tests.support.fork_server"),
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                start_new_session=True,  # Ctrl-C is for the tests; the server goes when they are gone
            )

    def close(self) -> None:
        """End all children and the server."""
        self._socket.close()
        self._process.wait()

    def start(self, order: Mapping[str, object], files: Sequence[int]) -> int:
        """A new child; answers its number."""
        pid: int = self._ask({"start": order}, files)["pid"]
        return pid

    def code_of(self, pid: int) -> int | None:
        """The return code of a child, None while it runs; to be asked until there is one, and then no more."""
        code: int | None = self._ask({"wait": pid})["code"]
        return code

    def _ask(self, request: Mapping[str, object], files: Sequence[int] = ()) -> dict[str, int]:
        with self._mutex:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            answer = self._socket.recv(1 << 16)
        assert answer, f"the fork server ended with {self._process.wait()}; see its error above"
        found: dict[str, int] = json.loads(answer)
        return found


@cache
def fork_server() -> ForkServer:
    """The one of this process."""
    return ForkServer()


def close() -> None:
    """End the one of this process, if there is one."""
    if fork_server.cache_info().currsize:
        fork_server().close()
        fork_server.cache_clear()


class Forked:
    """A child of the fork server, seen as `subprocess.Popen` shows one."""

    def __init__(self, server: ForkServer, pid: int, stdout: IO[bytes] | None) -> None:
        self._server = server
        self._mutex = threading.Lock()
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The return code; None while it runs."""
        with self._mutex:
            if self.returncode is None:
                self.returncode = self._server.code_of(self.pid)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The return code, once it ended."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(POLL_SECONDS)
        return code

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)  # nobody else has this number before `poll` has seen the end

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start(  # the keywords are those of subprocess.Popen
    module: str,
    arguments: Sequence[str],
    *,
    stdout: IO[bytes] | int,
    stderr: IO[bytes] | int,
    env: Mapping[str, str] | None = None,
    start_new_session: bool = False,
    program: bool = False,
) -> Process:
    """A module as a process of its own; `program` starts the interpreter, as `subprocess` does."""
    if program or not FORKS:
        return subprocess.Popen(
            _command(module, arguments),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=env,
            start_new_session=start_new_session,
        )
    order = {
        "module": module,
        "arguments": list(arguments),
        "environment": dict(os.environ if env is None else env),
        "directory": str(Path.cwd()),
        "own_session": start_new_session,
    }
    return _forked(order, stdout, stderr)


def _command(module: str, arguments: Sequence[str]) -> list[str]:
    """The installed program where it is one."""
    installed = Path(sys.executable).with_name("dra-driver")
    if module == "dra_driver" and installed.exists():
        return [str(installed), *arguments]
    return [sys.executable, "-m", module, *arguments]


def _forked(
    order: Mapping[str, object], stdout: IO[bytes] | int, stderr: IO[bytes] | int
) -> Forked:
    server, read, opened = fork_server(), None, [os.open(os.devnull, os.O_RDWR)]
    try:
        if stdout == subprocess.PIPE:
            ours, theirs = os.pipe()
            opened.append(theirs)
            read = os.fdopen(ours, "rb")
        else:
            theirs = _number(stdout, opened[0])
        errors = theirs if stderr == subprocess.STDOUT else _number(stderr, opened[0])
        return Forked(server, server.start(order, (opened[0], theirs, errors)), read)
    finally:
        for number in opened:
            os.close(number)


def _number(file: IO[bytes] | int, empty: int) -> int:
    if file == subprocess.DEVNULL:
        return empty
    return file if isinstance(file, int) else file.fileno()


def run(
    module: str, *arguments: str, timeout: float, program: bool = False
) -> subprocess.CompletedProcess[str]:
    """A module from start to end, with what it wrote."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = start(module, arguments, stdout=out, stderr=errors, program=program)
        try:
            code = process.wait(timeout)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess((module, *arguments), code, *texts)
