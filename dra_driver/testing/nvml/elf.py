# SPDX-License-Identifier: Apache-2.0
"""Shared libraries without code, and the cache of the dynamic linker, written without a compiler.

A stub has what a scanner of a driver installation reads: the ELF header, and a dynamic section with the SONAME. No linker can load it.
"""

import struct
from collections.abc import Mapping

_X86_64, _AARCH64, _I386 = 62, 183, 3
_LOAD, _DYNAMIC = 1, 2
_SONAME, _STRTAB, _STRSZ = 14, 5, 10
_HEADER, _PROGRAM, _ENTRY = 64, 56, 16
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_LIBRARY = 0x0003  # an ELF library of libc 6
_CACHE_X86_64, _CACHE_AARCH64 = 0x0300, 0x0A00
_CACHE_HEADER, _CACHE_ENTRY = 48, 24


def stub(soname: str, machine: str = "x86_64") -> bytes:
    """Return a shared library of 64 bits with this SONAME; without one if it is empty."""
    names = b"\0" + soname.encode() + b"\0"
    entries = [(_SONAME, 1)] if soname else []
    dynamic_at = _HEADER + 2 * _PROGRAM
    names_at = dynamic_at + (len(entries) + 3) * _ENTRY
    size = names_at + len(names)
    entries += [(_STRTAB, names_at), (_STRSZ, len(names)), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in entries)
    number = _AARCH64 if machine == "aarch64" else _X86_64
    return (
        b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
        + struct.pack(
            "<HHIQQQIHHHHHH", 3, number, 1, 0, _HEADER, 0, 0, _HEADER, _PROGRAM, 2, 0, 0, 0
        )
        + _segment(_LOAD, 0, size)
        + _segment(_DYNAMIC, dynamic_at, len(dynamic))
        + dynamic
        + names
    )


def stub_32(soname: str) -> bytes:
    """Return the head of a library of 32 bits: what a scanner has to pass over. The SONAME stands behind it, unread."""
    head = b"\x7fELF\x01\x01\x01".ljust(16, b"\0") + struct.pack("<HHI", 3, _I386, 1)
    return head.ljust(52, b"\0") + soname.encode() + b"\0"


def cache(libraries: Mapping[str, str], machine: str = "x86_64") -> bytes:
    """Return the contents of /etc/ld.so.cache: `libraries` are paths by SONAME."""
    flags = _CACHE_LIBRARY | (_CACHE_AARCH64 if machine == "aarch64" else _CACHE_X86_64)
    start = _CACHE_HEADER + _CACHE_ENTRY * len(libraries)
    names = bytearray()
    entries = bytearray()
    for soname, path in sorted(libraries.items(), reverse=True):  # as ldconfig sorts them
        key = start + len(names)
        names += soname.encode() + b"\0"
        value = start + len(names)
        names += path.encode() + b"\0"
        entries += struct.pack("<iIIIQ", flags, key, value, 0, 0)
    # flags 2: little endian
    header = _CACHE_MAGIC + struct.pack("<IIBxxxIIII", len(libraries), len(names), 2, 0, 0, 0, 0)
    return header + bytes(entries) + bytes(names)


def _segment(kind: int, offset: int, size: int) -> bytes:
    return struct.pack("<IIQQQQQQ", kind, 4, offset, offset, offset, size, size, 8)
