# SPDX-License-Identifier: Apache-2.0
"""How do a system, wheels and a source tree become the layers of the driver?

The same for every origin of the system: packages, or the base image that a Dockerfile names.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from driverimage import wheels
from driverimage.bytecode import Python, compiled
from driverimage.python import ENTRY_POINT, Layout
from driverimage.sbom import of_file
from driverimage.tree import ImageError, Tree

Parts = Mapping[str, Tree]


def lock_of(source: Path) -> Path:
    """The lock of what the daemon needs."""
    lock = source / "requirements" / "runtime.txt"
    if not lock.is_file():
        raise ImageError(f"{lock} does not exist; is {source} the driver's source?")
    return lock


def below(folder: str, files: Tree) -> Tree:
    """The tree with its paths below a folder."""
    return {f"{folder}/{path}": entry for path, entry in files.items()}


def libraries(wheel_folder: Path, layout: Layout) -> Parts:
    """What the wheels of a folder bring, by project."""
    return {name: below(layout.modules, files) for name, files in wheels.parts(wheel_folder)}


def without_sources(python: Python, parts: Parts) -> Parts:
    """Parts that nobody reads: bytecode instead of sources."""
    return {name: compiled(python, files, keep_sources=False) for name, files in parts.items()}


def driver(source: Path, python: Python, backend: Path | None = None) -> tuple[Tree, str]:
    """The driver with its sources, so that tracebacks show lines, and its entry point; and the SHA-256 of its wheel."""
    with tempfile.TemporaryDirectory() as temporary:
        wheel = wheels.build_driver(source, Path(temporary), backend)
        files, digest = wheels.unpacked(wheel), of_file(wheel)
    modules = compiled(python, below(python.layout.modules, files), keep_sources=True)
    return {**modules, ENTRY_POINT: python.layout.launcher()}, digest
