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
    PodUid,
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
class Held:
    """The kubelet, or the cluster, needs the claim no more, and its devices are not shown to be unused yet.

    `since` is a time in UTC for people. `unasked` says that the API server has not yet said which pods used the claim; `by_admin`
    that a person vouches for it that none does.
    """

    reason: str
    since: str
    unasked: bool = False
    by_admin: bool = False


@dataclass(frozen=True, slots=True)
class Users:
    """Every pod that ever could use the claim on this node, as far as `pods` are known; None: not known at all.

    `sole` says that no other pod may ever use it: the claim was made for one pod. `unnamed` says that somebody used it whose pods
    have no names here.
    """

    pods: tuple[PodUid, ...] | None = None
    sole: bool = False
    unnamed: bool = False

    def joined(self, other: "Users") -> "Users":
        """Those of both, each once, in the order in which they came."""
        if other.pods is None:
            return self
        known = self.pods or ()
        return Users(
            (*known, *(pod for pod in other.pods if pod not in known)),
            other.sole,
            self.unnamed or other.unnamed,
        )


NOBODY_KNOWN = Users()


@dataclass(frozen=True, slots=True)
class PreparedClaim:
    """A row of the state: the claim, how far it is, in which boot, its answer and its CDI document's text.

    `held` rows are Started: nobody is answered from them, and they keep their devices until these are shown to be unused.
    """

    ref: ClaimRef
    phase: Phase
    boot_id: str
    devices: tuple[PreparedDevice, ...]
    cdi_spec: str
    users: Users = NOBODY_KNOWN
    held: Held | None = None

    @property
    def owned(self) -> tuple[DeviceKey, ...]:
        """The keys that this claim alone may hold."""
        return tuple(device.key for device in self.devices if not device.admin_access)


@dataclass(frozen=True, slots=True)
class NodeState:
    """The part of the state that a decision needs: some claims, and who stands in the way of some keys.

    In the way of a whole device are all owners of its shares, in the way of a share is who has the device whole. Of several, one
    is named that is none of `claims`.
    """

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

    @property
    def key(self) -> DeviceKey:
        """What the claim owns by it, unless it has admin access."""
        return DeviceKey(self.pool, self.device, self.share_id)


@dataclass(frozen=True, slots=True)
class Unknown:
    """The kubelet could not be asked, or does not list claims; `reason` says which."""

    reason: str
