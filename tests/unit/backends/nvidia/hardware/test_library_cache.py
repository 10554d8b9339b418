# SPDX-License-Identifier: Apache-2.0
"""The linker's cache and the heads of libraries, whole and broken."""

import os
import random
import struct
from pathlib import Path

import pytest

from dra_driver.backends.nvidia.hardware.library_cache import Elf, cached_libraries, read_elf
from dra_driver.testing.nvml.elf import cache, stub, stub_32

PATHS = {
    "libcuda.so.1": "/lib/x86_64-linux-gnu/libcuda.so.1",
    "libnvidia-ml.so.1": "/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
}
NEWEST_FIRST = sorted(PATHS.items(), reverse=True)


def old_cache(paths: dict[str, str]) -> bytes:
    """The format of libc5, which some distributions still write in front of the new one."""
    names, entries = bytearray(), bytearray()
    for name, path in sorted(paths.items(), reverse=True):
        key, value = len(names), len(names) + len(name) + 1
        names += f"{name}\0{path}\0".encode()
        entries += struct.pack("<iII", 3, key, value)
    head = b"ld.so-1.7.0\0" + struct.pack("<I", len(paths))
    return head + bytes(entries) + bytes(names)


def test_both_formats_are_read() -> None:
    assert cached_libraries(cache(PATHS)) == NEWEST_FIRST
    assert cached_libraries(old_cache(PATHS)) == NEWEST_FIRST


def test_the_new_format_counts_if_it_stands_behind_the_old_one() -> None:
    old = old_cache({"libc.so.6": "/old/libc.so.6"})
    assert cached_libraries(old + b"\0" * (-len(old) % 8) + cache(PATHS)) == NEWEST_FIRST


@pytest.mark.parametrize("content", [cache(PATHS), old_cache(PATHS)], ids=["new", "old"])
def test_a_cache_cut_short_has_what_is_left(content: bytes) -> None:
    for length in range(len(content)):
        assert set(cached_libraries(content[:length])) <= set(NEWEST_FIRST)
    assert cached_libraries(b"") == []
    assert cached_libraries(b"no cache at all") == []
    assert len(cached_libraries(content[:-1])) == 1


def test_a_damaged_cache_never_fails() -> None:
    chance = random.Random(7)
    for content in (cache(PATHS), old_cache(PATHS)):
        for _ in range(500):
            damaged = bytearray(content)
            for _ in range(3):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            cached_libraries(bytes(damaged))


def test_a_relative_path_is_left_out() -> None:
    assert cached_libraries(cache({"libcuda.so.1": "libcuda.so.1"})) == []


@pytest.mark.parametrize(
    ("content", "elf"),
    [
        (stub("libcuda.so.1"), Elf("libcuda.so.1", "x86_64")),
        (stub("libcuda.so.1", "aarch64"), Elf("libcuda.so.1", "aarch64")),
        (stub(""), Elf("", "x86_64")),
        (stub("../../etc/passwd"), Elf("", "x86_64")),
        (stub("a\nb"), Elf("", "x86_64")),
        (stub_32("libcuda.so.1"), None),
        (b"#!/bin/sh\n", None),
        (b"", None),
    ],
)
def test_a_library_says_its_name_and_machine(
    tmp_path: Path, content: bytes, elf: Elf | None
) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    assert read_elf(path) == elf


def test_a_library_that_cannot_be_opened_is_none(tmp_path: Path) -> None:
    assert read_elf(tmp_path / "missing") is None
    assert read_elf(tmp_path) is None
    os.mkfifo(tmp_path / "pipe")
    assert read_elf(tmp_path / "pipe") is None  # and it is not waited for


def test_a_damaged_library_never_fails(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    whole = stub("libcuda.so.1")
    for length in range(0, len(whole), 3):
        path.write_bytes(whole[:length])
        found = read_elf(path)
        assert found is None or found.soname in ("", "libcuda.so.1"[: len(found.soname)])
    chance = random.Random(3)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(4):
            damaged[chance.randrange(16, len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        read_elf(path)
