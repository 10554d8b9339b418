# SPDX-License-Identifier: Apache-2.0
"""How is a state file opened, for work and for a look that leaves it as it is?

* A flipped bit can make a text that is not UTF-8. Python's sqlite3 raises an error for it that names no row, and one such text would
  count as damage of the whole file. So whoever checks rows reads such bytes as surrogates (`lenient`), which no text of the driver has,
  and finds the row. The checked file is then read as Python does it (`strict`), which is faster.
* A flipped bit in the text of the schema can also be in SQLite's message about it. Python's sqlite3 cannot decode this message, and
  raises UnicodeDecodeError in place of its own error. So all statements for the file run on a connection that says damage instead.
* What a killed process left beside the file, -wal and -shm, shows whether its log is whole (`dra_driver.node.wal`). The last process
  that closes the file takes the log up and removes both, and even a connection that only reads writes a -shm that is missing. That
  one would say of a damaged log that it is whole. So a tool that only looks reads without both of that.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from dra_driver.node.private import FILE_MODE
from dra_driver.node.sqlite_errors import damaged

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_SURROGATES: Callable[[bytes], str] = partial(str, encoding="utf-8", errors="surrogateescape")


class _Connection(sqlite3.Connection):
    """What it runs is UTF-8, and so are the names in the schema as they were written. So only damage makes a message that is not."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        with _told_as_damage():
            return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> sqlite3.Cursor:
        with _told_as_damage():
            return super().executemany(sql, parameters)


def open_to_write(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """Open the file, with one connection for all threads. Rows can be checked."""
    db = sqlite3.connect(
        path,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
        factory=_Connection,
    )
    return lenient(db)


def open_to_look(path: Path) -> sqlite3.Connection:
    """Open the file so that it, its -wal and its -shm stay as they are. Rows can be checked. Raises sqlite3.Error."""
    address = f"{path.absolute().as_uri()}?{_way_to_look(path)}"
    return lenient(sqlite3.connect(address, uri=True, factory=_Connection))


def lenient(db: sqlite3.Connection) -> sqlite3.Connection:
    """Read bytes that are not UTF-8 as surrogates, from now on: `is_text` finds them."""
    db.text_factory = _SURROGATES
    return db


def strict(db: sqlite3.Connection) -> None:
    """Let bytes that are not UTF-8 be an error of SQLite, from now on."""
    db.text_factory = str


@contextmanager
def _told_as_damage() -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        said = error.object.decode("ascii", errors="backslashreplace")
        raise damaged(said) from error


def is_text(value: object) -> bool:
    """Whether a value of a row can be what the driver wrote: no text with bytes that are not UTF-8."""
    if not isinstance(value, str) or value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _way_to_look(path: Path) -> str:
    """Return the options of SQLite with which it changes nothing."""
    log, index = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    if log.exists() and not index.exists():
        # SQLite would write it. It leaves an empty one as it is, and an empty one says nothing of the log. If the directory cannot be
        # written, SQLite says so.
        with suppress(OSError):
            os.close(os.open(index, _NEW, FILE_MODE))
    if index.exists() or log.exists():
        return "mode=ro&readonly_shm=1"
    # There is no log to take up. Only who may write removes the empty -wal and -shm that SQLite makes while the file is open.
    return "mode=rw"
