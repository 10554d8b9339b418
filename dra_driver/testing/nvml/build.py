# SPDX-License-Identifier: Apache-2.0
"""Build the library and the programs with the compiler of the system (`cc`).

    library = build.library(machine.node(boards.H100, 8), control=folder / "control")
    LD_LIBRARY_PATH=<folder of library> python -c 'import pynvml; …'

The library needs no file: tables and paths are compiled in. The environment can name other paths: MOCK_NVML_CONTROL is the file with
faults (`control.py`), MOCK_NVML_STATE a folder for what processes share, MOCK_NVML_DEV the folder with nvidia0 … (empty: a process sees
all GPUs). Equal sources and facts are built once; the results are kept in ~/.cache/dra-driver/nvml.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from dra_driver import PROJECT
from dra_driver.backends.nvidia.facts import Node
from dra_driver.testing.nvml.tables import tables

_FOLDER = Path(__file__).resolve().parent
_FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers")  # fmt: skip
SONAME = "libnvidia-ml.so.1"


def library(
    node: Node,
    *,
    dev: Path | str = "",
    control: Path | str = "",
    state: Path | str = "",
    without: Iterable[str] = (),
) -> Path:
    """Return the path of a libnvidia-ml.so.1 that answers as this node does. The name of its folder is a digest of its content.

    `without` are functions that the library does not have, as an old one: ("nvmlDeviceGetAddressingMode",).
    """
    source = tables(node, dev=str(dev), control=str(control), state=str(state))
    hidden = "".join(f" {name};" for name in sorted(without))
    exports = f"{{ global: nvml*; mock*Slice; local:{hidden} *; }};\n"
    functions = _functions()

    def compile_into(folder: Path) -> None:
        (folder / "tables.c").write_text(source)
        (folder / "exports").write_text(exports)
        _compile(
            "-shared",
            "-pthread",
            f"-I{_FOLDER / 'src'}",
            f"-Wl,-soname,{SONAME}",
            f"-Wl,--version-script={folder / 'exports'}",
            "-o",
            str(folder / SONAME),
            str(folder / "tables.c"),
            str(functions),
        )

    return _cached("library", [source, exports, str(functions)], SONAME, compile_into)


def _functions() -> Path:
    """All of the library but its tables, as one object file."""
    sources = sorted((_FOLDER / "src").glob("*.[ch]"))

    def compile_into(folder: Path) -> None:
        files = [str(path) for path in sources if path.suffix == ".c"]
        _compile("-r", "-nostdlib", "-o", str(folder / "functions.o"), *files)

    return _cached("functions", [path.read_text() for path in sources], "functions.o", compile_into)


def nvidia_smi() -> Path:
    """Return a nvidia-smi that finds the library by its SONAME."""
    return _program("nvidia_smi.c", "nvidia-smi")


def list_gpus() -> Path:
    """Return a program that prints the UUIDs which a program in its place sees."""
    return _program("list_gpus.c", "list-gpus")


def _program(source: str, name: str) -> Path:
    path = _FOLDER / "programs" / source
    header = _FOLDER / "programs" / "nvml.h"

    def compile_into(folder: Path) -> None:
        _compile(f"-I{header.parent}", "-o", str(folder / name), str(path), "-ldl")

    return _cached("program", [path.read_text(), header.read_text()], name, compile_into)


def _cached(kind: str, parts: list[str], name: str, compile_into: Callable[[Path], None]) -> Path:
    """Build into a folder beside the final one and rename it: several processes may build the same at once."""
    digest = hashlib.sha256("\0".join([kind, *_FLAGS, *parts]).encode()).hexdigest()[:24]
    place = _cache() / digest
    if not (place / name).is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            compile_into(Path(folder))
            place.mkdir(exist_ok=True)
            (Path(folder) / name).rename(place / name)
    return place / name


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / PROJECT / "nvml"


def _compile(*arguments: str) -> None:
    command = ["cc", *_FLAGS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own sources
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
