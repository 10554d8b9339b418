# SPDX-License-Identifier: Apache-2.0
"""Which driver processes serve this node? Usually one; two during a rolling update. Killed processes leave files behind.

Each process has a file, named after the socket that it serves, and has a lock on the file as long as it lives. The lock shows
another process that the socket is in use. A process number would not show it, because each container has its own PID namespace.
The kernel releases the lock when the process ends. The file's text names the sockets that must then be removed: the kubelet takes
a socket without a process for a driver that does not answer.
"""

import json
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from dra_driver.errors import Fatal
from dra_driver.node.files import translated
from dra_driver.node.lock import take
from dra_driver.node.private import close_directory

WAIT_SECONDS = 3.0  # an earlier process with the same socket may be ending
_PAUSE_SECONDS = 0.1


class Peer(Struct, frozen=True):
    """One driver process. `process` is its number in its own PID namespace."""

    process: int
    version: str
    endpoint: str
    registration: str


class Peers:
    """The files of all driver processes, in a directory. `clock` is monotonic seconds, `sleep` waits between two tries."""

    def __init__(
        self,
        directory: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._sleep = sleep
        self._own: tuple[Path, int] | None = None

    def join(self, peer: Peer) -> None:
        """Register this process until `leave`. If another process serves the same socket, raises Fatal, which names that process."""
        path = self._file(Path(peer.endpoint))
        close_directory(self._directory)
        until = self._clock() + WAIT_SECONDS
        while isinstance(taken := take(path), str):
            if self._clock() >= until:
                raise Fatal(
                    f"another process of this driver serves {peer.endpoint}: {_described(taken)}; end it first, "
                    f"or give each process a --pod-uid of its own"
                )
            self._sleep(_PAUSE_SECONDS)
        self._own = path, taken
        text = json.dumps(asdict(peer)).encode()
        try:
            os.ftruncate(taken, 0)
            os.pwrite(taken, text, 0)
        except OSError as error:
            raise translated(error, f"cannot write {path}") from error

    def leave(self) -> None:
        """Remove this process's file and release its lock. Call this after its sockets are removed."""
        if self._own is not None:
            (path, handle), self._own = self._own, None
            with suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(handle)

    def serves(self, endpoint: Path) -> bool:
        """Whether a living process of this driver serves the socket `endpoint`."""
        path = self._file(endpoint)
        try:
            if not path.exists():
                return False
        except OSError:
            return False  # the endpoint of a foreign plugin may be too long for the name of a file
        taken = take(path)
        if isinstance(taken, str):
            return True
        os.close(taken)
        return False

    def alive(self) -> tuple[Peer, ...]:
        """Return every living process of this driver, also this one."""
        return tuple(
            peer
            for path in self._files()
            if (peer := _parsed(path)) is not None and self.serves(Path(peer.endpoint))
        )

    def bury(self) -> tuple[Peer, ...]:
        """Remove the sockets of killed processes, then their files. Returns these processes."""
        return tuple(peer for path in self._files() if (peer := _buried(path)) is not None)

    def _file(self, endpoint: Path) -> Path:
        return self._directory / f"{endpoint.name}.peer"

    def _files(self) -> tuple[Path, ...]:
        return tuple(sorted(self._directory.glob("*.peer")))


def _buried(path: Path) -> Peer | None:
    taken = take(path)
    if isinstance(taken, str):
        return None
    try:
        # This process has the lock now, so a new process with the same socket waits until the old sockets are removed.
        dead = _parsed(path)
        for socket in (dead.registration, dead.endpoint) if dead else ():
            _remove_socket(Path(socket))
        path.unlink(missing_ok=True)
    except OSError as error:
        raise translated(
            error, f"cannot clear away {path} and the sockets that it names"
        ) from error
    finally:
        os.close(taken)
    return dead


def _remove_socket(path: Path) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()


def _parsed(path: Path) -> Peer | None:
    """Read the file; None if it does not exist, is empty or damaged (as after a power cut), or is a symbolic link."""
    try:
        with open(path, opener=_unfollowed) as file:
            return _peer(file.read())
    except (OSError, ValueError):
        return None


def _unfollowed(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def _peer(text: str) -> Peer:
    fields = json.loads(text)
    try:
        return Peer(
            int(fields["process"]), fields["version"], fields["endpoint"], fields["registration"]
        )
    except (TypeError, KeyError) as error:
        raise ValueError(text) from error


def _described(text: str) -> str:
    try:
        peer = _peer(text)
    except ValueError:
        return text
    return f"process {peer.process}, version {peer.version}"
