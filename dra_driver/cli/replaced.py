# SPDX-License-Identifier: Apache-2.0
"""How does a file of somebody else's get a new content, and stays what it was in everything else?

The new content is written beside it and then takes its name, so that after an error or a power cut the file has the old content or the new one.
This makes another file of it, which first gets owner, group, mode and extended attributes (access lists among them) of the old one.
"""

import os
import stat
import tempfile
from pathlib import Path

from dra_driver.errors import Permanent

_OF_SYSTEM = ("security.", "trusted.")
"""Attributes that the system itself gives to a new file, and does not let everybody set."""


def replace_content(path: Path, content: bytes) -> None:
    """Replace the content of a file that is no link. Raises OSError; Permanent if the file would not stay what it is."""
    before = path.lstat()
    beside, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(beside, "wb") as file:
            file.write(content)
            _keep_owner(beside, path, before)
            _keep_attributes(beside, path)
            # Last: a change of the owner takes away some bits.
            os.fchmod(beside, stat.S_IMODE(before.st_mode))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _keep_owner(handle: int, path: Path, before: os.stat_result) -> None:
    made = os.fstat(handle)
    if (made.st_uid, made.st_gid) == (before.st_uid, before.st_gid):
        return
    try:
        os.fchown(handle, before.st_uid, before.st_gid)
    except OSError as error:
        raise Permanent(
            f"cannot correct {path}: it belongs to uid {before.st_uid} and gid {before.st_gid}, and the corrected file would belong to uid "
            f"{made.st_uid} and gid {made.st_gid} ({error.strerror}); nothing in it was corrected: run --fix as its owner"
        ) from error


def _keep_attributes(handle: int, path: Path) -> None:
    if not hasattr(os, "listxattr"):
        return  # not Linux
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return  # a filesystem without attributes
    for name in names:
        try:
            os.setxattr(handle, name, os.getxattr(path, name, follow_symlinks=False))
        except OSError as error:
            if not name.startswith(_OF_SYSTEM):
                raise Permanent(
                    f"cannot correct {path}: the corrected file would not have its attribute {name} ({error.strerror}); nothing in it was "
                    "corrected: remove the attribute, or correct the file by hand"
                ) from error
