# SPDX-License-Identifier: Apache-2.0
"""The content of the state file: which claims are prepared on this node, and which claim owns which device."""

import dataclasses
from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

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
from dra_driver.model.lease import Lease
from dra_driver.model.quantity import Quantity


class Phase(Enum):
    """How far a claim is. Started: its devices are reserved, and the work may be half done. Prepared: everything is done."""

    STARTED = "Started"
    PREPARED = "Prepared"


@dataclasses.dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One device of a prepared claim, as the answer to the kubelet has it.

    `request_names` are names without subrequests. `uuid` says whether the name still means the
    same device (`dra_driver.planning.moved`); it is "" if the row was made from a CDI file, or if the backend has none. `by_name` is for
    rows of the device plugin API: the kubelet was told nothing but CDI names, so the CDI file decides what a container gets at each start. It
    is False too if that is not known: the kubelet may keep an answer with device files.
    """

    request_names: tuple[str, ...]
    pool: PoolName
    device: DeviceName
    cdi_ids: tuple[str, ...]
    uuid: str = dataclasses.field(compare=False)
    share_id: ShareId = NO_SHARE
    admin_access: bool = False
    by_name: bool = dataclasses.field(default=False, compare=False)

    @property
    def key(self) -> DeviceKey:
        """The device, or the share of it. The claim owns it, unless the claim has admin access."""
        return DeviceKey(self.pool, self.device, self.share_id)


class Held(Struct, frozen=True):
    """The claim is not needed any more, but there is no proof yet that its devices are unused.

    `since` is a time in UTC for people. `unasked`: the API server has not yet been asked which pods used the claim. `by_admin`: an
    admin has confirmed that no process uses the devices.
    """

    reason: str
    since: str
    unasked: bool = False
    by_admin: bool = False


class CallBegun(Struct, frozen=True):
    """What a node showed when the kubelet called Allocate, which names no pod: the version of the kubelet's checkpoint, and the pods that had a
    cgroup. The call is for none of these pods, since a pod gets its cgroup after its admission.
    """

    checkpoint: str
    pods: frozenset[PodUid]


class Users(Struct, frozen=True):
    """The pods that may have used the claim on this node. `pods` is None if they are not known at all.

    `sole`: the claim was created for one pod, so no other pod may ever use it. `unnamed`: the claim was also reserved for something
    that is no pod, so some of its pods are not known. `call` is for a row of the device plugin API, until the pod is known for which the row was
    answered last; `pods` are those before it.
    """

    pods: tuple[PodUid, ...] | None = None
    sole: bool = False
    unnamed: bool = False
    call: CallBegun | None = None

    @property
    def has_unknown(self) -> bool:
        """Whether the last pod that got the devices is not known."""
        return self.pods is None or self.call is not None

    def joined(self, other: "Users") -> "Users":
        """The users of both, each pod once, in the order in which they came. Whoever names pods says too whether another one is to come."""
        if other.pods is None:
            return self
        known = self.pods or ()
        return Users(
            (*known, *(pod for pod in other.pods if pod not in known)),
            other.sole,
            self.unnamed or other.unnamed,
            other.call,
        )


NOBODY_KNOWN = Users()


class PreparedClaim(Struct, frozen=True):
    """A row of the state: the claim, its phase, the boot ID, the answer to the kubelet, and the text of its CDI file.

    A row with `held` is Started. No prepare call is answered from it. It owns its devices until they are proven to be unused.

    `leases` are the set-ups that may have begun and are not undone. None: they are not known, because an older driver wrote the row, or
    because it was made from a CDI file or from the kubelet's list. `cdi_spec` is "" until the devices are configured. `metadata` has the
    texts of the metadata files (`dra_driver.model.metadata`); "" if there are none, or if the row was made from a CDI file.
    """

    ref: ClaimRef
    phase: Phase
    boot_id: str
    devices: tuple[PreparedDevice, ...]
    cdi_spec: str
    users: Users = NOBODY_KNOWN
    held: Held | None = None
    leases: tuple[Lease, ...] | None = None
    metadata: str = ""

    @property
    def owned(self) -> tuple[DeviceKey, ...]:
        """The keys that this claim owns; admin access owns nothing."""
        return tuple(device.key for device in self.devices if not device.admin_access)

    @property
    def is_fixed(self) -> bool:
        """Whether a container may open the same device files after a reboot, whatever the driver does: the kubelet keeps the answer of Allocate.
        Then nobody else may get a device of these names.
        """
        return self.ref.of_plugin and not all(device.by_name for device in self.devices)


class Consumption(Struct, frozen=True):
    """What the shares of one device consume of its capacity: amounts by the name of the capacity.

    `shares` is their number, and `claims` are some of the claims that have them, for messages.
    """

    amounts: Mapping[str, Quantity]
    shares: int = 0
    claims: tuple[ClaimRef, ...] = ()


class NodeState(Struct, frozen=True):
    """The part of the state that a decision needs: some claims, and the owners that conflict with some keys.

    A whole device conflicts with each owner of one of its shares, and a share with the owner of the whole device. If there are
    several owners, the one that is named is not among `claims`, if possible.

    `consumed` has what the shares of other claims than `claims` consume, by device (with no share in the key).
    """

    boot_id: str
    claims: Mapping[ClaimUid, PreparedClaim] = field(default_factory=dict)
    owners: Mapping[DeviceKey, ClaimRef] = field(default_factory=dict)
    consumed: Mapping[DeviceKey, Consumption] = field(default_factory=dict)


class PodDevice(Struct, frozen=True):
    """A device that a pod on this node uses through a claim, as the kubelet's pod-resources API lists it.

    This API has the name of the claim but not its UID. `cdi_ids` are from the driver's answer to the prepare call.
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
        """The device, or the share of it. The claim owns it, unless the claim has admin access."""
        return DeviceKey(self.pool, self.device, self.share_id)


class Unknown(Struct, frozen=True):
    """The kubelet did not answer, or it does not list claims; `reason` says which."""

    reason: str
