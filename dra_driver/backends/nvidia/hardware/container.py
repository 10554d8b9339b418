# SPDX-License-Identifier: Apache-2.0
"""The hardware process in a container of its own: `dra-driver hardware`.

It is two processes. The first one listens on a unix socket and passes each connection on; it never calls the library, so it cannot
hang. The second one is forked from it and calls the library; if it hangs, it ends itself, and the next connection starts another one.
If there were only one process, the kubelet would wait longer before each restart, up to five minutes, and one broken GPU would
take all others with it.
"""

import gc
import os
import select
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from dra_driver.backends.nvidia.hardware.control import Keeper
from dra_driver.backends.nvidia.hardware.peer import owner
from dra_driver.backends.nvidia.hardware.verbs import LET_GO
from dra_driver.errors import Fatal, Temporary

_TAKE_SECONDS = 3.0  # a forked process takes a connection at once
_FIRST_FREE, _MOST_FILES = 3, 1024
Work = Callable[[socket.socket, float], None]
"""Serves what comes over a control socket, and does not open the library before a time of the monotonic clock: `worker.work`."""
CLOSED_SECONDS = 60.0
"""How long the library stays closed after `let_go`: long enough to unload the kernel driver by hand or by a job."""


def serve(path: str, work: Work) -> None:
    """Listen on `path` until SIGTERM or SIGINT. Raises Fatal if that is not possible."""
    listener = _listen(path)
    closed = _Closed()
    keeper = Keeper(lambda: _fork(work, closed), "dra-driver hardware", seconds=_TAKE_SECONDS)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    gc.freeze()  # what is there before the fork stays shared
    try:
        while True:
            _wait(listener, keeper)
            connection, _ = listener.accept()
            with connection:
                _pass_on(connection, keeper)
    except _Stopped:
        return
    finally:
        keeper.close()
        listener.close()
        Path(path).unlink(missing_ok=True)


class _Stopped(Exception):
    """A signal asked for the end."""


def _stop(_number: int, _frame: object) -> None:
    raise _Stopped


def _wait(listener: socket.socket, keeper: Keeper) -> None:
    """Wait for a connection. A process that ends meanwhile is reaped at once."""
    while True:
        running = keeper.running()
        watched = [listener] if running is None else [listener, running.control]
        ready, _, _ = select.select(watched, [], [])
        if running is not None and running.control in ready:
            keeper.replace(running)  # it sends nothing unasked, so this is its end
        if listener in ready:
            return


def _pass_on(connection: socket.socket, keeper: Keeper) -> None:
    user = owner(connection)
    if user not in {0, os.geteuid()}:
        _say(f"user {user} connected; only root may ask the hardware: the connection was closed")
        return
    try:
        keeper.give(connection)
    except Temporary as error:
        _say(f"{error}; it is tried again at the next connection")


class _Closed(Struct):
    """Until when the library stays closed."""

    until: float = 0.0


class _Forked(Struct, frozen=True, eq=False):
    pid: int
    control: socket.socket
    closed: _Closed
    codes: list[int]

    def kill(self) -> None:
        if not self.codes:
            os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> bool:
        if not self.codes:
            try:
                pid, code = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else took its exit code
                pid, code = self.pid, 0
            if pid:
                self.codes.append(code)
                if os.waitstatus_to_exitcode(code) == LET_GO:
                    self.closed.until = time.monotonic() + CLOSED_SECONDS
        return bool(self.codes)


def _fork(work: Work, closed: _Closed) -> _Forked:
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return _Forked(pid, ours, closed, [])
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # The listener, our end, and the connection for which this process starts: nobody would notice that the first process closes it.
        os.closerange(_FIRST_FREE, theirs.fileno())
        os.closerange(theirs.fileno() + 1, _MOST_FILES)
        work(theirs, closed.until)
    finally:
        os._exit(1)  # never back into the loop of the first process


def _listen(path: str) -> socket.socket:
    """Listen for root only. A socket that a killed process left is replaced; a living one is not."""
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        listener.bind(path)
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise Fatal(
            f"the hardware process cannot listen on {path}: {error.strerror or error}; name a path (--socket) in a folder that exists and "
            "that this process may write to, of at most 107 bytes"
        ) from error
    finally:
        os.umask(mask)
    return listener


def _remove_stale(path: str) -> None:
    try:
        if not stat.S_ISSOCK(Path(path).lstat().st_mode):
            raise Fatal(
                f"{path} exists and is no socket; name another path (--socket), or remove it"
            )
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            probe.connect(path)
    except FileNotFoundError:
        return
    except OSError:
        Path(path).unlink(missing_ok=True)
        return
    raise Fatal(f"another process listens on {path}; end it first, or name another path (--socket)")


def _say(sentence: str) -> None:
    print(f"hardware process: {sentence}", file=sys.stderr, flush=True)  # noqa: T201  its log
