# SPDX-License-Identifier: Apache-2.0
"""Which pods have devices by plugins of others? A file keeps it, because the kubelet forgets a pod that was deleted by force.

The file is beside the state. Without it, or if it is damaged, the driver knows only the pods that the kubelet's checkpoint still has.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

from dra_driver.model.foreign import RememberedPod
from dra_driver.node.files import write_atomic

FILE_NAME = "foreign.json"
MOST_BYTES = 16 * 1024 * 1024
"""Several times what the kubelet's checkpoint may have: it is read at each look, and usually has a few lines."""


class _Content(msgspec.Struct, frozen=True):
    boot_id: str = ""
    pods: tuple[RememberedPod, ...] = ()
    offered: tuple[str, ...] = ()


class ForeignMemory(Struct, frozen=True):
    """The file at `path`. After a reboot no pod of before runs."""

    path: Path
    boot_id: str

    def read(self) -> tuple[tuple[RememberedPod, ...], tuple[str, ...]]:
        """Return the pods, and the resources that this driver itself offered; nothing if the file is not there or cannot be read."""
        try:
            with self.path.open("rb") as file:
                found = msgspec.json.decode(file.read(MOST_BYTES), type=_Content)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return (), ()
        return (found.pods if found.boot_id == self.boot_id else ()), found.offered

    def write(self, pods: tuple[RememberedPod, ...], offered: tuple[str, ...], /) -> None:
        """Replace the content. Raises DriverError."""
        write_atomic(self.path, msgspec.json.encode(_Content(self.boot_id, pods, offered)).decode())
