# SPDX-License-Identifier: Apache-2.0
"""Events of the driver, as values. Services report them to an observer; the log and the metrics are observers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dra_driver.model.claim import ClaimRef
from dra_driver.model.slices import Problem


@dataclass(frozen=True, slots=True)
class ClaimPrepared:
    """The end of NodePrepareResources for one claim; `error` is empty if it succeeded."""

    claim: ClaimRef
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class ClaimUnprepared:
    """The end of NodeUnprepareResources for one claim; `error` is empty if it succeeded. The devices may still be held."""

    claim: ClaimRef
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class WorkEnded:
    """Work on a claim's devices ended after its call had been answered; `error` is empty if the work succeeded."""

    claim: ClaimRef
    error: str = ""


@dataclass(frozen=True, slots=True)
class DevicesHeld:
    """A claim is not needed any more, but its devices are held: no other claim gets them yet. `reason` says why."""

    claim: ClaimRef
    devices: str
    reason: str


@dataclass(frozen=True, slots=True)
class StillHeld:
    """Devices have been held so long that an admin should look at the node."""

    claim: ClaimRef
    devices: str
    since: str
    reason: str


@dataclass(frozen=True, slots=True)
class DevicesFreed:
    """The devices of a claim became free outside an unprepare call. `held_since` is empty if they were not held before."""

    claim: ClaimRef
    devices: str
    held_since: str = ""


@dataclass(frozen=True, slots=True)
class HeldCounted:
    """The number of claims whose devices are held; reported when it changes."""

    claims: int


@dataclass(frozen=True, slots=True)
class SecondOwnerRefused:
    """A claim was refused: the scheduler allocated a device to it that another claim owns on this node."""

    claim: ClaimRef
    owner: ClaimRef
    device: str
    reason: str


@dataclass(frozen=True, slots=True)
class UnitsAllocated:
    """The end of an Allocate call of the device plugin API; `error` is empty if it succeeded. `units` are the IDs that the kubelet chose."""

    row: ClaimRef
    units: tuple[str, ...]
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class UnitsIdentified:
    """The kubelet's checkpoint has told which pod has the units of an Allocate call."""

    row: ClaimRef
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class PathChosen:
    """Through which API the driver offers its devices from now on ("dra", "device-plugin"), and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class ResourceProblem:
    """A part of the configuration of extended resources that the driver cannot use; everything else goes on."""

    where: str
    reason: str
    next_step: str


@dataclass(frozen=True, slots=True)
class CgroupsNotFound:
    """The driver cannot find the cgroups of pods. So it can never prove that a pod has ended, and devices stay held."""

    reason: str


@dataclass(frozen=True, slots=True)
class DeviceStatusForbidden:
    """The API server does not let the driver write status.devices of a claim. Reported once, until a write succeeds."""

    claim: ClaimRef
    reason: str


@dataclass(frozen=True, slots=True)
class NodeLabelsWritten:
    """The driver wrote labels of its Node, or the feature file with them. It now has `labels` of them."""

    labels: int
    changed: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeConditionWritten:
    """The condition DevicesReady of the Node says something else from now on."""

    ready: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class StartupTaintRemoved:
    """The devices are ready, so the driver took the taint off its Node that kept pods away until then."""

    taint: str


@dataclass(frozen=True, slots=True)
class NodeWriteForbidden:
    """The API server does not let the driver write `what` of its Node. Reported once, until a write succeeds."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class SliceWritten:
    """The API server accepted one write of a ResourceSlice."""

    name: str
    action: Literal["create", "update", "delete"]


@dataclass(frozen=True, slots=True)
class SliceLost:
    """Somebody else deleted a slice of this driver. The driver writes it again after `delay_seconds`."""

    name: str
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """The slices could not be updated. The driver tries again after `delay_seconds`."""

    reason: str
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class Published:
    """The slices at the API server are up to date: `devices` devices in `slices` slices."""

    devices: int
    slices: int


@dataclass(frozen=True, slots=True)
class PublicationProblem:
    """Part of a device was left out of the slices."""

    problem: Problem


@dataclass(frozen=True, slots=True)
class FieldsDropped:
    """The API server stored something else than the driver wrote. For example, it drops a field whose feature gate is off."""

    name: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NameEvaded:
    """An object of somebody else has the name of a slice; `found` describes it. The driver uses the name `instead`."""

    name: str
    found: str
    instead: str


@dataclass(frozen=True, slots=True)
class DeviceVanished:
    """The scan does not find a device any more. `kept`: a claim still owns it, so it stays in its slice, with a taint."""

    device: str
    kept: bool


HealthWord = Literal["healthy", "unhealthy", "unknown", "gone", ""]


@dataclass(frozen=True, slots=True)
class DeviceHealthChanged:
    """A scan found another health of a device than the scan before. `before` is empty for a device that is new."""

    device: str
    status: HealthWord
    message: str = ""
    before: HealthWord = ""


@dataclass(frozen=True, slots=True)
class DeviceErrors:
    """The hardware of a device reported an error of this name `count` times since the scan before."""

    device: str
    error: str
    count: int


@dataclass(frozen=True, slots=True)
class DeviceNotClean:
    """No claim has the device, and something uses it: `found` says what. From now on it has a taint."""

    device: str
    found: str


@dataclass(frozen=True, slots=True)
class Recovered:
    """The recovery made the state and the CDI files agree; the fields count what it did."""

    rewritten: int
    released: int
    removed_files: int


@dataclass(frozen=True, slots=True)
class Leading:
    """This process became the leader, or it stands by and the process `leader` leads."""

    leads: bool
    leader: str = ""


@dataclass(frozen=True, slots=True)
class ObjectUnreadable:
    """An object of the API server cannot be read, or only in part. Reported once for each object; `name` identifies it."""

    resource: str
    name: str
    found: str


@dataclass(frozen=True, slots=True)
class ApiAnswered:
    """The end of one attempt at a request to the API server. `code` is the HTTP status, or "unreachable" if there was no answer."""

    verb: str
    resource: str
    code: str


@dataclass(frozen=True, slots=True)
class ThreadFailed:
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
