# SPDX-License-Identifier: Apache-2.0
"""The parts of a ResourceClaim that the driver on a node needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from dra_driver.model.api.resource_claim import (
    AllocatedDeviceStatus,
    DeviceRequestAllocationResult,
)
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

PLUGIN_UID_PREFIX = "plugin-"
"""Of the UID of a row in the state that belongs to an Allocate call of the device plugin API, and not to a ResourceClaim."""


class ClaimRef(Struct, frozen=True, order=True):
    """The identity of a claim, as the kubelet sends it. A claim that was deleted and created again has another `uid`."""

    namespace: str
    name: str
    uid: ClaimUid

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} (uid {self.uid})" if self.name else f"uid {self.uid}"

    @property
    def word(self) -> str:
        """The argument for commands: `namespace/name`, or the UID if the name is not known any more."""
        return f"{self.namespace}/{self.name}" if self.name and not self.of_plugin else self.uid

    @property
    def of_plugin(self) -> bool:
        """Whether this is no claim but a call of the device plugin API (`dra_driver.model.plugin`): no API server knows it."""
        return self.uid.startswith(PLUGIN_UID_PREFIX)


def key_of(result: DeviceRequestAllocationResult) -> DeviceKey:
    """The device or share that the claim owns by this result. With admin access it owns nothing; the caller checks that."""
    return DeviceKey(PoolName(result.pool), DeviceName(result.device), share_of(result))


def share_of(result: DeviceRequestAllocationResult) -> ShareId:
    """The share of the device that was allocated; NO_SHARE for the whole device."""
    return ShareId(result.share_id or NO_SHARE)


def base_request(result: DeviceRequestAllocationResult) -> str:
    """The name of the request as containers refer to it: "main" for the subrequest "main/sub"."""
    return result.request.partition("/")[0]


class OpaqueConfig(Struct, frozen=True):
    """One entry of `status.allocation.devices.config`, not yet decoded.

    If `requests` is empty, the entry applies to all requests. The name of a request includes its subrequests. `index` is the
    entry's place in the list, for messages.
    """

    index: int
    source: Literal["FromClass", "FromClaim"]
    requests: tuple[str, ...]
    driver: DriverName
    parameters: Mapping[str, object]

    def covers(self, request: str) -> bool:
        """Whether this entry applies to a result's request ("main" or "main/sub")."""
        return (
            not self.requests
            or request in self.requests
            or request.partition("/")[0] in self.requests
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim and its allocation; `results` is None if the claim is not allocated.

    `reserved_for` are the pods of `status.reservedFor`. `unnamed_users`: it also has an entry that is no pod, so some pods are not
    known. `sole_pod` is set for a claim that was created from a template: only this pod may use it. `unusable` says why this
    driver's configuration cannot be read; "" if it can, or if nobody tried. `resource_version` is the version of the object.
    `pod_claim_name` is the name that a claim from a template has in its pod's spec. `statuses` are the entries of `status.devices`, of
    all drivers.
    """

    ref: ClaimRef
    results: tuple[DeviceRequestAllocationResult, ...] | None = None
    configs: tuple[OpaqueConfig, ...] = ()
    reserved_for: tuple[PodUid, ...] = ()
    sole_pod: PodUid | None = None
    unnamed_users: bool = False
    allocation_timestamp: str = ""
    unusable: str = ""
    resource_version: str = field(default="", compare=False)
    pod_claim_name: str = field(default="", compare=False)
    statuses: tuple[AllocatedDeviceStatus, ...] = field(default=(), compare=False)


class DeviceConfig(Struct, frozen=True):
    """The decoded configuration of one device in one claim.

    `value` is the structure that the backend declares for this apiVersion and kind. Without any configuration all three are empty.
    """

    api_version: str = ""
    kind: str = ""
    value: object = None
