# SPDX-License-Identifier: Apache-2.0
"""What do the locked wheels bring into the image, and where do they come from?

pip downloads exactly the files whose hashes are in the lock, for the image's Python and C library
and not for this machine's. A wheel is a zip of what belongs into a folder on the module path.
"""

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from driverimage import inside
from driverimage.sbom import Component, of_file
from driverimage.tree import File, ImageError, Tree

GLIBC_MINOR = 36  # Debian 12 has glibc 2.36
OLDEST_MINOR = 5
LEGACY_TAGS = {
    "x86_64": ("manylinux2014", "manylinux2010", "manylinux1"),
    "aarch64": ("manylinux2014",),
}
TIMEOUT_SECONDS = 600
# hatchling and what it needs, for where no environment has it
BACKEND = frozenset(
    ("hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers")
)
# Pattern -> why the daemon does not need it.
LEFT_OUT = {
    "*.pyi": "for type checkers",
    "*.h": "source of what is compiled",
    "*.cc": "source of what is compiled",
    "grpc/_cython/_credentials/*": "certificates for servers on the internet; the kubelet is a unix socket",
    "grpc/beta/*": "an older API of grpcio",
    "grpc/framework/interfaces/*": "an older API of grpcio",
    "dra_driver/testing/*": "stand-ins for a cluster and for hardware; a node has the real ones",
    "dra_driver/cli/demo*": "shows the driver among the stand-ins; people run it elsewhere",
    "yaml/_yaml*": "the driver parses with PyYAML's Python part",
    "_yaml/*": "the driver parses with PyYAML's Python part",
    "prometheus_client/aiohttp/*": "for other web servers",
    "prometheus_client/django/*": "for other web servers",
    "prometheus_client/twisted/*": "for other web servers",
    "structlog/twisted.py": "for another web server",
    "urllib3/contrib/emscripten/*": "for Python in a browser",
    "*.data/data/*": "manifests and man pages; people apply and read them elsewhere",
}


def platforms(machine: str) -> list[str]:
    """The platform tags that run on the image's C library, newest first."""
    modern = [
        f"manylinux_2_{minor}_{machine}" for minor in range(GLIBC_MINOR, OLDEST_MINOR - 1, -1)
    ]
    return modern + [f"{tag}_{machine}" for tag in LEGACY_TAGS[machine]]


def _pip_command() -> list[str]:
    """A pip: of this environment, or of the system's Python where environments have none."""
    for python in (sys.executable, "python3", "/usr/bin/python3"):
        command = [python, "-m", "pip"]
        found = shutil.which(python) is not None
        if (
            found
            and subprocess.run([*command, "--version"], capture_output=True, check=False).returncode
            == 0
        ):
            return command
    raise ImageError("no pip is here; on Debian: apt-get install python3-pip")


def foreign(python: str, machine: str) -> list[str]:
    """Arguments of pip that choose wheels for the image's Python and C library."""
    return of_platforms(python, platforms(machine))


def of_platforms(python: str, names: Sequence[str]) -> list[str]:
    """The same for a Python and the tags of a platform."""
    return [
        *(f"--platform={name}" for name in names),
        f"--python-version={python}",
        "--implementation=cp",
        f"--abi=cp{python.replace('.', '')}",
        "--abi=abi3",
        "--abi=none",
    ]


def _pip(*arguments: str) -> None:
    ended = subprocess.run(
        [*_pip_command(), *arguments, "--quiet", "--disable-pip-version-check", "--no-deps",
         "--require-hashes", "--only-binary=:all:"],
        capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    if ended.returncode != 0:
        raise ImageError(f"`pip {' '.join(arguments[:1])}` failed:\n{ended.stderr[-2000:]}")


def download(lock: Path, folder: Path, target: Sequence[str] = ()) -> None:
    """Fetch every wheel of the lock into a folder, for this Python or for `foreign(…)`."""
    _pip("download", *target, f"--dest={folder}", f"--requirement={lock}")


def why_left_out(path: str) -> str | None:
    """The reason why a path of a wheel is not in the image; None if it is."""
    for pattern, why in LEFT_OUT.items():
        if fnmatch.fnmatchcase(path, pattern):
            return why
    return None


def unpacked(wheel: Path) -> Tree:
    """The files of a wheel that are taken, below the folder of modules."""
    found: Tree = {}
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = member.filename
            if member.is_dir() or why_left_out(path) is not None:
                continue
            if ".data/" in path:
                raise ImageError(f"{wheel.name} has {path}: say in wheels.py where it goes")
            found[path] = File(archive.read(member), executable=".so" in path.rpartition("/")[2])
    return found


def project(wheel: Path) -> str:
    """The name of the project that a wheel is of."""
    return wheel.name.partition("-")[0].replace("_", "-").lower()


def components(folder: Path) -> list[Component]:
    """The wheels of a folder as a bill of materials has them."""
    return [
        Component(
            "pypi",
            project(wheel),
            wheel.name.split("-")[1],
            "",
            of_file(wheel),
            inside.libraries(wheel),
        )
        for wheel in sorted(folder.glob("*.whl"))
    ]


def parts(folder: Path) -> Iterator[tuple[str, Tree]]:
    """The wheels of a folder by project."""
    for wheel in sorted(folder.glob("*.whl")):
        yield project(wheel), unpacked(wheel)


def part_of_lock(lock: str, projects: Collection[str]) -> str:
    """The entries of a lock that are of these projects, hashes and all."""
    entries = re.findall(r"^(?P<project>[a-z0-9-]+)(?P<rest>==(?:.*\\\n)*.*\n)", lock, re.MULTILINE)
    found = {project: project + rest for project, rest in entries if project in projects}
    if missing := sorted(set(projects) - found.keys()):
        raise ImageError(f"the lock names no {', '.join(missing)}; run `make lock`")
    return "".join(found.values())


def install(lock: Path, folder: Path) -> None:
    """Put every wheel of a lock into a folder of modules, for this Python."""
    _pip("install", f"--target={folder}", f"--requirement={lock}")


def install_backend(source: Path, folder: Path) -> None:
    """Put the locked build backend into a folder of modules, where no environment has it."""
    lock = source / "requirements" / "dev.txt"
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as part:
        part.write(part_of_lock(lock.read_text(), BACKEND))
        part.flush()
        install(Path(part.name), folder)


def build_driver(source: Path, folder: Path, backend: Path | None = None) -> Path:
    """The driver's own wheel, built from a source tree.

    The build backend is this environment's, or in a folder of its own.
    """
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target=wheel",
        "--directory",
        str(folder),
    ]
    environment = {**os.environ, **({"PYTHONPATH": str(backend)} if backend else {})}
    ended = subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, check=False,
        timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    wheels = sorted(folder.glob("*.whl"))
    if ended.returncode != 0 or not wheels:
        raise ImageError(
            f"the driver's wheel cannot be built from {source} (use the python of .venv, after"
            f" `make setup`):\n{ended.stderr[-2000:]}"
        )
    return wheels[0]
