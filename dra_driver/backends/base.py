# SPDX-License-Identifier: Apache-2.0
"""The interface to hardware: what a backend must do. docs/write-a-backend.md builds one in about 50 lines.

The driver finds a backend by its name among the Python entry points of the group `dra_driver.backends`; the entry is a
`BackendFactory`, usually the class of the backend. Every method may block or fail: the driver calls it in threads for this purpose,
and an exception makes only this call fail.

A factory declares what the driver checks for it, as attributes; each may be missing:

    options = AcmeOptions   # a msgspec.Struct: the fields of its section in the config document, with types and defaults
    auto = False            # `auto` never chooses this backend, because its devices are no hardware
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Protocol

from dra_driver.model.claim import DeviceConfig
from dra_driver.model.device import AllocatableDevice
from dra_driver.model.ids import ClaimUid, DeviceName, ShareId
from dra_driver.model.inventory import Inventory

ENTRY_POINT_GROUP = "dra_driver.backends"
AUTO = "auto"
"""In the place of a backend's name: all installed backends whose hardware exists."""


@dataclass(frozen=True, slots=True)
class BackendContext:
    """What a backend gets when it is made: the name of the node, and its options.

    `options` is the structure that the backend declares; its values have been checked. A backend that declares none gets a mapping
    of texts.
    """

    node_name: str
    options: Any = field(default_factory=dict)


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
