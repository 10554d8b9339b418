# SPDX-License-Identifier: Apache-2.0
"""The driver as it ships: a wheel of this tree and the locked libraries, compiled, and nothing else beside them.

The environment for development would lie: libraries that it has for other reasons are imported by those that look for
them (structlog takes rich, for one), and bytecode may be missing. The libraries are kept from run to run in the test
bed's cache; the wheel is made each time.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
LOCKED = Path("requirements") / "runtime.txt"
# A fixed threshold gives large blocks back to the system at once. Python's table of interned strings, a megabyte, is made
# anew now and then, since pathlib puts every file's name into it; left alone, each thread keeps the space of one.
# One heap serves all threads: each further one would keep what its thread once needed, and Python lets only one thread work.
OF_THE_IMAGE = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "1"}


@cache
def python(tree: Path = REPOSITORY) -> str:
    """The interpreter of an environment with the driver of this tree, or of another one, for a comparison."""
    folder = _folder(tree)
    interpreter = folder / "bin" / "python"
    if is_this():
        return str(interpreter)  # run.py made all of them before it started this process
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(folder))
        _pip(interpreter, "--require-hashes", "--only-binary=:all:", "-r", str(tree / LOCKED))
        (folder / "complete").touch()
    with tempfile.TemporaryDirectory() as made:
        _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", made, at=tree)
        wheel = next(Path(made).glob("*.whl"))
        _pip(interpreter, "--no-index", "--no-deps", "--force-reinstall", str(wheel))
    return str(interpreter)


def is_this() -> bool:
    """Whether this process runs in that environment, which was made complete before it."""
    return Path(sys.prefix) == _folder()


def _folder(tree: Path = REPOSITORY) -> Path:
    kind = (tree / LOCKED).read_bytes() + sys.version.encode()
    if tree != REPOSITORY:
        kind += bytes(tree)
    digest = hashlib.sha256(kind).hexdigest()[:12]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "dra-driver" / "bench" / digest


def environment() -> dict[str, str]:
    """What such a process is started with: the image's own, and nothing that says where modules are found, or settings."""
    others = ("PYTHON", "DRA_DRIVER_", "MALLOC_")
    return OF_THE_IMAGE | {
        name: text for name, text in os.environ.items() if not name.startswith(others)
    }


def _pip(interpreter: Path, *arguments: str) -> None:
    _run(str(interpreter), "-m", "pip", "install", *arguments)


def _run(*command: str, at: Path = REPOSITORY) -> None:
    ended = subprocess.run(
        command,
        cwd=at,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"`{' '.join(command)}` failed:\n{ended.stdout[-3000:]}")
