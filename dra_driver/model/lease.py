# SPDX-License-Identifier: Apache-2.0
"""A lease: what a claim uses of a device, and what a backend sets up for it.

The lease is in the state file before a backend touches anything. So after a crash the driver knows exactly which set-ups may have
begun, and lets the backend undo them. What the backend learns only from the hardware (the UUID of a partition that it makes, a device
number, the path of a pipe) is not in the lease: the backend asks the hardware for it again, because a reboot changes such values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from msgspec import Struct

from dra_driver.model.claim import DeviceConfig
from dra_driver.model.ids import NO_SHARE, ClaimUid, DeviceName, ShareId

Piece = tuple[str, str]
"""A parent and one of its parts; the part "" is the whole parent."""


class Hardware(Struct, frozen=True):
    """Which physical resource is behind a device.

    `parent` identifies the whole resource on this node and never changes: the UUID or the PCI address of a GPU. `parts` are the parts of
    it that the device occupies; without parts the device is the whole resource. Devices with a part in common exclude each other, and
    so do a whole resource and each of its parts. `profile` is the vendor's name for the kind of partition ("1g.10gb").
    """

    parent: str
    parts: tuple[str, ...] = ()
    profile: str = ""

    @property
    def pieces(self) -> frozenset[Piece]:
        """What the device occupies: the whole resource (the part ""), or parts of it."""
        return frozenset((self.parent, part) for part in self.parts or ("",))


@dataclass(frozen=True, slots=True)
class Lease:
    """One allocation result of a claim, for the backend that sets up its device.

    `index` counts the claim's devices of this driver, from 0: request by request, and in a request by the PCI address. `request` is the result's request ("main" or "main/sub").
    `consumed_capacity` has quantities by name, for a share. With `admin_access` the claim does not own the device: the backend returns
    edits and changes nothing, and there is no `reset`. `config` is decoded.

    The state has these fields too, so that a reset works if the device has vanished: `backend`, and the parent, parts and profile of
    the device's `Hardware`.

    Three fields are only for one call and not stored. `is_alone`: no other lease has a part of this parent. `configure` may then set up
    what several leases share (a mode, a daemon), and `reset` must undo it. `configure` must also set it up if it is missing and the lease
    is not alone, because the work for the other lease may have failed. `may_run`: containers of the claim may use the device at the
    moment; `configure` changes nothing then and only returns the edits. Without `hooks` the container can have none, because the
    kubelet passes on variables, device files and mounts only: the edits must be enough without them.
    """

    claim_uid: ClaimUid
    request: str
    device: DeviceName
    index: int = 0
    share_id: ShareId = NO_SHARE
    consumed_capacity: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    admin_access: bool = False
    config: DeviceConfig = field(default_factory=DeviceConfig)
    backend: str = ""
    parent: str = ""
    parts: tuple[str, ...] = ()
    profile: str = ""
    is_alone: bool = field(default=True, compare=False)
    may_run: bool = field(default=False, compare=False)
    hooks: bool = field(default=True, compare=False)


class InUse(Enum):
    """The hardware's answer to whether a process uses a device."""

    YES = "yes"
    NO = "no"
    CANNOT_TELL = "cannot tell"
