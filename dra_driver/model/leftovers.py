# SPDX-License-Identifier: Apache-2.0
"""What remains on a node after the driver was uninstalled, if nobody removes it."""

from enum import Enum

from msgspec import Struct


class LeftoverKind(Enum):
    """The kind of a leftover, in words for people. They are removed in this order.

    First what the kubelet would call, then what containers would get, and last the state. So if the removal stops in the middle,
    the state still shows which claims are prepared.
    """

    SOCKET = "socket"
    SLICE = "ResourceSlice"
    LABELS = "labels of Node"
    CONDITION = "condition of Node"
    FEATURES = "feature file"
    CDI_FILE = "CDI file"
    METADATA = "metadata file"
    STATE = "state file"
    LOCK = "lock file"
    DIRECTORY = "directory"


class Leftover(Struct, frozen=True):
    """One thing that would remain; `name` is the path of a file or the name of an object."""

    kind: LeftoverKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}"


class Others(Struct, frozen=True):
    """Files that stay, because the driver did not write them; they are in a directory that the driver uses too."""

    directory: str
    names: tuple[str, ...]
