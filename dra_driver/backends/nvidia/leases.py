# SPDX-License-Identifier: Apache-2.0
"""Set up NVIDIA devices for claims, put them back, and see whether something is left on them.

A device without configuration needs no call: its container edits come from the facts of the last look. Nothing is remembered that a
restart could lose: the lease has the configuration, and the hardware its modes. Only which devices are leased by this process is kept,
because the processes on them need not be asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from dra_driver.backends.nvidia.clean import computing, left_on, over_floor
from dra_driver.backends.nvidia.config import time_slice
from dra_driver.backends.nvidia.door import Hardware
from dra_driver.backends.nvidia.facts import Gpu, Installation, MigDevice, Node, Process
from dra_driver.backends.nvidia.modes import put_back, take_turns
from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.ids import ClaimUid, DeviceName, ShareId
from dra_driver.model.lease import InUse, Lease

IDLE_BYTES = 64 * 2**20
_Key = tuple[DeviceName, ClaimUid, ShareId]


@dataclass(frozen=True, slots=True)
class Place:
    """The GPU of a device, and the MIG device that it is, if it is one."""

    gpu: Gpu
    mig: MigDevice | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look found: the facts, and the devices that they are, by name."""

    node: Node
    uuids: Mapping[DeviceName, str]

    def places(self) -> Mapping[DeviceName, Place]:
        """The hardware behind each device."""
        by_uuid = {gpu.uuid: Place(gpu) for gpu in self.node.gpus}
        for gpu in self.node.gpus:
            by_uuid |= {one.uuid: Place(gpu, one) for one in (gpu.mig.devices if gpu.mig else ())}
        return {name: by_uuid[uuid] for name, uuid in self.uuids.items() if uuid in by_uuid}


class Edits(Protocol):
    """What a container gets for a device."""

    def __call__(
        self, installation: Installation, gpu: Gpu, mig: MigDevice | None, /
    ) -> ContainerEdits:
        """Return the container edits for a GPU, or for a MIG device of it. Raises DriverError."""


class Leases:
    """Works on leases. `look` looks at the hardware; `seen` is told of every look, also of those for a scan."""

    def __init__(
        self,
        hardware: Hardware,
        *,
        look: Callable[[], Seen],
        edits: Edits,
        idle_bytes: int = IDLE_BYTES,
    ) -> None:
        self._hardware = hardware
        self._look = look
        self._edits = edits
        self._idle_bytes = idle_bytes
        self._mutex = Lock()
        self._leased: set[_Key] = set()
        self._seen: Seen | None = None

    def configure(self, lease: Lease) -> ContainerEdits:
        """Set what the configuration of a lease asks for. Raises Temporary or Permanent."""
        try:
            interval = time_slice(lease.config.value)
        except ValueError as error:
            raise Permanent(
                f"configuration of device {lease.device} refused (request: {lease.request}): {error}"
            ) from None
        place = self._place(lease.device)
        if place is None:
            raise Temporary(
                f"device {lease.device} is not found any more; `dra-driver devices` on its node shows what is there"
            )
        edits = self._edits(self._last().node.installation, place.gpu, place.mig)
        if lease.admin_access:
            return edits
        with self._mutex:
            self._leased.add(_key(lease))
        if interval is not None and place.mig is None and not lease.may_run:
            take_turns(self._hardware, place.gpu, interval)
        return edits

    def reset(self, lease: Lease) -> None:
        """Put back what the lease may have set. Raises Temporary while that is not possible: then the device stays held."""
        if lease.is_alone and _may_have_set(lease):
            self._put_back(lease.device)
        with self._mutex:
            self._leased.discard(_key(lease))

    def in_use(self, device: DeviceName) -> InUse:
        """Whether a process computes on the device. A desktop on it is no use."""
        try:
            place = self._place(device)
            if place is None:
                return InUse.CANNOT_TELL
            uuid = place.gpu.uuid if place.mig is None else place.mig.uuid
            found = computing(self._hardware.processes(uuid))
        except DriverError:
            return InUse.CANNOT_TELL
        return InUse.YES if found else InUse.NO

    def leased(self) -> frozenset[DeviceName]:
        """The devices that this process has set up. Ask before a look: what that look finds on them is theirs."""
        with self._mutex:
            return frozenset(device for device, _, _ in self._leased)

    def seen(self, seen: Seen, leased: frozenset[DeviceName] = frozenset()) -> Mapping[str, str]:
        """Remember a look. Returns what is left on devices that are not `leased`, as a sentence by the UUID of the device."""
        with self._mutex:
            self._seen = seen
        found: dict[str, str] = {}
        asked: dict[str, tuple[Process, ...] | None] = {}
        for name, place in seen.places().items():
            gpu = place.gpu
            if name in leased or gpu.problem or not over_floor(gpu, self._idle_bytes):
                continue
            if gpu.uuid not in asked:
                asked[gpu.uuid] = self._processes(gpu)
            processes = asked[gpu.uuid]
            if processes is None:
                continue
            if sentence := left_on(gpu, processes, self._idle_bytes, place.mig):
                found[seen.uuids[name]] = sentence
        return found

    def _processes(self, gpu: Gpu) -> tuple[Process, ...] | None:
        try:
            return self._hardware.processes(gpu.uuid)
        except DriverError:
            return None  # whoever uses the memory, nothing says that it is no desktop

    def _put_back(self, device: DeviceName) -> None:
        node = self._last().node
        place = self._place(device)
        if place is not None and place.mig is None:
            put_back(self._hardware, place.gpu)
        elif node.problem and node.installation.kernel_version:
            # The kernel driver has the modes as long as it is loaded.
            raise Temporary(
                f"the modes of device {device} cannot be put back: {node.problem}; the driver tries again"
            )

    def _place(self, device: DeviceName) -> Place | None:
        return self._last().places().get(device)

    def _last(self) -> Seen:
        with self._mutex:
            seen = self._seen
        return self._look() if seen is None else seen


def _key(lease: Lease) -> _Key:
    return lease.device, lease.claim_uid, lease.share_id


def _may_have_set(lease: Lease) -> bool:
    """Whether this lease, or another one that shared its device, may have set a mode. A lease from a lost state has no request."""
    if lease.share_id or not lease.request:
        return True
    try:
        return time_slice(lease.config.value) is not None
    except ValueError:
        return False  # it was refused
