# SPDX-License-Identifier: Apache-2.0
"""ResourceSlices: what the cluster is told about this node's devices."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dra_driver.model.device import AttributeValue
from dra_driver.model.ids import DeviceName, PoolName
from dra_driver.model.quantity import Quantity


@dataclass(frozen=True, slots=True)
class PublishedDevice:
    """A device as it stands in a slice, within the API's limits."""

    name: DeviceName
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SliceSpec:
    """The content of one slice. Consumers use a pool only when all `slice_count` slices of its newest generation are there."""

    pool: PoolName
    generation: int
    slice_count: int
    devices: tuple[PublishedDevice, ...]


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A slice as the API server holds it. `uid` and `resource_version` make writes conditional."""

    name: str
    uid: str
    resource_version: str
    spec: SliceSpec


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
