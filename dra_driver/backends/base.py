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
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import ClaimUid, DeviceName, ShareId
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

    def configure(
        self,
        device: AllocatableDevice,
        config: DeviceConfig,
        /,
        *,
        claim_uid: ClaimUid,
        share_id: ShareId,
    ) -> None:
        """Set a device, or with a `share_id` one share of it, up for a claim, before the claim's containers start.

        Must be idempotent: after a crash it is called again for the same claim. Raises Temporary (tried again inside the kubelet's
        call) or Permanent (the claim fails with this message).
        """

    def reset(self, device: DeviceName, /, *, claim_uid: ClaimUid, share_id: ShareId) -> None:
        """Undo `configure` for this claim and share, when no process of the claim's pods is left.

        Must be idempotent, also for a device that vanished and for a share that was never set up.
        """


BackendFactory = Callable[[BackendContext], Backend]
"""Makes a backend. It looks at options only: hardware may hang, and is asked by `scan` first."""
