# SPDX-License-Identifier: Apache-2.0
"""Remove what a driver leaves on a node, when it shall not run there again.

First everything is looked at, then it is decided whether that may go, then it goes: sockets, ResourceSlices, CDI files,
state, locks. Whoever stops half-way can start again, since the state, which knows the prepared claims, goes late.

A running driver is never overridden: it would put slices and sockets back and go on writing into removed files. Prepared
claims can be, by somebody who knows what that breaks (`FORCED`).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from dra_driver.errors import DriverError
from dra_driver.kube.base import KubeApi
from dra_driver.model.leftovers import Kind, Leftover, Others
from dra_driver.model.slices import DeleteSlice, StoredSlice
from dra_driver.model.state import HeldDevice, PreparedClaim, Unknown
from dra_driver.planning.prepare import NodePlace
from dra_driver.services.release import HeldClaims, is_of

FORCED = (
    "pods that use these devices go on running, but no container of theirs can be started or restarted: its CDI device is gone",
    "such a pod stays in Terminating when it is deleted, until a driver of this name runs on this node again",
    "a driver that starts here again does not know who owns these devices until its first sweep; until then a second pod may get one",
)


class Files(Protocol):
    """This node's disk, as far as it concerns this driver."""

    def at_work(self) -> tuple[str, ...]:
        """Processes that run under the driver's name."""

    def claims(self) -> tuple[PreparedClaim, ...]:
        """What the state remembers. Raises DriverError."""

    def leftovers(self) -> tuple[Leftover, ...]:
        """What the driver left, in the order of removal."""

    def others(self) -> tuple[Others, ...]:
        """What else lies there."""

    def remove(self, leftover: Leftover, /) -> str:
        """Remove it; answers why it stays where that is no failure. Raises DriverError."""

    def alone(self) -> AbstractContextManager[None]:
        """No driver starts meanwhile. Raises DriverError."""


@dataclass(frozen=True, slots=True)
class CleanupParts:
    """What a cleanup works on. `kube` makes the client, and raises DriverError where there is none to be had."""

    place: NodePlace
    files: Files
    kube: Callable[[], KubeApi]
    held: HeldClaims
    keep_slices: bool = False


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found. Texts that end in `_unknown` say why something could not be looked at; empty: it was."""

    at_work: tuple[str, ...]
    claims: tuple[PreparedClaim, ...]
    claims_unknown: str
    held: tuple[HeldDevice, ...]
    files: tuple[Leftover, ...]
    slices: tuple[StoredSlice, ...]
    slices_unknown: str
    others: tuple[Others, ...]

    @property
    def leftovers(self) -> tuple[Leftover, ...]:
        """Everything that would go, in that order."""
        slices = [Leftover(Kind.SLICE, stored.name) for stored in self.slices]
        order = list(Kind)
        return tuple(
            sorted([*self.files, *slices], key=lambda leftover: order.index(leftover.kind))
        )

    @property
    def used(self) -> tuple[str, ...]:
        """Why somebody may still need what would go, one sentence each; `--force` overrides these."""
        return (
            *([self.claims_unknown] if self.claims_unknown else []),
            *(_prepared(claim) for claim in self.claims),
            *(
                f"a pod holds device {device.device} by claim {device.namespace}/{device.claim_name}, the kubelet says"
                for device in self.held
            ),
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one leftover: `stays` says why it is still there, `failed` whether that is an error."""

    leftover: Leftover
    stays: str = ""
    failed: bool = False


def survey(parts: CleanupParts) -> Survey:
    """Look at everything, change nothing."""
    claims: tuple[PreparedClaim, ...] = ()
    claims_unknown = ""
    try:
        claims = parts.files.claims()
    except DriverError as error:
        claims_unknown = f"which claims are prepared is not known: {error}"
    slices, slices_unknown = _slices(parts)
    return Survey(
        at_work=parts.files.at_work(),
        claims=claims,
        claims_unknown=claims_unknown,
        held=_held(parts, claims),
        files=parts.files.leftovers(),
        slices=slices,
        slices_unknown=slices_unknown,
        others=parts.files.others(),
    )


def clean(parts: CleanupParts, found: Survey) -> Iterator[Outcome]:
    """Remove what was found, one by one; what fails stops nothing but itself. Raises DriverError when a driver has started."""
    with parts.files.alone():
        for leftover in found.leftovers:
            try:
                if leftover.kind is Kind.SLICE:
                    yield _delete(parts, found, leftover)
                else:
                    yield Outcome(leftover, parts.files.remove(leftover))
            except DriverError as error:
                yield Outcome(leftover, str(error), failed=True)


def _slices(parts: CleanupParts) -> tuple[tuple[StoredSlice, ...], str]:
    if parts.keep_slices:
        return (), ""
    try:
        return parts.kube().list_slices().slices, ""
    except DriverError as error:
        return (), str(error)


def _delete(parts: CleanupParts, found: Survey, leftover: Leftover) -> Outcome:
    (stored,) = (stored for stored in found.slices if stored.name == leftover.name)
    parts.kube().apply_slice_change(DeleteSlice(stored))
    return Outcome(leftover)


def _held(parts: CleanupParts, claims: tuple[PreparedClaim, ...]) -> tuple[HeldDevice, ...]:
    """Devices that pods hold by claims which the state does not know."""
    held = parts.held()
    if isinstance(held, Unknown):
        return ()
    driver = parts.place.driver
    return tuple(
        sorted(
            (
                device
                for device in held
                if device.driver == driver
                and not any(is_of(device, claim.ref, driver) for claim in claims)
            ),
            key=lambda device: (device.namespace, device.claim_name, device.device),
        )
    )


def _prepared(claim: PreparedClaim) -> str:
    devices = ", ".join(device.device for device in claim.devices) or "no device"
    return f"claim {claim.ref} is {claim.phase.value} with {devices}"
