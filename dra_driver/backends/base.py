# SPDX-License-Identifier: Apache-2.0
"""The door to hardware: what a backend must do. docs/write-a-backend.md builds one in about 50 lines.

A backend is found by name through Python entry points, group `dra_driver.backends`; the entry is a `BackendFactory`.
Everything behind this door may block or fail: the driver calls it from threads of its own, and an exception costs that
call only.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

from dra_driver.model.claim import DeviceConfig
from dra_driver.model.device import Device
from dra_driver.model.ids import DeviceName
from dra_driver.model.inventory import Inventory

ENTRY_POINT_GROUP = "dra_driver.backends"


@dataclass(frozen=True, slots=True)
class BackendContext:
    """What a backend is told: the node's name, and its own options (`--backend-option key=value`)."""

    node_name: str
    options: Mapping[str, str] = field(default_factory=dict)


class Backend(Protocol):
    """One kind of hardware on this node."""

    def scan(self) -> Inventory:
        """Everything there is now, with its health. Called at start, after each item of `watch`, and every ten seconds; once at a time.

        Raises DriverError when the hardware cannot be asked; the last inventory then stays in force.
        """

    def watch(self, stop: Event) -> Iterator[None]:
        """Yield whenever `scan` would answer something else; return when `stop` is set, or at once if nothing ever changes."""

    def configure(self, device: Device, config: DeviceConfig, /) -> None:
        """Set a device up for a claim, before the claim's container starts.

        Must be idempotent: after a crash it is called again. Raises Temporary (tried again inside the kubelet's call) or
        Permanent (the claim fails with this message).
        """

    def reset(self, device: DeviceName, /) -> None:
        """Undo `configure`, after the claim's last pod is gone. Must be idempotent, also for a device that vanished."""


BackendFactory = Callable[[BackendContext], Backend]
