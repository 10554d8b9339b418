# SPDX-License-Identifier: Apache-2.0
"""What the dynamic linker knows: the libraries in its cache, and the name that a library calls itself (its SONAME).

Both formats are read by hand, because the files belong to another root file system than this process; its own linker does not know
them. The files may be cut short or be something else: what does not fit into the file is left out.
Source: glibc, sysdeps/generic/dl-cache.h and elf/elf.h.
"""

import os
import re
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

_OLD = b"ld.so-1.7.0"
_NEW = b"glibc-ld.so.cache1.1"
_OLD_HEADER, _NEW_HEADER = 16, 48
_OLD_ENTRY, _NEW_ENTRY = struct.Struct("<iII"), struct.Struct("<iIIIQ")
_LONGEST_NAME = 4096

_MACHINES = {62: "x86_64", 183: "aarch64"}
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<QQ")
_LOAD, _DYNAMIC = 1, 2
_STRINGS, _SONAME = 5, 14
_MOST_SEGMENTS = 256
_LARGEST_TABLE = 2**16
_FILE_NAME = re.compile(r"[\w.+-]{1,200}")


class Elf(Struct, frozen=True):
    """What is read of a 64-bit library. `machine` is as uname writes it, empty for others than x86_64 and aarch64."""

    soname: str
    machine: str


def cached_libraries(content: bytes) -> list[tuple[str, str]]:
    """Return (name, path) of each library in an ld.so.cache, in its order; nothing if the content is no cache.

    A cache has the old format, the new one, or the old one with the new one behind it. The new one counts if there is one.
    """
    new = content.find(_NEW)
    if new >= 0:
        return list(_entries(content[new:], _NEW_HEADER, 20, _NEW_ENTRY, 0))
    if content.startswith(_OLD) and len(content) >= _OLD_HEADER:
        (count,) = struct.unpack_from("<I", content, 12)
        strings = _OLD_HEADER + count * _OLD_ENTRY.size
        return list(_entries(content, _OLD_HEADER, 12, _OLD_ENTRY, strings))
    return []


def _entries(
    content: bytes, start: int, count_at: int, entry: struct.Struct, strings: int
) -> Iterator[tuple[str, str]]:
    if len(content) < start:
        return
    (count,) = struct.unpack_from("<I", content, count_at)
    fitting = (len(content) - start) // entry.size
    for index in range(min(count, fitting)):
        _, key, value, *_ = entry.unpack_from(content, start + index * entry.size)
        name, path = _text(content, strings + key), _text(content, strings + value)
        if name and path.startswith("/"):
            yield name, path


def _text(content: bytes, start: int) -> str:
    end = content.find(b"\0", start, start + _LONGEST_NAME)
    return content[start:end].decode("utf-8", "replace") if 0 <= start < end else ""


def read_elf(path: Path) -> Elf | None:
    """Return what a library says of itself; None if the file is no 64-bit ELF file, or cannot be read.

    A pipe in its place is not waited for: that would hold the hardware process until its deadline, again and again.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            return _elf(file) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except (OSError, ValueError, struct.error):
        return None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _elf(file: BinaryIO) -> Elf | None:
    ident, _, machine, _, _, table, *_, size, count, _, _, _ = _HEADER.unpack(
        file.read(_HEADER.size)
    )
    if not ident.startswith(b"\x7fELF\x02\x01") or size != _SEGMENT.size:
        return None
    file.seek(table)
    segments = [
        _SEGMENT.unpack(file.read(_SEGMENT.size)) for _ in range(min(count, _MOST_SEGMENTS))
    ]
    return Elf(_soname(file, segments), _MACHINES.get(machine, ""))


def _soname(file: BinaryIO, segments: list[tuple[int, ...]]) -> str:
    """Return the SONAME; empty if the library has none, or if it is no plain file name."""
    dynamic: dict[int, int] = {}
    for kind, _, offset, _, _, size, _, _ in segments:
        if kind == _DYNAMIC:
            file.seek(offset)
            content = file.read(min(size, _LARGEST_TABLE))
            dynamic = dict(_ENTRY.iter_unpack(content[: len(content) // 16 * 16]))
    if _SONAME not in dynamic or _STRINGS not in dynamic:
        return ""
    address = dynamic[_STRINGS] + dynamic[_SONAME]
    for kind, _, offset, start, _, size, _, _ in segments:
        if kind == _LOAD and start <= address < start + size:
            file.seek(offset + address - start)
            name = file.read(_LONGEST_NAME).partition(b"\0")[0].decode("utf-8", "replace")
            return name if _FILE_NAME.fullmatch(name) else ""
    return ""
