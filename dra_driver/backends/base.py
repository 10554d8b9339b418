# SPDX-License-Identifier: Apache-2.0
"""The interface to hardware: what a backend must do. docs/write-a-backend.md builds one in about 50 lines.

The driver finds a backend by its name among the Python entry points of the group `dra_driver.backends`; the entry is a
`BackendFactory`. Every method may block or fail: the driver calls it in threads for this purpose, and an exception makes only this
call fail.
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
    """What a backend gets when it is made: the name of the node, and its options (`--backend-option key=value`)."""

    node_name: str
    options: Mapping[str, str] = field(default_factory=dict)


class Backend(Protocol):
    """One kind of hardware on this node."""

    def scan(self) -> Inventory:
        """Find all devices and their health. Called at start, after each item of `watch`, and every ten seconds; never twice at once.

        Raises DriverError if the hardware does not answer; the driver then keeps the last inventory.
        """

    def watch(self, stop: Event) -> Iterator[None]:
        """Yield when `scan` would return something else. Return when `stop` is set, or at once if nothing ever changes."""

    def configure(
        self,
        device: AllocatableDevice,
        config: DeviceConfig,
        /,
        *,
        claim_uid: ClaimUid,
        share_id: ShareId,
    ) -> None:
        """Configure a device for a claim, before the containers of the claim start. With a `share_id`: only this share of the device.

        Must be idempotent: after a crash the driver calls it again for the same claim. Raises Temporary (the driver tries again
        within the kubelet's call) or Permanent (the claim fails with this message).
        """

    def reset(self, device: DeviceName, /, *, claim_uid: ClaimUid, share_id: ShareId) -> None:
        """Undo `configure` for this claim and share. Called when no process of the claim's pods is left.

        Must be idempotent. It must also succeed for a device that vanished, and for a share that was never configured.
        """


BackendFactory = Callable[[BackendContext], Backend]
"""Makes a backend. It checks the options only and does not touch the hardware, which may hang: `scan` is the first to do so."""
