# SPDX-License-Identifier: Apache-2.0
"""ResourceSlices of this node: as they shall be, as they are stored, and the writes between the two."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct, field

from dra_driver.model.api.resource_slice import Device, ResourcePool, ResourceSliceSpec
from dra_driver.model.ids import DeviceName
from dra_driver.model.names import DEVICE_ATTRIBUTE_DROPPED

Devices = tuple[Device, ...]
"""The devices of one slice, within the API's limits, in their order."""

SliceContent = ResourceSliceSpec
"""What one slice says: its devices or its counter sets. The head is empty: driver, pool and node are equal in all slices of a pool."""


def content_of(spec: ResourceSliceSpec) -> SliceContent:
    """The content of a slice, without its head."""
    return msgspec.structs.replace(
        spec,
        driver="",
        pool=ResourcePool(),
        node_name=None,
        node_selector=None,
        all_nodes=None,
        per_device_node_selection=None,
    )


class StoredSlice(Struct, frozen=True):
    """A slice as the API server stores it. `uid` and `resource_version` make writes conditional.

    `labels` and `annotations` may be from others, and the driver's writes keep them. `unlike` has all other parts of the object,
    outside pool and devices, that the driver would not write: by path, the value that was found, as JSON text.
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
        """The devices of the slice."""
        return tuple(self.spec.devices or ())

    @property
    def content(self) -> SliceContent:
        """The slice without its head."""
        return content_of(self.spec)


class SliceHolder(Struct, frozen=True):
    """The identity of any slice, perhaps of another driver or node."""

    name: str
    uid: str
    driver: str
    node: str
    pool: str
    created: str

    def __str__(self) -> str:
        where = f"node {self.node}" if self.node else "no single node"
        return f"a slice of driver {self.driver} for {where}, pool {self.pool}, UID {self.uid}, created {self.created}"


class CreateSlice(Struct, frozen=True):
    """Create a slice of this name (POST)."""

    name: str
    spec: ResourceSliceSpec


class UpdateSlice(Struct, frozen=True):
    """Replace the slice (PUT), if nobody changed it in the meantime."""

    present: StoredSlice
    spec: ResourceSliceSpec


class DeleteSlice(Struct, frozen=True):
    """Delete the slice (DELETE), if nobody changed it in the meantime."""

    present: StoredSlice


SliceChange = CreateSlice | UpdateSlice | DeleteSlice


class Problem(Struct, frozen=True):
    """A part of a device that is not valid in the API, so that it was left out of the slice; the rest was published.

    `subject` is the field, `found` the invalid text, `action` what was done and what a person can do. `kind` says what has the
    name `device`, if it is no device: a counter set, a slice, a feature gate, or a backend. `reason` is that of the Event.
    """

    device: DeviceName
    subject: str
    found: str
    action: str
    kind: str = "device"
    reason: str = DEVICE_ATTRIBUTE_DROPPED

    def __str__(self) -> str:
        return f"{self.kind} {self.device}: {self.subject}: {self.found}; {self.action}"
