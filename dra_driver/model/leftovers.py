# SPDX-License-Identifier: Apache-2.0
"""What of a driver would remain on a node when it is uninstalled."""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What something is, in words for people; removed in this order.

    First what others would call, then what containers would be given, then what this node remembers: whoever stops
    half-way can still see which claims are prepared.
    """

    SOCKET = "socket"
    SLICE = "ResourceSlice"
    CDI_FILE = "CDI file"
    STATE = "state file"
    LOCK = "lock file"
    DIRECTORY = "directory"


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that would remain; `name` is a file's path or an object's name."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}"


@dataclass(frozen=True, slots=True)
class Others:
    """Files in a directory that the driver shares or that it did not write: they stay."""

    directory: str
    names: tuple[str, ...]
