# SPDX-License-Identifier: Apache-2.0
"""Why does a log that nobody reads hold up nothing? One thread writes all lines; the others only put them into a queue.

Standard error of a container is a pipe. If its reader stops (a full disk, a container runtime that hangs), a write waits for
ever, with a claim or a lock in its hands. So lines beyond LIMIT_CHARACTERS are dropped and counted. They are counted too if
they cannot be written, for example because the reader has gone. When a write works again, a line says how many are missing.

A process that is killed loses the lines in the queue: normally none, because each is written at once.
"""

import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import RLock, Thread

from dra_driver.errors import Fatal

LIMIT_CHARACTERS = 1 << 20
"""About 3,000 lines. One longer line fits if it is alone."""


class LogQueue:
    """A file for a logger: `write` never waits. `start` begins to write into the file descriptor `file`, `end` ends it.

    `tell` is called on the writing thread with the number of lines that are missing since the last time and since the start;
    it may write a line.
    """

    def __init__(self, file: int, *, limit: int = LIMIT_CHARACTERS) -> None:
        self._file = file
        self._limit = limit
        self._tell: Callable[[int, int], None] = lambda _new, _all: None
        # `put` of this queue waits for nothing, and is safe even in the middle of another `put`. None ends the thread.
        self._queue: SimpleQueue[str | None] = SimpleQueue()
        # A thread may come back inside `write`: garbage is collected anywhere, and what is collected may log.
        self._mutex = RLock()
        self._waiting_lines = self._waiting_characters = self._dropped = self._told = 0
        # From the first line that does not fit, until half of the queue is written: then the lines that are missing follow each other.
        self._full = False
        self._thread = Thread(target=self._run, name="log", daemon=True)

    def start(self, tell: Callable[[int, int], None]) -> None:
        """Begin to write. Raises Fatal if the system gives no thread."""
        self._tell = tell
        try:
            self._thread.start()
        except RuntimeError as error:
            raise Fatal(
                f"cannot start the first thread: {error}; raise the limit of processes and threads (pids) of this container"
            ) from error

    def write(self, line: str) -> None:
        """Queue a line, or drop and count it."""
        characters = len(line)
        with self._mutex:
            more = self._waiting_characters + characters
            if self._full or (self._waiting_lines and more > self._limit):
                self._full = True
                self._dropped += 1
                return
            self._waiting_lines += 1
            self._waiting_characters += characters
            self._queue.put(line)

    def flush(self) -> None:
        """Do nothing: a logger calls it after each line."""

    def dropped(self) -> int:
        """Return how many lines are missing in the log."""
        with self._mutex:
            return self._dropped

    def waiting(self) -> int:
        """Return how many lines are not written yet."""
        with self._mutex:
            return self._waiting_lines

    def end(self, *, seconds: float) -> bool:
        """Wait at most `seconds` until all lines are written. Returns whether they are. Later lines are not written."""
        self._queue.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (line := self._queue.get()) is not None:
            written = self._written(line)
            with self._mutex:
                self._waiting_lines -= 1
                self._waiting_characters -= len(line)
                self._dropped += not written
                if self._waiting_characters <= self._limit // 2:
                    self._full = False
                new = self._dropped - self._told
                tells = written and new > 0 and not self._full
                if tells:
                    self._told = self._dropped
            if tells:
                self._tell(new, self._told)

    def _written(self, line: str) -> bool:
        # Not `sys.stderr`: a thread that waits inside its `write` keeps a lock that the interpreter needs at its exit.
        left = line.encode("utf-8", "backslashreplace")
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            return False
        return True
