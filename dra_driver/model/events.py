# SPDX-License-Identifier: Apache-2.0
"""Events of the driver, as values. Services report them to an observer; the log and the metrics are observers."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from dra_driver.model.claim import ClaimRef
from dra_driver.model.slices import Problem


class ClaimPrepared(Struct, frozen=True):
    """The end of NodePrepareResources for one claim; `error` is empty if it succeeded."""

    claim: ClaimRef
    seconds: float
    error: str = ""


class ClaimUnprepared(Struct, frozen=True):
    """The end of NodeUnprepareResources for one claim; `error` is empty if it succeeded. The devices may still be held."""

    claim: ClaimRef
    seconds: float
    error: str = ""


class WorkEnded(Struct, frozen=True):
    """Work on a claim's devices ended after its call had been answered; `error` is empty if the work succeeded."""

    claim: ClaimRef
    error: str = ""


class DevicesHeld(Struct, frozen=True):
    """A claim is not needed any more, but its devices are held: no other claim gets them yet. `reason` says why."""

    claim: ClaimRef
    devices: str
    reason: str


class StillHeld(Struct, frozen=True):
    """Devices have been held so long that an admin should look at the node."""

    claim: ClaimRef
    devices: str
    since: str
    reason: str


class DevicesFreed(Struct, frozen=True):
    """The devices of a claim became free outside an unprepare call. `held_since` is empty if they were not held before."""

    claim: ClaimRef
    devices: str
    held_since: str = ""


class HeldCounted(Struct, frozen=True):
    """The number of claims whose devices are held; reported when it changes."""

    claims: int


class SecondOwnerRefused(Struct, frozen=True):
    """A claim was refused: the scheduler allocated a device to it that another claim owns on this node."""

    claim: ClaimRef
    owner: ClaimRef
    device: str
    reason: str


class UnitsAllocated(Struct, frozen=True):
    """The end of an Allocate call of the device plugin API; `error` is empty if it succeeded. `units` are the IDs that the kubelet chose."""

    row: ClaimRef
    units: tuple[str, ...]
    seconds: float
    error: str = ""


class UnitsIdentified(Struct, frozen=True):
    """The kubelet's checkpoint has told which pod has the units of an Allocate call."""

    row: ClaimRef
    pod: str
    container: str


class PathChosen(Struct, frozen=True):
    """Through which API the driver offers its devices from now on ("dra", "device-plugin"), and why."""

    path: str
    reason: str


class ResourceProblem(Struct, frozen=True):
    """A part of the configuration of extended resources that the driver cannot use; everything else goes on."""

    where: str
    reason: str
    next_step: str


class CgroupsNotFound(Struct, frozen=True):
    """The driver cannot find the cgroups of pods. So it can never prove that a pod has ended, and devices stay held."""

    reason: str


class DeviceStatusForbidden(Struct, frozen=True):
    """The API server does not let the driver write status.devices of a claim. Reported once, until a write succeeds."""

    claim: ClaimRef
    reason: str


class NodeLabelsWritten(Struct, frozen=True):
    """The driver wrote labels of its Node, or the feature file with them. It now has `labels` of them."""

    labels: int
    changed: tuple[str, ...]
    removed: tuple[str, ...]


class NodeConditionWritten(Struct, frozen=True):
    """The condition DevicesReady of the Node says something else from now on."""

    ready: bool
    reason: str
    message: str


class StartupTaintRemoved(Struct, frozen=True):
    """The devices are ready, so the driver took the taint off its Node that kept pods away until then."""

    taint: str


class NodeWriteForbidden(Struct, frozen=True):
    """The API server does not let the driver write `what` of its Node. Reported once, until a write succeeds."""

    what: str
    reason: str


class SliceWritten(Struct, frozen=True):
    """The API server accepted one write of a ResourceSlice."""

    name: str
    action: Literal["create", "update", "delete"]


class SliceLost(Struct, frozen=True):
    """Somebody else deleted a slice of this driver. The driver writes it again after `delay_seconds`."""

    name: str
    delay_seconds: float


class PublishFailed(Struct, frozen=True):
    """The slices could not be updated. The driver tries again after `delay_seconds`."""

    reason: str
    delay_seconds: float


class Published(Struct, frozen=True):
    """The slices at the API server are up to date: `devices` devices in `slices` slices."""

    devices: int
    slices: int


class PublicationProblem(Struct, frozen=True):
    """Part of a device was left out of the slices."""

    problem: Problem


class FieldsDropped(Struct, frozen=True):
    """The API server stored something else than the driver wrote. For example, it drops a field whose feature gate is off."""

    name: str
    fields: tuple[str, ...]


class NameEvaded(Struct, frozen=True):
    """An object of somebody else has the name of a slice; `found` describes it. The driver uses the name `instead`."""

    name: str
    found: str
    instead: str


class DeviceVanished(Struct, frozen=True):
    """The scan does not find a device any more. `kept`: a claim still owns it, so it stays in its slice, with a taint."""

    device: str
    kept: bool


HealthWord = Literal["healthy", "unhealthy", "unknown", "gone", "renamed", ""]


class DeviceHealthChanged(Struct, frozen=True):
    """A scan found another health of a device than the scan before, or not the device any more ("gone"), or it under another name
    ("renamed"). `before` is empty for a device that is new. `lost` has the UUIDs of devices that are gone
    and whose name belongs to another device now.
    """

    device: str
    status: HealthWord
    message: str = ""
    before: HealthWord = ""
    lost: str = ""


class DeviceErrors(Struct, frozen=True):
    """The hardware of a device reported an error of this name `count` times since the scan before."""

    device: str
    error: str
    count: int


class DeviceNotClean(Struct, frozen=True):
    """No claim has the device, and something uses it: `found` says what. From now on it has a taint."""

    device: str
    found: str


class Recovered(Struct, frozen=True):
    """The recovery made the state and the CDI files agree; the fields count what it did."""

    rewritten: int
    released: int
    removed_files: int


class Leading(Struct, frozen=True):
    """This process became the leader, or it stands by and the process `leader` leads."""

    leads: bool
    leader: str = ""


class ObjectUnreadable(Struct, frozen=True):
    """An object of the API server cannot be read, or only in part. Reported once for each object; `name` identifies it."""

    resource: str
    name: str
    found: str


class ApiAnswered(Struct, frozen=True):
    """The end of one attempt at a request to the API server. `code` is the HTTP status, or "unreachable" if there was no answer."""

    verb: str
    resource: str
    code: str


class ThreadFailed(Struct, frozen=True):
    """A long-lived thread failed with an unexpected error. It runs again after `delay_seconds`; 0 means that it does not."""

    thread: str
    error: str
    delay_seconds: float


OwnershipEvent = (
    ClaimPrepared
    | ClaimUnprepared
    | WorkEnded
    | DevicesHeld
    | StillHeld
    | DevicesFreed
    | HeldCounted
    | SecondOwnerRefused
    | CgroupsNotFound
    | DeviceStatusForbidden
)
PluginEvent = UnitsAllocated | UnitsIdentified | PathChosen | ResourceProblem
OwnNodeEvent = NodeLabelsWritten | NodeConditionWritten | StartupTaintRemoved | NodeWriteForbidden
SliceEvent = (
    SliceWritten
    | SliceLost
    | PublishFailed
    | Published
    | PublicationProblem
    | FieldsDropped
    | NameEvaded
)
DeviceEvent = DeviceVanished | DeviceNotClean | DeviceHealthChanged | DeviceErrors
ProcessEvent = Recovered | Leading | ObjectUnreadable | ApiAnswered | ThreadFailed
DriverEvent = OwnershipEvent | PluginEvent | OwnNodeEvent | SliceEvent | DeviceEvent | ProcessEvent

Observer = Callable[[DriverEvent], None]


def ignore(_event: DriverEvent) -> None:
    """An observer that does nothing, for callers without log and metrics."""
