# SPDX-License-Identifier: Apache-2.0
"""What happened, as values: services tell it, logs and metrics hear it, `ignore` hears nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dra_driver.model.claim import ClaimRef
from dra_driver.model.slices import Problem


@dataclass(frozen=True, slots=True)
class ClaimPrepared:
    """One claim of a NodePrepareResources call; `error` is empty when it succeeded."""

    claim: ClaimRef
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class ClaimUnprepared:
    """One claim of a NodeUnprepareResources call; `error` is empty when it succeeded, also when its devices stay held."""

    claim: ClaimRef
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class WorkEnded:
    """Work on a claim's devices that outlived its call came to its end; `error` is empty when it succeeded."""

    claim: ClaimRef
    error: str = ""


@dataclass(frozen=True, slots=True)
class DevicesHeld:
    """A claim is needed no more, and its devices go to nobody else yet; `reason` says why."""

    claim: ClaimRef
    devices: str
    reason: str


@dataclass(frozen=True, slots=True)
class StillHeld:
    """Devices have been held for so long that somebody should look."""

    claim: ClaimRef
    devices: str
    since: str
    reason: str


@dataclass(frozen=True, slots=True)
class DevicesFreed:
    """A claim that nobody unprepares, or whose devices were held, gave its devices back; `held_since` is empty if they were not."""

    claim: ClaimRef
    devices: str
    held_since: str = ""


@dataclass(frozen=True, slots=True)
class HeldCounted:
    """How many claims hold devices that nobody needs any more; told when it changes."""

    claims: int


@dataclass(frozen=True, slots=True)
class SecondOwnerRefused:
    """A claim was allocated a device that another claim owns on this node, and did not get it."""

    claim: ClaimRef
    owner: ClaimRef
    device: str
    reason: str


@dataclass(frozen=True, slots=True)
class CgroupsNotFound:
    """Nothing on this node can show that a pod has ended; devices stay held after their claims are released."""

    reason: str


@dataclass(frozen=True, slots=True)
class SliceWritten:
    """One write of a ResourceSlice that the API server accepted."""

    name: str
    action: Literal["create", "update", "delete"]


@dataclass(frozen=True, slots=True)
class SliceLost:
    """Somebody else deleted a slice of ours; it comes back after `delay_seconds`."""

    name: str
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class PublishFailed:
    """The slices could not be brought up to date; the next try comes after `delay_seconds`."""

    reason: str
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class Published:
    """The API server holds what this node has: `devices` devices in `slices` slices."""

    devices: int
    slices: int


@dataclass(frozen=True, slots=True)
class PublicationProblem:
    """Part of a device was left out of the slices."""

    problem: Problem


@dataclass(frozen=True, slots=True)
class FieldsDropped:
    """The API server stored something else than was written: it leaves out fields whose feature gate is off, for example."""

    name: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NameEvaded:
    """Somebody else has the name of a slice; `found` says who. Published is under `instead`."""

    name: str
    found: str
    instead: str


@dataclass(frozen=True, slots=True)
class DeviceVanished:
    """A device is no longer found; `kept` says that a claim still owns it, so it stays in the slices, unhealthy."""

    device: str
    kept: bool


@dataclass(frozen=True, slots=True)
class Recovered:
    """State, CDI files and the kubelet's view were brought to agree; counts of what was done."""

    rewritten: int
    released: int
    removed_files: int


@dataclass(frozen=True, slots=True)
class Leading:
    """This process publishes and sweeps for its node from now on, or stands by while the one in `leader` does."""

    leads: bool
    leader: str = ""


@dataclass(frozen=True, slots=True)
class ObjectUnreadable:
    """An object of the API server that cannot be read, as a whole or in part; told once for each object. `name` says which."""

    resource: str
    name: str
    found: str


@dataclass(frozen=True, slots=True)
class ThreadFailed:
    """A long-lived thread met an error that nobody foresaw; it goes on after `delay_seconds`, or not at all where that is 0."""

    thread: str
    error: str
    delay_seconds: float


DriverEvent = (
    ClaimPrepared
    | ClaimUnprepared
    | WorkEnded
    | DevicesHeld
    | StillHeld
    | DevicesFreed
    | HeldCounted
    | SecondOwnerRefused
    | CgroupsNotFound
    | SliceWritten
    | SliceLost
    | PublishFailed
    | Published
    | PublicationProblem
    | FieldsDropped
    | NameEvaded
    | DeviceVanished
    | Recovered
    | Leading
    | ObjectUnreadable
    | ThreadFailed
)

Observer = Callable[[DriverEvent], None]


def ignore(_event: DriverEvent) -> None:
    """Hear nothing."""
