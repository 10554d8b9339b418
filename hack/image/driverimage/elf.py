# SPDX-License-Identifier: Apache-2.0
"""Which shared libraries does a program need?

An ELF file says so itself. Its program headers point at the *dynamic section*, a table of (tag,
value) pairs; each DT_NEEDED value is the offset of a library's name in the string table, whose
address is the DT_STRTAB value. Addresses become offsets in the file through the PT_LOAD headers.
PT_INTERP names the loader that the kernel starts instead of the program. Only 64-bit little-endian
files are read: amd64 and arm64.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from driverimage.tree import ImageError

MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NULL, DT_NEEDED, DT_STRTAB = 0, 1, 5


@dataclass(frozen=True, slots=True)
class Segment:
    """One program header."""

    kind: int
    offset: int
    address: int
    size: int


def is_elf(content: bytes) -> bool:
    """Whether this is a program or a library that this file can read."""
    return content.startswith(MAGIC)


def _segments(content: bytes) -> list[Segment]:
    (start,) = struct.unpack_from("<Q", content, 32)
    entry_size, count = struct.unpack_from("<HH", content, 54)
    found = []
    for at in range(start, start + entry_size * count, entry_size):
        kind, _flags, offset, address, _physical, size = struct.unpack_from("<IIQQQQ", content, at)
        found.append(Segment(kind, offset, address, size))
    return found


def _text(content: bytes, offset: int) -> str:
    return content[offset : content.index(b"\0", offset)].decode()


def _dynamic(content: bytes, segments: list[Segment]) -> Iterator[tuple[int, int]]:
    for segment in segments:
        if segment.kind == PT_DYNAMIC:
            for at in range(segment.offset, segment.offset + segment.size, 16):
                tag, value = struct.unpack_from("<qQ", content, at)
                if tag == DT_NULL:
                    return
                yield tag, value


def _file_offset(address: int, segments: list[Segment]) -> int:
    for segment in segments:
        inside = segment.address <= address < segment.address + segment.size
        if segment.kind == PT_LOAD and inside:
            return address - segment.address + segment.offset
    raise ImageError(f"an ELF file has no segment with the address {address:#x}; is it damaged?")


def needed(content: bytes) -> list[str]:
    """The names of the libraries that the file asks for."""
    segments = _segments(content)
    entries = list(_dynamic(content, segments))
    tables = [value for tag, value in entries if tag == DT_STRTAB]
    names = [value for tag, value in entries if tag == DT_NEEDED]
    if not tables:
        return []
    strings = _file_offset(tables[0], segments)
    return [_text(content, strings + name) for name in names]


def interpreter(content: bytes) -> str | None:
    """The path of the loader, if the file is a program with one."""
    for segment in _segments(content):
        if segment.kind == PT_INTERP:
            return _text(content, segment.offset)
    return None


def closure(
    programs: Iterable[bytes], find: Callable[[str], bytes | None], *, loader: str
) -> dict[str, bytes]:
    """Every library that the programs need, and these need in turn, by name.

    The loader has loaded itself when somebody asks for it by name, so it is not searched.
    """
    found: dict[str, bytes] = {}
    waiting = [content for content in programs if is_elf(content)]
    loaded = {PurePosixPath(loader).name}
    while waiting:
        for name in needed(waiting.pop()):
            if name in found or name in loaded:
                continue
            library = find(name)
            if library is None:
                raise ImageError(
                    f"neither a package of the image nor its base has the library {name}; add one that has"
                )
            found[name] = library
            waiting.append(library)
    return found
