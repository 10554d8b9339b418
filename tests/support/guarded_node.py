# SPDX-License-Identifier: Apache-2.0
"""A guard against plugins of others whose witnesses are plain attributes, and whose clock moves only by hand."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from dra_driver.errors import DriverError
from dra_driver.kube.base import NodeEvent
from dra_driver.model.claim import ClaimRef
from dra_driver.model.foreign import RememberedPod
from dra_driver.model.ids import ClaimUid, DeviceName, PodUid, ResourceName, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plugin import KubeletCheckpoint, PodUnits, UnitsOfContainer
from dra_driver.model.plugin_policy import DeviceChoice
from dra_driver.model.presence import Alive, Gone, Presence
from dra_driver.model.state import Phase, PreparedClaim, PreparedDevice, Unknown, Users
from dra_driver.services.foreign.guard import ForeignGuard, ForeignInputs
from dra_driver.services.foreign.kubelet import ForeignWitnesses
from dra_driver.testing.builders import A_BOOT, A_PLACE, A_POOL, a_device
from tests.support.local_node import ManualClock

GPU = ResourceName("nvidia.com/gpu")


def gpus(count: int = 4) -> Inventory:
    """GPUs of NVIDIA with the UUIDs uuid-gpu-0, …"""
    return Inventory(
        tuple(
            a_device(f"gpu-{n}", attributes={"vendor": "nvidia", "index": n}) for n in range(count)
        )
    )


class Memory:
    """What the disk keeps; it can fail."""

    def __init__(self) -> None:
        self.content: tuple[tuple[RememberedPod, ...], tuple[str, ...]] = ((), ())
        self.error: DriverError | None = None
        self.writes = self.reads = 0

    def read(self) -> tuple[tuple[RememberedPod, ...], tuple[str, ...]]:
        self.reads += 1  # each look reads it
        return self.content

    def write(self, pods: tuple[RememberedPod, ...], offered: tuple[str, ...], /) -> None:
        if self.error is not None:
            raise self.error
        self.writes += 1
        self.content = (pods, offered)


class GuardedNode:
    """The node. `restart` is a new process on the same disk."""

    def __init__(self, divided: DeviceChoice | None = None) -> None:
        self.clock = ManualClock()
        self.inventory: Inventory | DriverError = gpus()
        self.version = 0
        self.checkpoint: KubeletCheckpoint | Unknown = KubeletCheckpoint()
        self.counts: Mapping[str, int] | Unknown = {}
        self.active: frozenset[PodUnits] | Unknown = frozenset()
        self.presences: dict[PodUid, Presence] = {}
        self.believes_kubelet = False
        self.rows: list[PreparedClaim] = []
        self.offered: dict[ResourceName, frozenset[UnitId]] = {}
        self.divided = {} if divided is None else {GPU: divided}
        self.memory = Memory()
        self.events: list[NodeEvent] = []
        self.refuses: DriverError | None = None
        self.asked = self.listed = self.looked_at_cgroups = self.changes = 0
        self.presence: Callable[[Collection[PodUid]], Mapping[PodUid, Presence]] = self._presence
        self.told: Callable[[NodeEvent], object] = self.events.append
        self.guard = self.restart()

    def restart(self) -> ForeignGuard:
        presence = None if self.believes_kubelet else self.presence
        self.guard = ForeignGuard(
            ForeignWitnesses(
                lambda: (str(self.version), self.checkpoint),
                self._allocatable,
                self._active,
                presence,
            ),
            ForeignInputs(
                self._inventory, lambda: tuple(self.rows), lambda: self.offered, self.divided
            ),
            self.memory,
            place=A_PLACE,
            tell_node=self._tell,
            clock=self.clock,
        )
        self.guard.subscribe(self._changed)
        return self.guard

    def kept(self) -> set[str]:
        """The devices that are kept after a look."""
        self.guard.look()
        return set(self.guard.devices())

    def after(self, seconds: float) -> set[str]:
        self.clock.now += seconds
        return self.kept()

    def writes(
        self, *entries: UnitsOfContainer, registered: Mapping[str, Iterable[str]] | None = None
    ) -> None:
        """The kubelet writes its checkpoint. Without `registered` its resources stay."""
        old = self.checkpoint
        kept = {} if isinstance(old, Unknown) else old.registered
        if registered is not None:
            kept = {
                ResourceName(name): frozenset(map(UnitId, ids)) for name, ids in registered.items()
            }
        self.checkpoint = KubeletCheckpoint(entries, kept)
        self.version += 1

    def serves(self, *units: str, resource: str = GPU) -> None:
        """A plugin of somebody else has registered."""
        containers = () if isinstance(self.checkpoint, Unknown) else self.checkpoint.containers
        self.writes(*containers, registered={resource: units})
        self.counts = {resource: len(units)}

    def stops(self) -> None:
        """The plugin has ended, and the kubelet has forgotten it."""
        containers = () if isinstance(self.checkpoint, Unknown) else self.checkpoint.containers
        self.writes(*containers, registered={})
        self.counts = {}

    def runs(self, pod: str) -> None:
        self.presences[PodUid(pod)] = Alive("its cgroup has processes")

    def ends(self, pod: str) -> None:
        self.presences.pop(PodUid(pod), None)

    def _inventory(self) -> Inventory:
        if isinstance(self.inventory, DriverError):
            raise self.inventory
        return self.inventory

    def _allocatable(self) -> Mapping[str, int] | Unknown:
        self.asked += 1
        return self.counts

    def _active(self) -> frozenset[PodUnits] | Unknown:
        self.listed += 1
        return self.active

    def _presence(self, pods: Collection[PodUid]) -> Mapping[PodUid, Presence]:
        self.looked_at_cgroups += 1
        return {pod: self.presences.get(pod, Gone()) for pod in pods}

    def _tell(self, event: NodeEvent) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.told(event)

    def _changed(self) -> None:
        self.changes += 1


def entry(pod: str, *units: str, **more: Any) -> UnitsOfContainer:
    """What the checkpoint says of a container of a pod."""
    resource = ResourceName(more.get("resource", GPU))
    return UnitsOfContainer(
        PodUid(pod), more.get("container", "main"), resource, frozenset(map(UnitId, units))
    )


def own_row(device: str, unit: str = "", pod: str | None = None) -> PreparedClaim:
    """A row of the state: of a claim, or with `unit` of a container. `pod` is the one that has it, if that is known."""
    ref = ClaimRef("default", "mine", ClaimUid("uid-mine"))
    if unit:
        ref = ClaimRef("device-plugin", GPU, ClaimUid("plugin-1"))
    found = PreparedDevice((unit or "gpu",), A_POOL, DeviceName(device), (), "")
    users = Users(None if pod is None else (PodUid(pod),))
    return PreparedClaim(ref, Phase.PREPARED, A_BOOT, (found,), "", users)
