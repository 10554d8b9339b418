# SPDX-License-Identifier: Apache-2.0
"""Change a folder into another one while it is in use."""

import stat
from contextlib import suppress
from pathlib import Path


def bring_over(fresh: Path, folder: Path, before: frozenset[Path]) -> frozenset[Path]:
    """Move what is new or different in `fresh` to `folder`, then remove what is in `before` and not in `fresh`.

    Returns what `fresh` had, for the next time, as paths below it. What is equal is not touched, what is in neither of the two stays,
    and the folders of the first level stay: somebody may have mounted them.
    """
    wanted = sorted(path.relative_to(fresh) for path in fresh.rglob("*"))
    for path in wanted:
        source, target = fresh / path, folder / path
        if source.is_dir() and not source.is_symlink():
            target.mkdir(exist_ok=True)
        elif not _equal(source, target):
            source.replace(target)
    for path in sorted(before.difference(wanted), reverse=True):
        if len(path.parts) > 1:
            _remove(folder / path)
    return frozenset(wanted)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        with suppress(OSError):  # something else is in it
            path.rmdir()
    else:
        path.unlink(missing_ok=True)


def _equal(one: Path, other: Path) -> bool:
    if not other.is_symlink() and not other.exists():
        return False
    first, second = one.lstat(), other.lstat()
    if first.st_mode != second.st_mode or first.st_rdev != second.st_rdev:
        return False
    if stat.S_ISLNK(first.st_mode):
        return one.readlink() == other.readlink()
    return not stat.S_ISREG(first.st_mode) or (
        first.st_gid == second.st_gid and one.read_bytes() == other.read_bytes()
    )
