# SPDX-License-Identifier: Apache-2.0
"""What the daemon asks of the hardware. Two things stand behind it: the hardware process (`client.py`), and a recording of it."""

from collections.abc import Iterator
from threading import Event
from typing import Protocol

from dra_driver.backends.nvidia.facts import HardwareEvent, Node, Process, Usage


class Hardware(Protocol):
    """The GPUs of a node. Each call has a deadline of its own, and raises Temporary if the hardware does not answer within it, and
    Permanent if it refuses.
    """

    def look(self) -> Node:
        """Return what is there now. One GPU that does not answer has a `problem`; it does not make the call fail."""

    def events(self, stop: Event) -> Iterator[HardwareEvent | None]:
        """Yield the events of all GPUs, and None when something else changed that `look` would show. Returns when `stop` is set."""

    def processes(self, uuid: str) -> tuple[Process, ...]:
        """Return the processes on a GPU or MIG device."""

    def usage(self, uuid: str) -> Usage:
        """Return what is measured on a GPU now."""

    def set_compute_mode(self, uuid: str, mode: int) -> None:
        """Set the compute mode: 0 default, 3 one process at a time."""

    def set_time_slice(self, uuid: str, interval: int) -> None:
        """Set how long a process runs before another one does: 0 default, 1 short, 2 medium, 3 long."""

    def let_go(self) -> None:
        """Close the library, so that the kernel driver can be unloaded. The next `look` opens it again; a process in
        another container does so after a minute at the earliest.
        """
