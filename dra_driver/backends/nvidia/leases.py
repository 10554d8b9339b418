# SPDX-License-Identifier: Apache-2.0
"""Set up NVIDIA devices for claims, put them back, and see whether something is left on them.

A device without configuration needs no call: its container edits come from the facts of the last look. Nothing is remembered that a
restart could lose: the lease has the configuration, and the hardware its modes. Only which devices are leased by this process is kept,
because the processes on them need not be asked for.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from threading import Lock

from msgspec import Struct, structs
from msgspec.structs import replace

from dra_driver.backends.base import DEVICE_VARIABLE
from dra_driver.backends.nvidia.clean import computing, left_on, over_floor
from dra_driver.backends.nvidia.config import time_slice
from dra_driver.backends.nvidia.devices import inventory
from dra_driver.backends.nvidia.door import Hardware
from dra_driver.backends.nvidia.edits import edits_for
from dra_driver.backends.nvidia.facts import Gpu, Installation, MigDevice, Node, Process
from dra_driver.backends.nvidia.mig import has_graphics
from dra_driver.backends.nvidia.modes import put_back, take_turns
from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.ids import ClaimUid, DeviceName, ShareId
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import InUse, Lease

IDLE_BYTES = 64 * 2**20
_LOST = 15  # NVML's error of a GPU that fell off the bus: only a reset brings it back, without its modes
_Key = tuple[DeviceName, ClaimUid, ShareId]


class Place(Struct, frozen=True):
    """The GPU of a device, and the MIG device that it is, if it is one."""

    gpu: Gpu
    mig: MigDevice | None = None
    graphics: bool = True
    """Whether programs can draw on the device. Most MIG devices compute only."""

    @property
    def uuid(self) -> str:
        """The UUID of the device."""
        return self.gpu.uuid if self.mig is None else self.mig.uuid


class _Seen(Struct, frozen=True):
    node: Node
    places: Mapping[DeviceName, Place]


Edits = Callable[[Installation, Gpu, MigDevice | None, bool], ContainerEdits]

DEFAULT_EDITS: Edits = edits_for((), groups=False)


class Leases:
    """Works on leases. `judged` sees every look of a scan; before the first one the hardware is looked at when it is needed."""

    def __init__(
        self, hardware: Hardware, *, idle_bytes: int = IDLE_BYTES, edits: Edits = DEFAULT_EDITS
    ) -> None:
        self._hardware = hardware
        self._idle_bytes = idle_bytes
        self._edits = edits
        self._mutex = Lock()
        self._leased: set[_Key] = set()
        self._seen: _Seen | None = None
        self._looking = Lock()
        self._looks_begun = self._look_of_seen = 0  # only looks for a claim are counted

    def configure(self, lease: Lease) -> ContainerEdits:
        """Set what the configuration of a lease asks for. Raises Temporary or Permanent."""
        try:
            interval = time_slice(lease.config.value)
        except ValueError as error:
            raise Permanent(
                f"configuration of device {lease.device} refused (request: {lease.request}): {error}"
            ) from None
        before = self._looks_begun
        place = self._place(lease.device)
        if place is not None and place.mig is not None:
            # Since the last look somebody may have divided the GPU anew: then its numbers are those of another one's instances.
            place = self._place_after(before, lease.device)
        if place is None:
            raise Temporary(
                f"device {lease.device} is not found any more; `dra-driver devices` on its node shows what is there"
            )
        installation = self._last().node.installation
        if not lease.hooks:
            installation = structs.replace(installation, hook="")
        edits = self._edits(installation, place.gpu, place.mig, place.graphics)
        edits = edits.merged(ContainerEdits({f"{DEVICE_VARIABLE}{lease.index}": place.uuid}))
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
            self._put_back(lease)
        with self._mutex:
            self._leased.discard(_key(lease))

    def in_use(self, device: DeviceName) -> InUse:
        """Whether a process computes on the device. A desktop on it is no use."""
        try:
            place = self._place(device)
            if place is None:
                return InUse.CANNOT_TELL
            found = computing(self._hardware.processes(place.uuid))
        except DriverError:
            return InUse.CANNOT_TELL
        return InUse.YES if found else InUse.NO

    def leased(self) -> frozenset[DeviceName]:
        """The devices that this process has set up. Ask before a look: what that look finds on them is theirs."""
        with self._mutex:
            return frozenset(device for device, _, _ in self._leased)

    def judged(self, node: Node, found: Inventory, leased: Collection[DeviceName]) -> Inventory:
        """Return the devices of a look, each with what is left on it if it is not `leased`."""
        places = _places(node, found)
        with self._mutex:
            self._seen = _Seen(node, places)
        left = self._left(places, leased)
        if not left:
            return found
        devices = tuple(replace(one, not_clean=left.get(one.name, "")) for one in found.devices)
        return dataclasses.replace(found, devices=devices)

    def _left(
        self, places: Mapping[DeviceName, Place], leased: Collection[DeviceName]
    ) -> Mapping[DeviceName, str]:
        """What is left on devices, as sentences. An idle GPU costs no call, and a leased one neither."""
        found: dict[DeviceName, str] = {}
        asked: dict[str, tuple[Process, ...] | None] = {}
        for name, place in places.items():
            gpu = place.gpu
            if name in leased or gpu.problem or not over_floor(gpu, self._idle_bytes):
                continue
            if gpu.uuid not in asked:
                asked[gpu.uuid] = self._processes(gpu)
            processes = asked[gpu.uuid]
            if processes is not None:
                found[name] = left_on(gpu, processes, self._idle_bytes, place.mig)
        return {name: sentence for name, sentence in found.items() if sentence}

    def _processes(self, gpu: Gpu) -> tuple[Process, ...] | None:
        try:
            return self._hardware.processes(gpu.uuid)
        except DriverError:
            return None  # whoever uses the memory, nothing says that it is no desktop

    def _put_back(self, lease: Lease) -> None:
        gpu = self._gpu(lease)
        if gpu is not None:
            put_back(self._hardware, gpu)
        elif why := _may_be_there(self._last().node, lease):
            raise Temporary(
                f"the modes of device {lease.device} cannot be put back now: {why}; the driver tries again"
            )

    def _gpu(self, lease: Lease) -> Gpu | None:
        """The whole GPU of a lease, by its UUID: another one may have its name by now. None for a MIG device, and if it has gone."""
        if lease.parts:
            return None
        if lease.parent:
            return next((one for one in self._last().node.gpus if one.uuid == lease.parent), None)
        place = self._place(lease.device)
        return None if place is None or place.mig is not None else place.gpu

    def _place(self, device: DeviceName) -> Place | None:
        return self._last().places.get(device)

    def _place_after(self, before: int, device: DeviceName) -> Place | None:
        """Where a device is by a look that began after this number of looks. So the devices of one claim share a look."""
        with self._looking:
            if self._look_of_seen <= before:
                self._looks_begun += 1
                seen = self._look()
                with self._mutex:
                    self._seen, self._look_of_seen = seen, self._looks_begun
        return self._place(device)

    def _last(self) -> _Seen:
        with self._mutex:
            seen = self._seen
        if seen is None:
            seen = self._look()
            with self._mutex:
                self._seen = self._seen or seen
        return seen

    def _look(self) -> _Seen:
        node = self._hardware.look()
        return _Seen(node, _places(node, inventory(node, {})))


def _places(node: Node, found: Inventory) -> Mapping[DeviceName, Place]:
    """The hardware behind each device."""
    by_uuid = {gpu.uuid: Place(gpu) for gpu in node.gpus}
    for gpu in node.gpus:
        profiles = node.mig_profiles.get(gpu.name, ())
        by_uuid |= {
            one.uuid: Place(gpu, one, has_graphics(one, profiles))
            for one in (gpu.mig.devices if gpu.mig else ())
        }
    return {one.name: by_uuid[one.uuid] for one in found.devices if one.uuid in by_uuid}


def _key(lease: Lease) -> _Key:
    return lease.device, lease.claim_uid, lease.share_id


def _may_be_there(node: Node, lease: Lease) -> str:
    """Why the GPU of a lease, which no look has found, may be there all the same, with its modes; empty if it is gone."""
    if not node.gpus and node.installation.kernel_version:
        return node.problem  # the kernel driver keeps the modes as long as it is loaded
    unread = (one for one in node.gpus if not one.uuid and one.problem_code != _LOST)
    found = None if lease.parts else next(unread, None)
    if found is None:
        return ""
    return f"it may be the GPU with index {found.index}, which does not answer: {found.problem}"


def _may_have_set(lease: Lease) -> bool:
    """Whether this lease, or another one that shared its device, may have set a mode. A lease from a lost state has no request; one of
    another release of this driver may have a configuration that this one cannot read.
    """
    unreadable = bool(lease.config.kind) and lease.config.value is None
    if lease.share_id or not lease.request or unreadable:
        return True
    try:
        return time_slice(lease.config.value) is not None
    except ValueError:
        return False  # it was refused
