# SPDX-License-Identifier: Apache-2.0
"""Did SQLite take up every transaction that was committed to the write-ahead log?

After a crash SQLite reads the -wal up to the first frame whose checksum is wrong and silently forgets the rest: that is right for
a transaction that was never finished, and wrong for a log that somebody cut, removed or damaged. The state would then be
that of some earlier moment, perhaps of an earlier boot, and recovery would take the devices of running pods apart. Two
witnesses tell the cases apart:

* a commit frame of this log (its salts say so) that stands behind the last one that SQLite took up;
* the index beside the log (-shm) as the last process left it, which counts the frames.

A process that is killed in the middle of a commit leaves neither. A power cut may leave both, but then it is another boot, and
everything is prepared anew anyway. Layout: SQLite, "WAL-mode File Format".
"""

import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dra_driver.node.rows import damaged

_LOG_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_INDEX_HEADER_BYTES = 48
_INDEX = struct.Struct("=16xI12x8s8x")  # each of the two copies of its header: frames and salts
_BACKFILLED = struct.Struct("=I")  # behind both: frames that stand in the main file already


@dataclass(frozen=True, slots=True)
class LogSeen:
    """What is known of the -wal before SQLite looks at it: by the -shm its frames, those of them that stand in the main file
    already, and its salts; and the salts that it has."""

    frames: int = 0
    backfilled: int = 0
    salts: bytes = b""
    found: bytes = b""


def look_at_log(path: Path) -> LogSeen:
    """Look at the log of the database at `path`.

    No connection of this process may have the database open: to close the -shm would let go the locks of all of them.
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

    `taken` is how many frames SQLite took up. Nobody may be writing now.
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
    """So many bytes of a companion's beginning; none when it is shorter or not there."""
    try:
        with path.with_name(path.name + suffix).open("rb") as file:
            content = file.read(count)
    except OSError:
        return b""
    return content if len(content) == count else b""
