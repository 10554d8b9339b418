# SPDX-License-Identifier: Apache-2.0
"""ResourceSlices: what the cluster is told about this node's devices."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dra_driver.model.api.resource_slice import Device, ResourceSliceSpec
from dra_driver.model.ids import DeviceName

Devices = tuple[Device, ...]
"""The devices of one slice, within the API's limits, in their order."""


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A slice as the API server holds it. `uid` and `resource_version` make writes conditional.

    `labels` and `annotations` are other people's and survive our writes. `unlike` is everything else that this driver would
    not have written: fields that `spec` cannot hold, and those of the slice beside its pool and its devices. By path, what is
    found, as JSON text.
    """

    name: str
    uid: str
    resource_version: str
    spec: ResourceSliceSpec
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    unlike: Mapping[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> Devices:
        """What the slice offers."""
        return tuple(self.spec.devices or ())


@dataclass(frozen=True, slots=True)
class SliceHolder:
    """The slice that a name belongs to, whoever made it."""

    name: str
    uid: str
    driver: str
    node: str
    pool: str
    created: str

    def __str__(self) -> str:
        where = f"node {self.node}" if self.node else "no single node"
        return f"a slice of driver {self.driver} for {where}, pool {self.pool}, UID {self.uid}, created {self.created}"


@dataclass(frozen=True, slots=True)
class CreateSlice:
    """POST under this name."""

    name: str
    spec: ResourceSliceSpec


@dataclass(frozen=True, slots=True)
class UpdateSlice:
    """PUT, if nobody changed it since."""

    present: StoredSlice
    spec: ResourceSliceSpec


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    """DELETE, if nobody changed it since."""

    present: StoredSlice


SliceChange = CreateSlice | UpdateSlice | DeleteSlice


@dataclass(frozen=True, slots=True)
class Problem:
    """Something of a device that could not be published as found; everything else was.

    `subject` is the device and field, `found` the offending text, `action` what was done and what a person can do.
    """

    device: DeviceName
    subject: str
    found: str
    action: str

    def __str__(self) -> str:
        return f"device {self.device}: {self.subject}: {self.found}; {self.action}"
