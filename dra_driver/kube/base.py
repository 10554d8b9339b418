# SPDX-License-Identifier: Apache-2.0
"""The door to the API server: what the driver asks of it, in the driver's own words.

Two implementations pass the same tests (`tests/contract`): `dra_driver.kube.http` against a real kube-apiserver and
against `dra_driver.testing.fake_api`. Behind this door stay API versions, HTTP status codes and JSON.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import Literal, Protocol

from dra_driver.errors import Permanent, Temporary
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.ids import PoolName
from dra_driver.model.slices import SliceChange, SliceHolder, StoredSlice


class NotFound(Permanent):
    """The object does not exist (404 with the group served)."""


class Invalid(Permanent):
    """The API server refused the object's content (400, 422) or the action (403)."""


class Conflict(Temporary):
    """Somebody changed or made the object meanwhile (409): read again, then decide again."""


class NameTaken(Conflict):
    """An object of this name exists already, perhaps one that our lists do not show (409 AlreadyExists)."""

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class Expired(Temporary):
    """The watch's resource version is gone (410): list again."""


class NotServed(Temporary):
    """This cluster serves no version of resource.k8s.io that the driver speaks."""


class TooLarge(Permanent):
    """The answer is larger than this program reads at once."""


class Malformed(Permanent):
    """An object that cannot be read: it holds what this program cannot decode. `resource_version` is what it says of itself."""

    def __init__(self, message: str, *, resource_version: str = "") -> None:
        super().__init__(message)
        self.resource_version = resource_version


OF_THE_OBJECT = (Malformed, TooLarge)
"""What one object alone is to blame for: the next one may well be answered."""

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True, slots=True)
class SliceEvent:
    """One change that a watch reports; a "BOOKMARK" only moves the resource version on and has no slice."""

    type: EventType
    resource_version: str
    slice: StoredSlice | None


@dataclass(frozen=True, slots=True)
class SliceList:
    """All slices of this driver on this node, as of `resource_version`."""

    resource_version: str
    slices: tuple[StoredSlice, ...]


@dataclass(frozen=True, slots=True)
class ClaimFound:
    """The claim of one namespace and name as of `resource_version`; None where there is none."""

    resource_version: str
    claim: Claim | None


@dataclass(frozen=True, slots=True)
class ClaimEvent:
    """One change of one claim; after "DELETED" `claim` is what it was last, and a "BOOKMARK" has none."""

    type: EventType
    resource_version: str
    claim: Claim | None


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An Event on the Node object. `reason` is CamelCase; `message` at most 1024 bytes are sent."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class KubeApi(Protocol):
    """The API server as one driver on one node uses it. Every method raises DriverError subclasses only, after its deadline at the latest."""

    def served_version(self) -> str:
        """The resource.k8s.io version in use ("v1", "v1beta2", "v1beta1"); asks once. Raises NotServed."""

    def get_claim(self, ref: ClaimRef) -> Claim:
        """The claim of this namespace and name, whatever its UID. Raises NotFound, and Malformed for one of which not even the devices can be read."""

    def find_claim(self, ref: ClaimRef) -> ClaimFound:
        """The same as of a version from which `watch_claim` goes on; a claim that does not exist is no error."""

    def watch_claim(
        self, ref: ClaimRef, resource_version: str, stop: Event
    ) -> Iterator[ClaimEvent]:
        """Changes of what has this namespace and name, until the server ends the watch or `stop` is set. Raises Expired."""

    def list_slices(self) -> SliceList:
        """This driver's slices of this node."""

    def watch_slices(self, resource_version: str, stop: Event) -> Iterator[SliceEvent]:
        """Changes since `resource_version` until the server ends the watch or `stop` is set. Raises Expired."""

    def apply_slice_change(self, change: SliceChange) -> StoredSlice | None:
        """Write one change; answers what the server stored (None after a deletion). Raises Conflict, NameTaken, Invalid, NotFound."""

    def slice_holder(self, name: str) -> SliceHolder:
        """Whose slice has this name, of whatever driver and node. Raises NotFound."""

    def allocated_claims(self, pool: PoolName) -> tuple[Claim, ...]:
        """Claims whose `status.allocation` names a device of this driver and pool. One paged list of all claims.

        A claim whose parameters cannot be read is among them, without those parameters.
        """

    def kubelet_version(self) -> str:
        """What the Node object says of its kubelet, for example "v1.37.1"; "" while it never could be read. Asked anew after a minute: kubelets are updated in place."""

    def emit_event(self, event: NodeEvent) -> None:
        """Report on the Node object. Best effort: a failure is the caller's to log."""
