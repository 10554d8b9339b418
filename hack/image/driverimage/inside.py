# SPDX-License-Identifier: Apache-2.0
"""Which libraries are linked into the programs of a wheel, as far as the programs say so themselves?

A wheel's own record names its files, not what they were made of. But a program that was compiled of several projects has traces of
them: the namespace of Abseil's release in the names of functions, zlib's copyright, paths of sources in BoringSSL's errors. No trace
says nothing: a library that leaves none is not found, and one of which no version is known gets none.
"""

import re
import zipfile
from pathlib import Path

# Library -> the trace that it leaves in a program; the group of a trace, if it has one, is the version.
TRACES = {
    "abseil-cpp": re.compile(rb"4absl12lts_(\d{8})"),
    "boringssl": re.compile(rb"third_party/boringssl[\w-]*/crypto/"),
    "c-ares": re.compile(rb"c-ares library initialization not yet performed"),
    "re2": re.compile(rb"third_party/re2/"),
    "zlib": re.compile(rb" deflate (\d[\w.-]*) Copyright"),
}


def libraries(wheel: Path) -> tuple[tuple[str, str], ...]:
    """The libraries inside a wheel's programs with their versions; "" where the program does not say it."""
    with zipfile.ZipFile(wheel) as archive:
        programs = [name for name in archive.namelist() if ".so" in name.rpartition("/")[2]]
        found = {one for program in programs for one in traces(archive.read(program))}
    return tuple(sorted(found))


def traces(program: bytes) -> set[tuple[str, str]]:
    """The same for the bytes of one program."""
    found = ((name, trace.search(program)) for name, trace in TRACES.items())
    return {(name, b"".join(match.groups()).decode()) for name, match in found if match}
