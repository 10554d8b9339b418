# SPDX-License-Identifier: Apache-2.0
"""Which driver processes serve this node: one as a rule, two while an update rolls, and the remains of killed ones.

Each process holds a lock on a file of its own for as long as it lives, named after the socket that it serves. The lock
says "this socket is ours" to the other process, whatever process numbers mean in its namespace, and dies with its holder. The
file's text says which sockets to clear away then: to a kubelet, a socket without a process is a driver that does not answer.
"""

import json
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from dra_driver.errors import Fatal
from dra_driver.node.files import translated
from dra_driver.node.lock import take
from dra_driver.node.private import close_directory

WAIT_SECONDS = 3.0  # the process before us under the same name may be ending
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Peer:
    """One driver process. `process` is its number in its own namespace."""

    process: int
    version: str
    endpoint: str
    registration: str


class Peers:
    """The processes' files below a directory. `clock` is monotonic seconds, `sleep` waits between two tries."""

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
        self._held: tuple[Path, int] | None = None

    def join(self, peer: Peer) -> None:
        """Be one of them until `leave`. Raises Fatal, naming the process, when another one serves this very socket."""
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
        self._held = path, taken
        text = json.dumps(asdict(peer)).encode()
        try:
            os.ftruncate(taken, 0)
            os.pwrite(taken, text, 0)
        except OSError as error:
            raise translated(error, f"cannot write {path}") from error

    def leave(self) -> None:
        """Let go, when the sockets are gone."""
        if self._held is not None:
            (path, handle), self._held = self._held, None
            with suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(handle)

    def serves(self, endpoint: Path) -> bool:
        """Whether a living process of this driver serves that socket."""
        path = self._file(endpoint)
        try:
            if not path.exists():
                return False
        except OSError:
            return False  # a stranger's endpoint may be too long for a file's name
        taken = take(path)
        if isinstance(taken, str):
            return True
        os.close(taken)
        return False

    def alive(self) -> tuple[Peer, ...]:
        """Every living process, this one among them."""
        return tuple(
            peer
            for path in self._files()
            if (peer := _parsed(path)) is not None and self.serves(Path(peer.endpoint))
        )

    def bury(self) -> tuple[Peer, ...]:
        """Clear away what killed processes left: their sockets, then their files; answers who they were."""
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
        # Under its lock: a process that starts under this name waits until the old sockets are gone.
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
    """What the file says; None when it is gone, empty or damaged, as after a power cut, and for a link."""
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
