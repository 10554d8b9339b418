# SPDX-License-Identifier: Apache-2.0
"""Is nvidia-cdi-hook on the host, and which commands does it know?

The program comes with NVIDIA's container toolkit. A container runtime starts it for each container; if it does not know a command, the
container does not start. Older releases lack some commands.
"""

import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from dra_driver.backends.nvidia.hardware.tree import Tree

_HOOKS = (
    "/usr/bin/nvidia-cdi-hook",
    "/usr/local/nvidia/toolkit/nvidia-cdi-hook",  # the GPU operator
    "/home/kubernetes/bin/nvidia/toolkit/nvidia-cdi-hook",  # the GPU operator on GKE
    "/usr/local/bin/nvidia-cdi-hook",  # Talos
    "/opt/nvidia/toolkit/nvidia-cdi-hook",
)
_HOOK_COMMANDS = ("disable-device-node-modification", "enable-cuda-compat")
_CHUNK = 2**20


class HookFinder:
    """Looks for the hook again and again; its program is read only after it has changed."""

    def __init__(self, host: Tree) -> None:
        self._host = host
        self._seen: object = None
        self._commands: tuple[str, ...] = ()

    def find(self) -> tuple[str, tuple[str, ...]]:
        """Return the path of the hook and the newer commands that it has; an empty path if there is no hook."""
        path = next(filter(self._is_program, _HOOKS), "")
        return (path, self._commands_of(path)) if path else ("", ())

    def _is_program(self, path: str) -> bool:
        status = self._host.stat(path)
        return status is not None and stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o100)

    def _commands_of(self, hook: str) -> tuple[str, ...]:
        """Return the commands that the program's text names. The operator installs a wrapper, with the program beside it."""
        program = f"{hook}.real" if self._host.is_file(f"{hook}.real") else hook
        status = self._host.stat(program)
        seen = status and (program, status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            path = self._host.outside(self._host.resolve(program))
            self._seen, self._commands = seen, tuple(_contained(path, _HOOK_COMMANDS))
        return self._commands


def _contained(path: Path, words: Sequence[str]) -> Iterator[str]:
    """Yield the words that a file contains. It is read in pieces: a program in Go has 10 MiB."""
    wanted = {word: word.encode() for word in words}
    found: set[str] = set()
    try:
        with path.open("rb") as file:
            piece = b""
            while chunk := file.read(_CHUNK):
                piece = piece[-64:] + chunk
                found |= {word for word, text in wanted.items() if text in piece}
    except OSError:
        return
    yield from (word for word in words if word in found)
