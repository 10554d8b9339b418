# SPDX-License-Identifier: Apache-2.0
"""ResourceClaims as far as a driver on a node looks at them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dra_driver.model.api.resource_claim import DeviceRequestAllocationResult
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


@dataclass(frozen=True, slots=True, order=True)
class ClaimRef:
    """Which claim, as the kubelet names it; a claim that was deleted and made anew has another `uid`."""

    namespace: str
    name: str
    uid: ClaimUid

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} (uid {self.uid})" if self.name else f"uid {self.uid}"

    @property
    def word(self) -> str:
        """What commands take: `namespace/name`, or the UID of a claim whose name nobody knows any more."""
        return f"{self.namespace}/{self.name}" if self.name else self.uid


def key_of(result: DeviceRequestAllocationResult) -> DeviceKey:
    """What the claim owns by this result (nothing, with admin access)."""
    return DeviceKey(PoolName(result.pool), DeviceName(result.device), share_of(result))


def share_of(result: DeviceRequestAllocationResult) -> ShareId:
    """Which share of the device; NO_SHARE for a whole one."""
    return ShareId(result.share_id or NO_SHARE)


def base_request(result: DeviceRequestAllocationResult) -> str:
    """The request's name as containers write it, without the chosen alternative ("main" of "main/sub")."""
    return result.request.partition("/")[0]


@dataclass(frozen=True, slots=True)
class OpaqueConfig:
    """One entry of `status.allocation.devices.config`, not yet decoded.

    `requests` empty means all requests; a main name covers its alternatives. `index` is its place in the list, for
    messages.
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
    """A claim and its allocation; `results` is None while the claim is not allocated.

    `reserved_for` are the pods of `status.reservedFor`; `unnamed_users` says that it names something that is no pod and whose
    pods are therefore not known. `sole_pod` is the pod that owns the claim as its controller: it was made of a template,
    and nobody else may use it. `unusable` says why this driver's configuration cannot be read, if it was asked for and cannot.
    """

    ref: ClaimRef
    results: tuple[DeviceRequestAllocationResult, ...] | None = None
    configs: tuple[OpaqueConfig, ...] = ()
    reserved_for: tuple[PodUid, ...] = ()
    sole_pod: PodUid | None = None
    unnamed_users: bool = False
    allocation_timestamp: str = ""
    unusable: str = ""


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """Decoded configuration of one device in one claim.

    `label` is text for the container; `sharing` is what the configuration kind of the example devices says.
    """

    label: str = ""
    sharing: Mapping[str, str] = field(default_factory=dict)
