# SPDX-License-Identifier: Apache-2.0
"""ResourceSlices: what the cluster is told about this node's devices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dra_driver.model.device import AttributeValue
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.quantity import Quantity


@dataclass(frozen=True, slots=True)
class Taint:
    """Why no new claim shall get a device. `time_added` is RFC 3339, whole seconds; it is part of what is published."""

    key: str
    value: str
    effect: Literal["NoSchedule", "NoExecute"]
    time_added: str


@dataclass(frozen=True, slots=True)
class PublishedDevice:
    """A device as it stands in a slice, within the API's limits."""

    name: DeviceName
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class SliceSpec:
    """The content of one slice. Consumers use a pool only when all `slice_count` slices of its newest generation are there."""

    pool: PoolName
    generation: int
    slice_count: int
    devices: tuple[PublishedDevice, ...]


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A slice as the API server holds it. `uid` and `resource_version` make writes conditional.

    `labels` and `annotations` are other people's and survive our writes. `unlike` is everything else that stands there
    otherwise than a write of `spec` would leave it, and that `spec` cannot hold: by path, what is found, as JSON text.
    """

    name: str
    uid: str
    resource_version: str
    spec: SliceSpec
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    unlike: Mapping[str, str] = field(default_factory=dict)


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
    spec: SliceSpec


@dataclass(frozen=True, slots=True)
class UpdateSlice:
    """PUT, if nobody changed it since."""

    present: StoredSlice
    spec: SliceSpec


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
