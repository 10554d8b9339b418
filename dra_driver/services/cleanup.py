# SPDX-License-Identifier: Apache-2.0
"""Remove from a node everything that the driver left there (`dra-driver cleanup`).

`survey` finds what the driver left and changes nothing. The command then decides. `clean` removes sockets, ResourceSlices, CDI
files, state and locks, in this order. The state lists the prepared claims, so it is removed late: an interrupted cleanup can be
started again.

A cleanup never runs beside a running driver: the driver would write slices and sockets again, and go on writing into removed
files. If claims are prepared, a cleanup runs only if the admin accepts the consequences (`FORCED`).

A held claim is needed by no pod any more, and only its devices may still be in use. So it counts until the proof of `dra-driver
release` is there: an admin's word, another boot, or pods without processes. No driver has to run for that.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct

from dra_driver.errors import DriverError
from dra_driver.kube.base import KubeApi, NodeApi
from dra_driver.model.ids import ClaimUid
from dra_driver.model.leftovers import Leftover, LeftoverKind, Others
from dra_driver.model.names import DEVICES_READY_CONDITION
from dra_driver.model.own_node import OwnNode
from dra_driver.model.slices import DeleteSlice, StoredSlice
from dra_driver.model.state import PodDevice, PreparedClaim, Unknown
from dra_driver.planning.prepare import NodePlace
from dra_driver.services.release import AskPodDevices, is_of

FORCED = (
    "pods that use these devices go on running, but no container of theirs can be started or restarted: its CDI device is gone",
    "such a pod stays in Terminating when it is deleted, until a driver of this name runs on this node again",
    "a driver that starts here again does not know who owns these devices until its first sweep; until then a second pod may get one",
)
FORCED_HELD = (
    "no driver ever learns of a held claim again: if containers that used its devices still run, the next pod gets the same devices, "
    "and two pods use one device"
)

_NOTHING = OwnNode(uid="")
_ON_NODE = (LeftoverKind.LABELS, LeftoverKind.CONDITION)


class Files(Protocol):
    """The files of this driver on the node's disk."""

    def at_work(self) -> tuple[str, ...]:
        """Describe the driver processes that run now, one sentence each."""

    def claims(self) -> tuple[PreparedClaim, ...]:
        """Return the claims in the state file. Raises DriverError."""

    def leftovers(self) -> tuple[Leftover, ...]:
        """Return the files of this driver, in the order of removal."""

    def others(self) -> tuple[Others, ...]:
        """Return the files in the same directories that this driver did not make."""

    def remove(self, leftover: Leftover, /) -> str:
        """Remove one file. If the file stays and that is no failure, returns the reason. Raises DriverError."""

    def alone(self) -> AbstractContextManager[None]:
        """Keep drivers from starting, during a `with` block. Raises DriverError."""


class CleanupParts(Struct, frozen=True):
    """What a cleanup needs. `kube` and `node` make the client of the API server, or raise DriverError. `still_used` returns why the
    devices of a held claim cannot be released, or an empty text, or raises DriverError.
    """

    place: NodePlace
    files: Files
    kube: Callable[[], KubeApi]
    pod_devices: AskPodDevices
    still_used: Callable[[PreparedClaim], str]
    keep_slices: bool = False
    node: Callable[[], NodeApi] | None = None


class Survey(Struct, frozen=True):
    """What the survey found. `claims_unknown` and `slices_unknown` are the errors if claims or slices could not be read, or empty.

    `held` says for each held claim why its devices may still be in use; an empty text if it is proved that they are not.
    """

    at_work: tuple[str, ...]
    claims: tuple[PreparedClaim, ...]
    claims_unknown: str
    pod_devices: tuple[PodDevice, ...]
    files: tuple[Leftover, ...]
    slices: tuple[StoredSlice, ...]
    slices_unknown: str
    others: tuple[Others, ...]
    own_node: OwnNode = _NOTHING
    held: Mapping[ClaimUid, str] = MappingProxyType({})

    @property
    def leftovers(self) -> tuple[Leftover, ...]:
        """Everything that a cleanup would remove, in this order."""
        slices = [Leftover(LeftoverKind.SLICE, stored.name) for stored in self.slices]
        order = list(LeftoverKind)
        return tuple(
            sorted(
                [*self.files, *slices, *self._on_node()],
                key=lambda leftover: order.index(leftover.kind),
            )
        )

    def _on_node(self) -> Iterator[Leftover]:
        if self.own_node.owned:
            yield Leftover(LeftoverKind.LABELS, ", ".join(sorted(self.own_node.owned)))
        if self.own_node.condition is not None:
            yield Leftover(LeftoverKind.CONDITION, DEVICES_READY_CONDITION)

    @property
    def used(self) -> tuple[str, ...]:
        """Why a pod may still need what a cleanup would remove, one sentence each. `--force` overrides these reasons."""
        return (
            *([self.claims_unknown] if self.claims_unknown else []),
            *(self._counts(claim) for claim in self.claims if self.held.get(claim.ref.uid) != ""),
            *(
                f"the kubelet says that a pod uses device {device.device} through claim {device.namespace}/{device.claim_name}"
                for device in self.pod_devices
            ),
        )

    @property
    def unused(self) -> tuple[PreparedClaim, ...]:
        """The held claims that do not count: it is proved that no process uses their devices."""
        return tuple(claim for claim in self.claims if self.held.get(claim.ref.uid) == "")

    @property
    def needed(self) -> tuple[PreparedClaim, ...]:
        """The claims that only a running driver can release, after their pods have ended."""
        return tuple(claim for claim in self.claims if claim.held is None)

    @property
    def in_doubt(self) -> tuple[PreparedClaim, ...]:
        """The held claims whose devices may still be in use."""
        return tuple(claim for claim in self.claims if self.held.get(claim.ref.uid))

    def _counts(self, claim: PreparedClaim) -> str:
        if claim.held is None:
            return f"claim {claim.ref} is {claim.phase.value} with {names_of(claim)}"
        why = self.held[claim.ref.uid]
        return f"claim {claim.ref} is held since {claim.held.since} with {names_of(claim)}: {why}"


class Outcome(Struct, frozen=True):
    """The result for one leftover. `stays` says why it still exists, and `failed` whether that is an error."""

    leftover: Leftover
    stays: str = ""
    failed: bool = False


def survey(parts: CleanupParts) -> Survey:
    """Find everything that the driver left on the node, without changing anything."""
    claims: tuple[PreparedClaim, ...] = ()
    claims_unknown = ""
    try:
        claims = parts.files.claims()
    except DriverError as error:
        claims_unknown = f"which claims are prepared is not known: {error}"
    slices, slices_unknown = _slices(parts)
    held = {claim.ref.uid: _in_use(parts, claim) for claim in claims if claim.held is not None}
    # If the kubelet names a claim whose row does not count, the pod counts.
    counting = tuple(claim for claim in claims if held.get(claim.ref.uid) != "")
    return Survey(
        at_work=parts.files.at_work(),
        claims=claims,
        claims_unknown=claims_unknown,
        pod_devices=_pod_devices(parts, counting),
        files=parts.files.leftovers(),
        slices=slices,
        slices_unknown=slices_unknown,
        others=parts.files.others(),
        own_node=_own_node(parts),
        held=held,
    )


def clean(parts: CleanupParts, found: Survey) -> Iterator[Outcome]:
    """Remove what the survey found, one by one, also after a failure. Raises DriverError if a driver has started since."""
    with parts.files.alone():
        for leftover in found.leftovers:
            try:
                if leftover.kind is LeftoverKind.SLICE:
                    yield _delete(parts, found, leftover)
                elif parts.node and leftover.kind in _ON_NODE:
                    yield _take_off(parts.node(), found, leftover)
                else:
                    yield Outcome(leftover, parts.files.remove(leftover))
            except DriverError as error:
                yield Outcome(leftover, str(error), failed=True)


def _in_use(parts: CleanupParts, claim: PreparedClaim) -> str:
    try:
        return parts.still_used(claim)
    except DriverError as error:
        return str(error)


def _slices(parts: CleanupParts) -> tuple[tuple[StoredSlice, ...], str]:
    if parts.keep_slices:
        return (), ""
    try:
        return parts.kube().list_slices().slices, ""
    except DriverError as error:
        return (), str(error)


def _own_node(parts: CleanupParts) -> OwnNode:
    """The Node. If it cannot be read, the slices cannot either, which is told."""
    if parts.keep_slices or parts.node is None:
        return _NOTHING
    try:
        return parts.node().read()
    except DriverError:
        return _NOTHING


def _take_off(node: NodeApi, found: Survey, leftover: Leftover) -> Outcome:
    if leftover.kind is LeftoverKind.LABELS:
        node.apply_labels({}, found.own_node.uid)
    else:
        node.apply_condition(None, found.own_node.uid)
    return Outcome(leftover)


def _delete(parts: CleanupParts, found: Survey, leftover: Leftover) -> Outcome:
    (stored,) = (stored for stored in found.slices if stored.name == leftover.name)
    parts.kube().apply_slice_change(DeleteSlice(stored))
    return Outcome(leftover)


def _pod_devices(parts: CleanupParts, claims: tuple[PreparedClaim, ...]) -> tuple[PodDevice, ...]:
    """Return the devices that the kubelet lists for claims other than these."""
    found = parts.pod_devices()
    if isinstance(found, Unknown):
        return ()
    driver = parts.place.driver
    return tuple(
        sorted(
            (
                device
                for device in found
                if device.driver == driver
                and not any(is_of(device, claim.ref, driver) for claim in claims)
            ),
            key=lambda device: (device.namespace, device.claim_name, device.device),
        )
    )


def names_of(claim: PreparedClaim) -> str:
    """Return the names of the claim's devices, for a sentence."""
    return ", ".join(device.device for device in claim.devices) or "no device"
