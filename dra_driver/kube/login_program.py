# SPDX-License-Identifier: Apache-2.0
"""Runs the program that a kubeconfig names for logging in, for no longer and with no more output than a login needs.

It stays in the process group of this process, so that Ctrl-C, a closed terminal and `timeout` end it as well. One that asks a person
writes its messages to the terminal.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

ANSWER_SECONDS = 300.0
"""A person may log in with a browser meanwhile."""
ANSWER_BYTES = 4 * 2**20
"""Of either stream; an ExecCredential has a few kilobytes."""
CHUNK_BYTES = 64 * 2**10
LOOK_SECONDS = 0.2
"""How often to look whether the program has ended and left its output open to something that it started."""


class Stopped(Exception):
    """The program was ended from here; the text says why. `said` is the beginning of its stderr."""

    def __init__(self, why: str, said: bytes) -> None:
        super().__init__(why)
        self.said = said


class Ended(Struct, frozen=True):
    """`answer` is its stdout, `said` its stderr; None if a person has seen it on the terminal."""

    code: int
    answer: bytes
    said: bytes | None


def run(command: Sequence[str], variables: Mapping[str, str], *, person: bool) -> Ended:
    """Run it to its end, with these variables beside those of this process. Raises OSError, ValueError, Stopped."""
    with subprocess.Popen(  # noqa: S603 - the program that the user's kubeconfig names, as kubectl runs it
        command,
        env={**os.environ, **variables},
        stdin=None if person else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if person else subprocess.PIPE,
    ) as process:
        try:
            return _listen(process)
        finally:
            _end(process)


def _listen(process: subprocess.Popen[bytes]) -> Ended:
    until = time.monotonic() + ANSWER_SECONDS
    read: dict[str, bytearray] = {}
    with selectors.DefaultSelector() as streams:
        for name, stream in (("answer", process.stdout), ("said", process.stderr)):
            if stream is not None:
                read[name] = bytearray()
                streams.register(stream, selectors.EVENT_READ, read[name])
        while streams.get_map() or process.poll() is None:
            left = until - time.monotonic()
            if left <= 0:
                raise Stopped(f"it did not end within {ANSWER_SECONDS:g} s", bytes(read.get("said", b"")))  # fmt: skip
            over = process.poll() is not None
            ready = streams.select(min(left, LOOK_SECONDS))
            for key, _ in ready:
                chunk = os.read(key.fd, CHUNK_BYTES)
                key.data.extend(chunk)
                if not chunk:
                    streams.unregister(key.fileobj)
                if len(key.data) > ANSWER_BYTES:
                    raise Stopped(f"it printed more than {ANSWER_BYTES / 2**20:g} MiB", b"")
            if over and not ready:
                break
    said = bytes(read["said"]) if "said" in read else None
    return Ended(process.wait(), bytes(read["answer"]), said)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    for pid in (*_started_by(process.pid), process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _started_by(pid: int) -> Iterator[int]:
    """Yield the processes that a process has started, and that these have started, where the system tells them (Linux)."""
    for task in Path("/proc", str(pid), "task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                yield from _started_by(child)
                yield child
