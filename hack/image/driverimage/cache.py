# SPDX-License-Identifier: Apache-2.0
"""Where are layers kept that need not be built again?

Below the user's cache, outside the clone, in a folder named after everything that decides its
contents. A folder that exists is complete: it is filled elsewhere and renamed into place. What is in it
is compared with its hashes whenever it is used: a disk forgets, and people look for room.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from driverimage.sbom import of_file
from driverimage.tree import ImageError

HASHES = "hashes.json"
HERE = Path(__file__).resolve().parent


def cache_folder() -> Path:
    """The folder of everything that can be built again."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "dra-driver" / "image"


def key(inputs: Iterable[bytes]) -> str:
    """A name for these inputs and the program that works on them."""
    whole = hashlib.sha256()
    for content in (*inputs, *(path.read_bytes() for path in sorted(HERE.glob("*.py")))):
        whole.update(hashlib.sha256(content).digest())
    return whole.hexdigest()[:16]


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of this name, made now if it is not there; `make` is given a folder to fill."""
    folder = cache_folder() / name
    if folder.is_dir():
        return _verified(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as temporary:
        made = Path(temporary, "made")
        made.mkdir()
        make(made)
        (made / HASHES).write_text(json.dumps(_hashes(made)))
        with suppress(OSError):  # "not empty": somebody else was first, and theirs is as good
            made.rename(folder)
    if not folder.is_dir():
        raise ImageError(f"{folder} could not be put into place; is the cache writable?")
    return _verified(folder)


def _hashes(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.iterdir()) if path.name != HASHES)
    return {path.name: of_file(path) for path in files}


def _verified(folder: Path) -> Path:
    try:
        expected = json.loads((folder / HASHES).read_bytes())
        found = _hashes(folder)
    except (OSError, ValueError) as error:
        raise ImageError(
            f"{folder} cannot be verified ({error}); remove it, then build again"
        ) from error
    differing = sorted(dict(expected.items() ^ found.items()))
    if differing:
        raise ImageError(
            f"in {folder} {', '.join(differing)}: not what was put there; remove the folder, then build again"
        )
    return folder
