# SPDX-License-Identifier: Apache-2.0
"""Where does a command write what it was told to write? There, and nowhere else.

Nothing is ever replaced by another file: a symlink, a device or a pipe is written through, as a shell's `>` does. What a
regular file holds already is given up only with --force, and nobody but its owner may read what is written.
"""

import os
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self

from dra_driver.cli import render
from dra_driver.errors import Permanent

STANDARD_OUTPUT = "-"
PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class Destination:
    """A place that may be written to, as far as one can see beforehand."""

    name: str
    is_standard_output: bool = False
    is_there: bool = False

    @classmethod
    def of(cls, name: str, *, force: bool) -> Self:
        """The place of that name. Raises Permanent where it must not be written."""
        if name == STANDARD_OUTPUT:
            return cls(name, is_standard_output=True)
        path = Path(name)
        try:
            found = path.stat()
        except FileNotFoundError:
            if path.is_symlink():
                _refused(
                    name, f"it is a symlink to {path.readlink()}, which does not exist: name that"
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
        """Write it all. A new file that cannot be written whole is removed again. Raises Permanent."""
        if self.is_standard_output:
            render.raw(content)
            return
        try:
            if self.is_there:
                self._write_into(content)
            else:
                self._create(content)
        except FileExistsError:
            _refused(self.name, "it was made meanwhile; give --force to overwrite it")
        except OSError as error:
            _refused(self.name, f"{error.strerror}; choose a directory that this user may write to")

    def _create(self, content: bytes) -> None:
        # O_EXCL follows no symlink either: one that somebody put there meanwhile is not written through.
        made = os.open(self.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
        try:
            with open(made, "wb") as file:  # noqa: PTH123  a descriptor, no path
                file.write(content)
        except BaseException:
            with suppress(OSError):
                os.unlink(self.name)  # noqa: PTH108  beside os.open, of the same name
            raise

    def _write_into(self, content: bytes) -> None:
        opened = os.open(self.name, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
        with open(opened, "wb") as file:  # noqa: PTH123  a descriptor, no path
            found = os.fstat(opened)
            if stat.S_ISREG(found.st_mode):
                _own(self.name, found)
                os.fchmod(opened, PRIVATE)
                os.ftruncate(opened, 0)
            file.write(content)


def _is_output(found: os.stat_result) -> bool:
    """Whether it is what standard output is, by another name: /dev/stdout, or the file that the shell opened for it."""
    try:
        return sys.stdout is not None and os.path.samestat(found, os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # standard output is no file, or closed
        return False


def _own(name: str, found: os.stat_result) -> None:
    """A file of somebody else stays theirs to read, whatever its mode."""
    if found.st_uid != os.geteuid():
        _refused(name, f"it belongs to uid {found.st_uid}, who could read it; choose another name")


def _refused(name: str, reason: str) -> NoReturn:
    raise Permanent(f"cannot write {name}: {reason}")
