# SPDX-License-Identifier: Apache-2.0
"""The interface to the API server: what the driver asks, and the errors that it can get.

`dra_driver.kube.http` implements it. The tests of `tests/contract` run it against a real kube-apiserver and against
`dra_driver.testing.fake_api`. The rest of the driver sees no API version, no HTTP status code and no JSON.
"""

from collections.abc import Iterator, Mapping, Sequence
from threading import Event
from typing import Literal, Protocol

from msgspec import Struct

from dra_driver.errors import Permanent, Temporary
from dra_driver.model.api.resource_claim import AllocatedDeviceStatus, DeviceClass
from dra_driver.model.api.resource_slice import ResourceSliceSpec
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.ids import PoolName
from dra_driver.model.own_node import NodeCondition, OwnNode
from dra_driver.model.slices import SliceChange, SliceHolder, StoredSlice


class NotFound(Permanent):
    """The object does not exist (404, and the server serves its resource)."""


class Invalid(Permanent):
    """The API server refused the object's content (400, 422) or the action (403)."""


class Forbidden(Invalid):
    """A right is missing, or an admission policy forbids the action (403)."""


class Conflict(Temporary):
    """Somebody else changed or created the object in the meantime (409): read it again, then decide again."""


class NameTaken(Conflict):
    """An object of this name exists already (409 AlreadyExists). It may be another driver's, which our lists do not show."""

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class Expired(Temporary):
    """The resourceVersion of a watch or a list is too old (410): list again from the start."""


class Unreachable(Temporary):
    """No connection could be made: any other request would fail too."""


class NotServed(Temporary):
    """This cluster serves no version of resource.k8s.io that the driver speaks."""


class TooLarge(Permanent):
    """The answer is larger than this program reads into memory."""


class Malformed(Permanent):
    """The object cannot be decoded. `resource_version` is the object's own, as far as it could be found; else empty."""

    def __init__(self, message: str, *, resource_version: str = "") -> None:
        super().__init__(message)
        self.resource_version = resource_version


OF_THE_OBJECT = (Malformed, TooLarge)
"""Errors that concern one object only: a request for another object may succeed."""

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


class SliceEvent(Struct, frozen=True):
    """One change that a watch reports. A "BOOKMARK" has no slice, only a newer resourceVersion."""

    type: EventType
    resource_version: str
    slice: StoredSlice | None


class SliceList(Struct, frozen=True):
    """All slices of this driver on this node. A watch from `resource_version` reports every later change."""

    resource_version: str
    slices: tuple[StoredSlice, ...]


class ClaimFound(Struct, frozen=True):
    """The claim of one namespace and name, or None. A watch from `resource_version` reports every later change."""

    resource_version: str
    claim: Claim | None


class ClaimEvent(Struct, frozen=True):
    """One change of one claim. With "DELETED" `claim` is its last state; a "BOOKMARK" has no claim."""

    type: EventType
    resource_version: str
    claim: Claim | None


class NodeEvent(Struct, frozen=True):
    """An Event on the Node object. `reason` is CamelCase; the first 1024 bytes of `message` are sent."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class KubeApi(Protocol):
    """The API server as one driver on one node uses it. A method raises subclasses of DriverError only, at its deadline at the latest."""

    def get_claim(self, ref: ClaimRef) -> Claim:
        """The claim of this namespace and name, whatever its UID. Raises NotFound, and Malformed if not even its devices can be read."""

    def find_claim(self, ref: ClaimRef) -> ClaimFound:
        """Return the claim, and the resourceVersion for `watch_claim`. If the claim does not exist, `claim` is None."""

    def watch_claim(
        self, ref: ClaimRef, resource_version: str, stop: Event, *, seconds: int | None = None
    ) -> Iterator[ClaimEvent]:
        """Changes of the claim of this namespace and name, until the server ends the watch or `stop` is set. Raises Expired.

        The server ends the watch after `seconds`; by default after some minutes.
        """

    def report_devices(
        self, ref: ClaimRef, devices: Sequence[AllocatedDeviceStatus], *, part: str = ""
    ) -> None:
        """Make `devices` the entries of this driver in the claim's status.devices. Each `part` of the driver has entries of its own; the
        API server joins those of the same device.

        An entry that this driver wrote before and that is not among them is removed. Entries of others stay as they are. A server
        without this field ignores them. Raises NotFound, Forbidden, and Invalid, for example if the claim has another UID, or a device
        is not allocated to it.
        """

    def list_slices(self) -> SliceList:
        """This driver's slices of this node."""

    def watch_slices(self, resource_version: str, stop: Event) -> Iterator[SliceEvent]:
        """Changes since `resource_version` until the server ends the watch or `stop` is set. Raises Expired."""

    def apply_slice_change(self, change: SliceChange) -> StoredSlice | None:
        """Write one change; returns what the server stored (None after a deletion). Raises Conflict, NameTaken, Invalid, NotFound."""

    def try_slice(self, name: str, spec: ResourceSliceSpec) -> ResourceSliceSpec:
        """Return what the server would store for a new slice of this name. It stores nothing (a dry run). Raises NameTaken, Invalid."""

    def slice_holder(self, name: str) -> SliceHolder:
        """The driver, node and pool of the slice of this name, which may be another driver's or node's. Raises NotFound."""

    def allocated_claims(self, pool: PoolName) -> tuple[Claim, ...]:
        """Claims whose `status.allocation` names a device of this driver and pool. One paged list of all claims.

        A claim whose parameters cannot be read is included, without these parameters.
        """

    def device_classes(self) -> tuple[DeviceClass, ...]:
        """The DeviceClasses of the cluster. One paged list; a class that cannot be read is left out. Raises NotServed, Forbidden."""

    def node_labels(self) -> Mapping[str, str]:
        """The labels of this node's Node object, at most a minute old. Read together with the kubelet's version. Raises NotFound."""

    def serves_dra(self) -> None:
        """Return if the API server serves a version of resource.k8s.io that the driver speaks. Raises NotServed if not; the answer yes is kept
        until a request finds it wrong.
        """

    def kubelet_version(self) -> str:
        """The kubelet's version as the Node object has it, for example "v1.37.1"; "" until it could be read once.

        Read again after a minute, because a kubelet can be updated in place.
        """

    def server_version(self) -> str:
        """The version of the API server that answers, for example "v1.37.1"; "" if it names none."""

    def emit_event(self, event: NodeEvent) -> None:
        """Write an Event on the Node object. A failure raises; the caller logs it and goes on."""


class NodeApi(Protocol):
    """The driver's own Node at the API server. Only what the admin chose is written, and only with the rights for it.

    A method raises subclasses of DriverError only. Writes raise NotFound, Forbidden, Invalid (the Node has another UID), and Conflict:
    somebody else wrote a label, the condition or a taint meanwhile.
    """

    def read(self) -> OwnNode:
        """Return the Node as it is now."""

    def apply_labels(self, labels: Mapping[str, str], uid: str) -> None:
        """Make these the labels of this driver. Those that it applied before and that are not among them are removed."""

    def apply_condition(self, condition: NodeCondition | None, uid: str) -> None:
        """Write the driver's condition, or remove it."""

    def remove_taint(self, key: str) -> bool:
        """Remove all taints with this key. Returns False if the Node has none."""
