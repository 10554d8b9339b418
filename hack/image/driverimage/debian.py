# SPDX-License-Identifier: Apache-2.0
"""Which files of which Debian packages are the ground that the driver stands on?

A package is named below with what is taken of it. Libraries are not named: those are taken that
the programs need, found by reading the programs. What was taken of a package is told to scanners in
the way that images without dpkg do it, one file with the package's record in /var/lib/dpkg/status.d,
and its licence comes along.

The packages come through the machine's apt, which checks signatures. So the versions are today's
security updates; the cache and the image's identity follow from them.
"""

import fnmatch
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from driverimage import elf
from driverimage.furniture import furniture, in_usr
from driverimage.python import Layout, why_left_out
from driverimage.sbom import Component, of_file
from driverimage.tree import Entry, File, ImageError, Link, Tree, merged, untar

PYTHON = "3.11"  # Debian 12's
INTERPRETER = f"usr/bin/python{PYTHON}"
STANDARD_LIBRARY = f"usr/lib/python{PYTHON}"
LAYOUT = Layout(INTERPRETER, f"usr/local/lib/python{PYTHON}/dist-packages", PYTHON)
TIMEOUT_SECONDS = 600
NEWEST: Mapping[str, str] = {}  # of no package a version is asked for
LINE = re.compile(
    r"^'[^']*' (?P<file>(?P<name>[a-z0-9.+-]+)_\S+\.deb) \d+ (?P<hash>\S+)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Package:
    """Why a package is needed, and which of its files are taken beside libraries."""

    why: str
    files: tuple[str, ...] = ()


PACKAGES: Mapping[str, Package] = {
    f"python{PYTHON}-minimal": Package("the interpreter", (INTERPRETER,)),
    f"libpython{PYTHON}-minimal": Package(
        "the standard library, first half", (f"{STANDARD_LIBRARY}/*",)
    ),
    f"libpython{PYTHON}-stdlib": Package(
        "the standard library, second half: HTTP, TLS, SQLite, JSON", (f"{STANDARD_LIBRARY}/*",)
    ),
    "libc6": Package("the C library and the loader"),
    "libstdc++6": Package("gRPC is written in C++"),
    "libgcc-s1": Package("libstdc++6 needs it"),
    "gcc-12-base": Package("the licence of libstdc++6 and libgcc-s1"),
    "libexpat1": Package("the interpreter is linked with it"),
    "zlib1g": Package("the interpreter is linked with it; gzip of API answers"),
    "libssl3": Package("TLS to the API server"),
    "libsqlite3-0": Package("the state file"),
    "libffi8": Package("ctypes: vendors' libraries are called with it"),
    "base-files": Package(
        "tells scanners which Debian this is",
        ("usr/lib/os-release", "etc/os-release", "etc/debian_version"),
    ),
}


def _run(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )


def _apt_get(*arguments: str, cwd: Path) -> str:
    """Ask apt; if it does not know or has only old lists, renew them once."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ImageError(
            "apt-get and dpkg-deb are not here; build on Debian 12, or use the Dockerfile"
        )
    ended = _run("apt-get", *arguments, cwd=cwd)
    if ended.returncode != 0 and os.geteuid() == 0:
        _run("apt-get", "update")
        ended = _run("apt-get", *arguments, cwd=cwd)
    if ended.returncode != 0:
        raise ImageError(
            f"`apt-get {' '.join(arguments)}` failed; the image needs the packages of Debian 12,"
            f" and package lists (apt-get update):\n{ended.stderr.decode()[-1000:]}"
        )
    return ended.stdout.decode()


def _asked(versions: Mapping[str, str]) -> list[str]:
    return [f"{name}={versions[name]}" if name in versions else name for name in sorted(PACKAGES)]


def locate(versions: Mapping[str, str] = NEWEST) -> list[str]:
    """One line for each package: name, version, architecture and hash, as apt has them now, or of these versions."""
    with tempfile.TemporaryDirectory() as empty:  # where a package is, apt prints nothing
        answer = _apt_get("--print-uris", "download", *_asked(versions), cwd=Path(empty))
    found = {line["name"]: f"{line['file']} {line['hash']}" for line in LINE.finditer(answer)}
    if missing := sorted(PACKAGES.keys() - found.keys()):
        raise ImageError(f"apt tells nothing about {', '.join(missing)}; run apt-get update")
    return sorted(found.values())


def _unpacked(package: Path) -> Tree:
    ended = _run("dpkg-deb", "--fsys-tarfile", str(package))
    if ended.returncode != 0:
        raise ImageError(f"{package.name} cannot be read: {ended.stderr.decode()[-500:]}")
    return {in_usr(path.removeprefix("./")): entry for path, entry in untar(ended.stdout).items()}


def _record(package: Path) -> bytes:
    return _run("dpkg-deb", "--field", str(package)).stdout


def _taken(name: str, files: Tree) -> Tree:
    """What a package gives by name."""
    wanted = {
        path: entry
        for path, entry in files.items()
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in PACKAGES[name].files)
    }
    inside = f"{STANDARD_LIBRARY}/"
    return {
        path: entry
        for path, entry in wanted.items()
        if not path.startswith(inside) or why_left_out(path.removeprefix(inside)) is None
    }


def _resolved(path: str, files: Tree) -> File | None:
    """The file at a path of one package, through a link within its folder."""
    entry = files.get(path)
    if isinstance(entry, Link):
        return _resolved(f"{path.rpartition('/')[0]}/{entry.target}", files)
    return entry if isinstance(entry, File) else None


@dataclass(frozen=True, slots=True)
class Library:
    """A shared library and whose it is."""

    package: str
    path: str
    file: File


def _libraries(packages: Mapping[str, Tree]) -> dict[str, Library]:
    """All libraries of all packages by the names that programs ask for."""
    found: dict[str, Library] = {}
    for package, files in packages.items():
        for path in files:
            folder, _, name = path.rpartition("/")
            is_library = ".so" in name and re.fullmatch(r"usr/lib/[^/]+-linux-gnu", folder)
            if is_library and (file := _resolved(path, files)):
                found[name] = Library(package, path, file)
    return found


def _paperwork(name: str, files: Tree, record: bytes) -> Tree:
    """The package's licence and its record."""
    licence = f"usr/share/doc/{name}/copyright"
    papers: Tree = {f"var/lib/dpkg/status.d/{name}": File(record)}
    if file := _resolved(licence, files):
        papers[licence] = file
    elif isinstance(folder := files.get(f"usr/share/doc/{name}"), Link):
        papers[f"usr/share/doc/{name}"] = folder
    return papers


def _loader(libraries: Mapping[str, Library], program: Entry) -> tuple[str, Library]:
    """The path at which the kernel looks for the loader, and the loader."""
    path = elf.interpreter(program.content) if isinstance(program, File) else None
    library = libraries.get(path.rpartition("/")[2]) if path else None
    if path is None or library is None:
        raise ImageError(f"/{INTERPRETER} names no loader that libc6 has")
    return path, library


def parts(folder: Path, more_programs: Tree) -> dict[str, Tree]:
    """For each package what the image has of it, given the .deb files in a folder.

    `more_programs` are those of other layers; their libraries come from here as well.
    """
    archives = {path.name.partition("_")[0]: path for path in folder.glob("*.deb")}
    packages = {name: _unpacked(archives[name]) for name in sorted(PACKAGES)}
    result = {name: _taken(name, files) for name, files in packages.items()}
    programs = merged([*result.values(), more_programs])
    libraries = _libraries(packages)
    loader_path, loader = _loader(libraries, programs[INTERPRETER])
    contents = [entry.content for entry in programs.values() if isinstance(entry, File)]

    def find(name: str) -> bytes | None:
        return libraries[name].file.content if name in libraries else None

    for name in elf.closure(contents, find, loader=loader_path):
        library = libraries[name]
        result[library.package][library.path] = library.file
    result[loader.package][in_usr(loader_path)] = File(loader.file.content, executable=True)
    idle = sorted(name for name, tree in result.items() if not tree and name != "gcc-12-base")
    if idle:
        raise ImageError(f"nothing needs {', '.join(idle)}; take it out of PACKAGES")
    for name, files in packages.items():
        result[name] |= _paperwork(name, files, _record(archives[name]))
    return {**result, "furniture": furniture(loader_path, LAYOUT)}


def download(folder: Path, versions: Mapping[str, str] = NEWEST) -> None:
    """Fetch the packages into a folder."""
    _apt_get("download", *_asked(versions), cwd=folder)


def components(folder: Path) -> list[Component]:
    """The packages of a folder as a bill of materials has them."""
    return [_component(path) for path in sorted(folder.glob("*.deb"))]


def _component(path: Path) -> Component:
    # Fields that are named are answered in the record's order, each with its name.
    record = _run("dpkg-deb", "--field", str(path), "Package", "Version", "Architecture")
    lines = record.stdout.decode().splitlines()
    fields = dict(line.split(": ", 1) for line in lines)
    if record.returncode != 0 or len(fields) != len(("Package", "Version", "Architecture")):
        raise ImageError(f"{path.name} cannot be read: {record.stderr.decode()[-500:]}")
    return Component(
        "deb/debian", fields["Package"], fields["Version"], fields["Architecture"], of_file(path)
    )
