# SPDX-License-Identifier: Apache-2.0
"""What this node remembers: which claims are prepared, and who owns which device."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from dra_driver.model.claim import ClaimRef
from dra_driver.model.ids import (
    NO_SHARE,
    ClaimUid,
    DeviceKey,
    DeviceName,
    DriverName,
    PoolName,
    ShareId,
)


class Phase(Enum):
    """Started: the devices are reserved and work may be half done. Prepared: everything is in place."""

    STARTED = "Started"
    PREPARED = "Prepared"


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One device of a prepared claim, as the kubelet is answered.

    `request_names` are base names. `uuid` is the device's, for messages and checks; it does not go to the kubelet.
    """

    request_names: tuple[str, ...]
    pool: PoolName
    device: DeviceName
    cdi_ids: tuple[str, ...]
    uuid: str
    share_id: ShareId = NO_SHARE
    admin_access: bool = False

    @property
    def key(self) -> DeviceKey:
        """What this entry owns, unless it has admin access."""
        return DeviceKey(self.pool, self.device, self.share_id)


@dataclass(frozen=True, slots=True)
class PreparedClaim:
    """A row of the state: the claim, how far it is, in which boot, its answer and its CDI document's text."""

    ref: ClaimRef
    phase: Phase
    boot_id: str
    devices: tuple[PreparedDevice, ...]
    cdi_spec: str

    @property
    def owned(self) -> tuple[DeviceKey, ...]:
        """The keys that this claim alone may hold."""
        return tuple(device.key for device in self.devices if not device.admin_access)

    @property
    def whole_devices(self) -> tuple[DeviceName, ...]:
        """The devices that nobody else can be using: owned, and not only a share of them."""
        return tuple(key.device for key in self.owned if not key.share)


@dataclass(frozen=True, slots=True)
class NodeState:
    """The part of the state that a decision needs: some claims, and the owners of some keys."""

    boot_id: str
    claims: Mapping[ClaimUid, PreparedClaim] = field(default_factory=dict)
    owners: Mapping[DeviceKey, ClaimRef] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device that a pod on this node holds through a claim, as the kubelet's pod-resources say.

    They name claims without UID; `cdi_ids` are the answers of the prepare call that the kubelet remembers.
    """

    namespace: str
    claim_name: str
    driver: DriverName
    pool: PoolName
    device: DeviceName
    share_id: ShareId = NO_SHARE
    cdi_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unknown:
    """The kubelet could not be asked, or does not list claims; `reason` says which."""

    reason: str
