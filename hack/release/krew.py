# SPDX-License-Identifier: Apache-2.0
"""How does `kubectl dra` become one file for machines that have Python and nothing else?

The archive has the package, the libraries that the commands of `kubectl dra` import, and the two of them that are compiled (msgspec, RE2) once
for each platform and Python. The program chooses among them. ADR 18 says why. The libraries are the locked wheels, by hash.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from driverimage import cache, wheels
from driverimage.tree import File, ImageError, Tree

from hack.release import distributions, names
from hack.release.archive import Content, tar_gz
from hack.release.errors import ReleaseError

PROGRAM = "kubectl-dra"
MANIFEST = f"{names.KREW_PLUGIN}.yaml"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PURE = ("pyyaml", "structlog", "typing-extensions", "tzdata", "urllib3")
COMPILED = ("google-re2", "msgspec")
OLDEST_GLIBC = 28  # of what a compiled library may need: RHEL 8, Debian 10, Ubuntu 20.04
MACOS = range(11, 15)
PLATFORMS = {
    **{
        f"linux-{machine}": [
            f"manylinux_2_{minor}_{machine}" for minor in range(OLDEST_GLIBC, 16, -1)
        ]
        for machine in ("x86_64", "aarch64")
    },
    **{
        f"darwin-{machine}": [
            *(f"macosx_{major}_0_{machine}" for major in MACOS),
            *(f"macosx_10_{minor}_{machine}" for minor in range(9, 17)),
        ]
        for machine in ("arm64", "x86_64")
    },
}
"""What Python calls a platform, and the tags of wheels that run there."""
LAUNCHER = Path(__file__).with_name("kubectl_dra.py")


def write(root: Path, target: Path, version: str, *, date: int) -> Path:
    """Write archive and manifest into a folder; answers the archive. Raises ReleaseError."""
    file = target / f"{PROGRAM}-{version}.tar.gz"
    file.write_bytes(tar_gz(contents(root), date))
    (target / MANIFEST).write_text(manifest(file, version))
    return file


def contents(root: Path) -> dict[str, Content]:
    """The files of the archive by their paths. Raises ReleaseError."""
    found = {
        PROGRAM: Content(LAUNCHER.read_bytes(), executable=True),
        "LICENSE": Content((root / "LICENSE").read_bytes()),
    }
    try:
        for folder, tree in _libraries(root):
            found |= {
                f"{folder}/{path}": Content(entry.content)
                for path, entry in tree.items()
                if isinstance(entry, File)
            }
    except ImageError as error:
        raise ReleaseError(f"the archive of {PROGRAM} cannot be made: {error}") from error
    return dict(sorted(found.items()))


def _libraries(root: Path) -> Iterator[tuple[str, Tree]]:
    lock = (root / "requirements" / "runtime.txt").read_text()
    with tempfile.TemporaryDirectory() as temporary:
        driver = distributions.build(Path(temporary), root)["wheel"]
        yield "lib", wheels.unpacked(driver)
    oldest, where = PYTHONS[0], next(iter(PLATFORMS.values()))
    for tree in _of(wheels.part_of_lock(lock, PURE), wheels.of_platforms(oldest, where)):
        yield "lib", tree
    compiled = wheels.part_of_lock(lock, COMPILED)
    for platform, tags in PLATFORMS.items():
        for python in PYTHONS:
            for tree in _of(compiled, wheels.of_platforms(python, tags)):
                yield f"compiled/{platform}-{python}", tree


def _of(lock: str, target: list[str]) -> Iterator[Tree]:
    """The wheels of a part of the lock, unpacked. Downloads are kept: each wheel is what its hash says."""

    def fetch(folder: Path) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(lock)
            file.flush()
            wheels.download(Path(file.name), folder, target)

    kept = cache.kept(cache.key([lock.encode(), *(word.encode() for word in target)]), fetch)
    yield from (tree for _, tree in wheels.parts(kept))


def manifest(archive: Path, version: str) -> str:
    """What an index of Krew says of the archive."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return f"""\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: {names.KREW_PLUGIN}
spec:
  version: v{version}
  homepage: {names.REPOSITORY}
  shortDescription: Show devices and claims, and say why pods wait
  description: |
    Shows the accelerators that DRA drivers publish, who has them and what is free,
    and says device by device why a pod or a claim is pending. Works with any DRA driver.
  caveats: |
    Needs Python 3.11 or newer; on Linux also the GNU C library.
  platforms:
  - selector:
      matchExpressions:
      - {{key: os, operator: In, values: [linux, darwin]}}
      - {{key: arch, operator: In, values: [amd64, arm64]}}
    uri: {names.REPOSITORY}/releases/download/v{version}/{archive.name}
    sha256: {digest}
    bin: {PROGRAM}
"""
