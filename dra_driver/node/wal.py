# SPDX-License-Identifier: Apache-2.0
"""Has SQLite accepted every transaction that was committed to the write-ahead log?

After a crash SQLite reads the -wal up to the first frame with a wrong checksum, and silently ignores the rest. That is right if
the rest is an unfinished transaction. It is wrong if the log was truncated, removed or damaged: then SQLite reads an earlier
state, perhaps of an earlier boot, and recovery would undo the devices of running pods. Committed transactions are lost in these
two cases:

* After the last frame that SQLite accepted, the log has another commit frame with the log's salts.
* The index of the log (-shm), as the last process left it, has frames that are not yet in the main file; and it has more frames
  than SQLite accepted, or other salts than the log.

If a process is killed during a commit, neither case happens. A power cut may cause both: the -shm can reach the disk before the last
frames, which wait for no disk (`StateStore`). So the log is not checked in the first start after a boot. Layout: SQLite, "WAL-mode File Format".
"""

import struct
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from dra_driver.node.rows import damaged

_LOG_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_INDEX_HEADER_BYTES = 48
_INDEX = struct.Struct("=16xI12x8s8x")  # each of the two copies of its header: frames and salts
# After both copies: the number of frames that are already in the main file.
_BACKFILLED = struct.Struct("=I")


class LogSeen(Struct, frozen=True):
    """The log before SQLite opened it. `frames` (number of frames), `backfilled` (how many of them are already in the main file) and
    `salts` come from the -shm. `found` are the salts in the -wal itself.
    """

    frames: int = 0
    backfilled: int = 0
    salts: bytes = b""
    found: bytes = b""


def look_at_log(path: Path) -> LogSeen:
    """Read the headers of the log of the database at `path`.

    No connection of this process may have the database open: closing the -shm here would release the locks of all connections.
    """
    found = _bytes(path, "-wal", _LOG_HEADER_BYTES)[16:24]
    content = _bytes(path, "-shm", 2 * _INDEX_HEADER_BYTES + _BACKFILLED.size)
    first, second = content[:_INDEX_HEADER_BYTES], content[_INDEX_HEADER_BYTES : -_BACKFILLED.size]
    if first != second or not first:
        return LogSeen(found=found)
    frames, salts = _INDEX.unpack(first)
    (backfilled,) = _BACKFILLED.unpack(content[-_BACKFILLED.size :])
    return LogSeen(frames, backfilled, salts, found)


def check_log(path: Path, seen: LogSeen, *, taken: int, page_bytes: int) -> None:
    """Raise sqlite3.DatabaseError, as for a damaged page, if committed transactions are lost.

    `taken` is the number of frames that SQLite accepted. No process may write during this check.
    """
    if seen.frames > seen.backfilled and (seen.salts != seen.found or seen.frames > taken):
        raise damaged(
            f"the write-ahead log is not whole: it had {seen.frames} frames, {taken} can be read"
        )
    frame_bytes = _FRAME_HEADER_BYTES + page_bytes
    with suppress(OSError), path.with_name(f"{path.name}-wal").open("rb") as log:
        salts = log.read(_LOG_HEADER_BYTES)[16:24]
        log.seek(_LOG_HEADER_BYTES + taken * frame_bytes)
        while len(frame := log.read(frame_bytes)) == frame_bytes:
            if frame[4:8] != bytes(4) and frame[8:16] == salts:
                raise damaged(
                    f"the write-ahead log is damaged: transactions behind frame {taken} cannot be read"
                )


def _bytes(path: Path, suffix: str, count: int) -> bytes:
    """Read the first `count` bytes of the file with this suffix; empty if the file is shorter or missing."""
    try:
        with path.with_name(path.name + suffix).open("rb") as file:
            content = file.read(count)
    except OSError:
        return b""
    return content if len(content) == count else b""
