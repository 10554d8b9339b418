# SPDX-License-Identifier: Apache-2.0
"""Write the feature file of this driver, from which Node Feature Discovery (NFD) makes labels of the Node.

NFD's worker reads all files of one folder of the node, and removes the labels of a file that is gone. The folder belongs to NFD: the
driver does not make it, so that a node without NFD stays without it.
"""

from contextlib import suppress
from pathlib import Path

from dra_driver.node.files import TEMPORARY_SUFFIX, content_of, remove, write_atomic

_MOST_BYTES = 64 * 1024  # the labels of this driver need a few KiB


class FeatureFile:
    """The file of one driver in the folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / name

    @property
    def has_folder(self) -> bool:
        """Whether NFD's folder exists."""
        return self.path.parent.is_dir()

    def read(self) -> str:
        """Return the text of the file; "" if it does not exist, cannot be read, or is none that this driver wrote.

        Others may write into the folder.
        """
        try:
            found = content_of(self.path, most=_MOST_BYTES + 1, links=False)
            return found.decode() if found is not None and len(found) <= _MOST_BYTES else ""
        except (OSError, UnicodeDecodeError):
            return ""

    def replace(self, text: str) -> bool:
        """Make this the text of the file, or remove the file if the text is empty. Returns whether anything changed. Raises DriverError.

        A reader sees the old file or the new one, and never a temporary file: NFD ignores hidden files.
        """
        if not text:
            existed = self.path.is_symlink() or self.path.exists()
            remove(self.path)
            return existed
        if self.read() == text:
            return False
        self._clear()
        write_atomic(self.path, text, name="features")
        return True

    def _clear(self) -> None:
        """Remove temporary files of a killed process."""
        for leftover in self.path.parent.glob(f".{self.path.name}.*{TEMPORARY_SUFFIX}"):
            with suppress(OSError):  # NFD does not read it, so it does no harm
                leftover.unlink(missing_ok=True)
