# SPDX-License-Identifier: Apache-2.0
"""How does a command write its output file safely?

The command writes into the named file itself, as the shell's `>` does, and never replaces the file by a new one. So a symlink, a
device or a pipe can be the output. The command overwrites an existing regular file only with --force. Only the owner may read the
result, because a cluster's record shows names of pods and nodes.
"""

import os
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, Self

from msgspec import Struct

from dra_driver.cli import render
from dra_driver.errors import Permanent

STANDARD_OUTPUT = "-"
PRIVATE = 0o600


class Destination(Struct, frozen=True):
    """A file name that is checked before the command does its long work, so that `write` will probably succeed afterwards."""

    name: str
    is_standard_output: bool = False
    is_there: bool = False

    @classmethod
    def of(cls, name: str, *, force: bool) -> Self:
        """Check the name. Raises Permanent if the command must not write there."""
        if name == STANDARD_OUTPUT:
            return cls(name, is_standard_output=True)
        path = Path(name)
        try:
            found = path.stat()
        except FileNotFoundError:
            if path.is_symlink():
                _refused(
                    name,
                    f"it is a symlink to {path.readlink()}, which does not exist: give that name",
                )
            return cls(name)
        except OSError as error:
            _refused(name, f"{error.strerror}; choose another place")
        if stat.S_ISDIR(found.st_mode):
            _refused(name, "it is a directory; name a file in it")
        if _is_output(found):
            return cls(name, is_standard_output=True)
        if stat.S_ISREG(found.st_mode):
            _own(name, found)
            if not force:
                _refused(name, "it exists; choose another name, or give --force to overwrite it")
        return cls(name, is_there=True)

    def write(self, content: bytes) -> None:
        """Write the whole content. If this fails, remove a new file again and raise Permanent."""
        if self.is_standard_output:
            render.raw(content)
            return
        try:
            if self.is_there:
                self._write_into(content)
            else:
                self._create(content)
        except FileExistsError:
            _refused(
                self.name,
                "somebody made this file while the command ran; give --force to overwrite it",
            )
        except OSError as error:
            _refused(self.name, f"{error.strerror}; choose a directory that this user may write to")

    def _create(self, content: bytes) -> None:
        # O_EXCL also refuses a symlink that somebody put there after the check in `of`.
        made = os.open(self.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
        try:
            with open(made, "wb") as file:  # noqa: PTH123  a file descriptor, not a path
                file.write(content)
        except BaseException:
            with suppress(OSError):
                os.unlink(self.name)  # noqa: PTH108  the counterpart of os.open above
            raise

    def _write_into(self, content: bytes) -> None:
        opened = os.open(self.name, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
        with open(opened, "wb") as file:  # noqa: PTH123  a file descriptor, not a path
            found = os.fstat(opened)
            if stat.S_ISREG(found.st_mode):
                _own(self.name, found)
                os.fchmod(opened, PRIVATE)
                os.ftruncate(opened, 0)
            file.write(content)


def _is_output(found: os.stat_result) -> bool:
    """Return whether this file is standard output under another name: /dev/stdout, or the file to which the shell redirects it."""
    try:
        return sys.stdout is not None and os.path.samestat(found, os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # standard output is closed, or has no file descriptor
        return False


def _own(name: str, found: os.stat_result) -> None:
    """Raise Permanent if the file belongs to another user: that user could read the file, whatever its mode is."""
    if found.st_uid != os.geteuid():
        _refused(name, f"it belongs to uid {found.st_uid}, who could read it; choose another file")


def _refused(name: str, reason: str) -> NoReturn:
    raise Permanent(f"cannot write {name}: {reason}")
