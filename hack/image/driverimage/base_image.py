# SPDX-License-Identifier: Apache-2.0
"""Which files of the base image that a Dockerfile names are the ground that the driver stands on?

This runs inside the base image, with its Python. Taken are the interpreter, its standard library,
and the libraries that these and the wheels need; where the image has Debian packages, their records
and licences come along for scanners.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from driverimage import elf
from driverimage.furniture import furniture, in_usr
from driverimage.python import Layout, why_left_out
from driverimage.tree import File, ImageError, Tree, merged, read

LIBRARY_FOLDERS = ("usr/local/lib", "lib64", "usr/lib64", "lib", "usr/lib")
PYTHONS_OWN = str(sysconfig.get_config_var("LIBDIR")).lstrip("/")  # there may be two libpythons
OS_RELEASE = "etc/os-release"


def layout(version: str = sysconfig.get_python_version()) -> Layout:
    """Where Python is in this image."""
    interpreter = Path(sys.executable).resolve()
    return Layout(str(interpreter).lstrip("/"), sysconfig.get_path("purelib").lstrip("/"), version)


def standard_library(folder: Path) -> Tree:
    """What is taken of a standard library."""
    return {
        f"{str(folder).lstrip('/')}/{path}": entry
        for path, entry in read(folder).items()
        if why_left_out(path) is None
    }


def _library(name: str, root: Path) -> Path | None:
    """Where the loader finds a library in this image."""
    for folder in (PYTHONS_OWN, *LIBRARY_FOLDERS):
        for place in (root / folder, *sorted((root / folder).glob("*-linux-gnu"))):
            if (place / name).is_file():
                return place / name
    return None


def _program(path: Path) -> tuple[File, str]:
    """The interpreter, and the path at which the kernel looks for its loader."""
    file = File(path.read_bytes(), executable=True)
    loader = elf.interpreter(file.content)
    if loader is None or "musl" in loader:
        raise ImageError(
            f"{path} runs on {loader or 'no loader'}; take a base image with glibc, such as Debian's"
        )
    return file, loader


def libraries(programs: Tree, loader: str, root: Path) -> tuple[Tree, list[Path]]:
    """The libraries that programs need, in the folder of the C library, and where they were."""
    used: list[Path] = []

    def find(name: str) -> bytes | None:
        path = _library(name, root)
        if path is None:
            return None
        used.append(path)
        return path.read_bytes()

    contents = [entry.content for entry in programs.values() if isinstance(entry, File)]
    found = elf.closure(contents, find, loader=loader)
    folder = next(path.parent for path in used if path.name == "libc.so.6")
    target = in_usr(folder.relative_to(root).as_posix())
    tree: Tree = {f"{target}/{name}": File(content) for name, content in found.items()}
    tree[in_usr(loader)] = File((root / loader.lstrip("/")).read_bytes(), executable=True)
    return tree, used


def _output(*command: str) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return ended.stdout


def _dpkg_names(paths: list[Path]) -> list[str]:
    """Under which names dpkg may know the files: as they were found, or below /lib."""
    names = {str(form) for path in paths for form in (path, path.resolve())}
    return sorted(names | {name.removeprefix("/usr") for name in names})


def paperwork(used: list[Path]) -> Tree:
    """Records and licences of the Debian packages that files are of."""
    papers: Tree = {}
    if shutil.which("dpkg-query") is not None:
        owners = _output("dpkg-query", "--search", *_dpkg_names(used))
        for package in sorted(
            set(re.findall(r"^([a-z0-9.+-]+)(?::\w+)?: /", owners, re.MULTILINE))
        ):
            record = _output("dpkg-query", "--status", package)
            papers[f"var/lib/dpkg/status.d/{package}"] = File(record.encode())
            licence = Path(f"/usr/share/doc/{package}/copyright")
            if licence.is_file():
                papers[str(licence).lstrip("/")] = File(licence.read_bytes())
    return papers


def release(root: Path) -> Tree:
    """Which distribution this is."""
    file = root / OS_RELEASE
    return {OS_RELEASE: File(file.read_bytes())} if file.is_file() else {}


def parts(here: Layout, more_programs: Tree, root: Path = Path("/")) -> dict[str, Tree]:
    """Python, the libraries and the furniture; `more_programs` are those of the wheels."""
    program, loader = _program(root / here.interpreter)
    python = {
        here.interpreter: program,
        **standard_library(Path(sysconfig.get_path("stdlib"))),
        **standard_library(Path(sysconfig.get_path("platstdlib"))),
    }
    found, used = libraries(merged([python, more_programs]), loader, root)
    used += [root / here.interpreter, root / loader.lstrip("/"), root / OS_RELEASE]
    return {
        "python": python,
        "libraries": {**found, **paperwork(used), **release(root)},
        "furniture": furniture(loader, here),
    }
