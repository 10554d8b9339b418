# SPDX-License-Identifier: Apache-2.0
"""Will SQLite accept every transaction that was committed to the write-ahead log?

After a crash SQLite reads the -wal up to the first frame with a wrong checksum, and silently ignores the rest. That is right if
the rest is an unfinished transaction. It is wrong if the log was truncated, removed or damaged: then SQLite reads an earlier
state, perhaps of an earlier boot, and recovery would undo the devices of running pods. Committed transactions are lost in these
two cases:

* The index of the log (-shm), as the last process left it, has more frames than SQLite accepts, or other salts than the log; and
  frames of it are not yet in the main file, or SQLite accepts the beginning of the log, whose pages are older than the main file's.
* After the last frame that SQLite accepts, the log has another commit frame with the log's salts. This counts only if no whole index
  of this log says that it has no more frames than SQLite accepts.

Why not if it says so? SQLite writes all frames of a commit, forces them to the disk, and then writes the index. If the process is killed in
between, or the disk reports an error, the commit has not happened. The next one overwrites its frames from the first on, and may have
fewer of them. What is left of the others has the log's salts, and perhaps the mark of a commit. If that one is killed before it writes
the index, the index is one commit behind what SQLite accepts. No transaction began behind a commit that the index does not have, so
nothing behind the accepted frames was ever committed.

So an index must come from a driver, which writes it only after this check. A tool that looks at a damaged log must not make one
(`dra_driver.node.opened`).

SQLite destroys these proofs as soon as it opens the file: it writes the index anew, and removes the log when it closes the file. So
this module adds up the checksums itself, before SQLite opens anything: wherever the start ends, the next one finds the same. That takes
0.2 s for 4 MB, at which SQLite begins the log anew. Only a killed process leaves a log.

A killed process causes neither case. A power cut may cause both: the -shm can reach the disk before the last
frames, which wait for no disk (`StateStore`). So the log is not checked in the first start after a boot. Layout: SQLite, "WAL-mode File Format".
"""

import struct
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from dra_driver.node.files import translated
from dra_driver.node.sqlite_errors import damaged

_MAGIC = 0x377F0682  # the last bit says in which order of bytes the checksums were added up
_HEADER = struct.Struct(">4I8s2I")  # magic, version, size of a page, checkpoints, salts, checksum
_FRAME = struct.Struct(">2I8s2I")  # page, size of the database if this is a commit, salts, checksum
_SUMMED_OF_HEADER, _SUMMED_OF_FRAME = 24, 8
_PAGE_SIZE_AT = slice(16, 18)  # in the main file
_INDEX_HEADER_BYTES = 48
# Each of the two copies of its header: version, frames, salts, checksum of what stands before it.
_INDEX = struct.Struct("=I12xI12x8s2I")
_INDEX_VERSION, _SUMMED_OF_INDEX = 3007000, 40
# After both copies: the number of frames that are already in the main file.
_BACKFILLED = struct.Struct("=I")


class Index(Struct, frozen=True):
    """The index of the log: how many frames the log has, how many of them are already in the main file, and its salts.

    No salts: there is no whole index.
    """

    frames: int = 0
    backfilled: int = 0
    salts: bytes = b""


class Log(Struct, frozen=True):
    """The log: how many frames SQLite will accept, the number of the last commit frame, and the salts."""

    accepted: int = 0
    last_commit: int = 0
    salts: bytes = b""


def check_log(path: Path) -> None:
    """Raise sqlite3.DatabaseError, as for a damaged page, if committed transactions of the database at `path` are lost.

    No process may write during this check, and no connection of this process may have the database open: closing the -shm here
    would release the locks of all connections.
    """
    index, log = read_index(path), read_log(path)
    same_log, is_cut = index.salts == log.salts, index.frames > log.accepted
    is_needed = index.frames > index.backfilled
    # What SQLite accepts of a log that was cut hides newer pages in the main file.
    if (is_needed and (is_cut or not same_log)) or (same_log and is_cut and log.accepted):
        raise damaged(
            f"the write-ahead log is not whole: it had {index.frames} frames, {log.accepted} can be read"
        )
    has_all = same_log and not is_cut
    if log.last_commit > log.accepted and not has_all:
        raise damaged(
            f"the write-ahead log is damaged: transactions behind frame {log.accepted} cannot be read"
        )


def read_index(path: Path) -> Index:
    """Read the header of the -shm of the database at `path`; an empty one if it is not whole."""
    content = _start(path.with_name(f"{path.name}-shm"), 2 * _INDEX_HEADER_BYTES + _BACKFILLED.size)
    first, second = content[:_INDEX_HEADER_BYTES], content[_INDEX_HEADER_BYTES : -_BACKFILLED.size]
    if first != second or not first:
        return Index()
    version, frames, salts, *stored = _INDEX.unpack(first)
    sums = _added((0, 0), first[:_SUMMED_OF_INDEX], "=")
    if (version, tuple(stored)) != (_INDEX_VERSION, sums):
        return Index()
    (backfilled,) = _BACKFILLED.unpack(content[-_BACKFILLED.size :])
    return Index(frames, backfilled, salts)


def read_log(path: Path) -> Log:
    """Read the -wal of the database at `path`. Raises DriverError if it is there and cannot be read."""
    file = path.with_name(f"{path.name}-wal")
    page_bytes = int.from_bytes(_start(path, _PAGE_SIZE_AT.stop)[_PAGE_SIZE_AT])
    try:
        with file.open("rb") as log:
            return _read(log, page_bytes)
    except FileNotFoundError:
        return Log()
    except OSError as error:
        raise translated(error, f"cannot read {file}") from error


def _read(log: BinaryIO, page_bytes: int) -> Log:
    """`page_bytes` is 0 if the main file is empty or missing: then SQLite accepts nothing, and removes the log."""
    header = log.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return Log()
    magic, _, of_log, _, salts, *stored = _HEADER.unpack(header)
    order = ">" if magic & 1 else "<"
    sums = _added((0, 0), header[:_SUMMED_OF_HEADER], order)
    whole = (magic & ~1, of_log, tuple(stored)) == (_MAGIC, page_bytes, sums)
    accepted = last_commit = number = 0
    frame_bytes = _FRAME.size + (page_bytes or of_log)
    while len(frame := log.read(frame_bytes)) == frame_bytes:
        number += 1
        page, is_commit, of_frame, *stored = _FRAME.unpack_from(frame)
        if whole:
            sums = _added(sums, frame[:_SUMMED_OF_FRAME], order)
            sums = _added(sums, frame[_FRAME.size :], order)
            whole = bool(page) and (of_frame, tuple(stored)) == (salts, sums)
        if is_commit and of_frame == salts:
            last_commit = number
            accepted = number if whole else accepted
    return Log(accepted, last_commit, salts)


def _added(sums: tuple[int, int], content: bytes, order: str) -> tuple[int, int]:
    """Add the content to SQLite's checksum of what stands before it."""
    first, second = sums
    for one, other in struct.iter_unpack(f"{order}2I", content):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


def _start(path: Path, count: int) -> bytes:
    """Read the first `count` bytes of the file; empty if the file is shorter or missing."""
    try:
        with path.open("rb") as file:
            content = file.read(count)
    except OSError:
        return b""
    return content if len(content) == count else b""
