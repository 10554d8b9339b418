# SPDX-License-Identifier: Apache-2.0
"""A local node that serves the device plugin API: what the kubelet and the kernel would say are plain attributes.

`admit` plays the admission of a pod as the kubelet does it, one container after the other: Allocate, then the checkpoint. `force_delete` and `end` are the two
ways in which a pod goes.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import force_setattr

from dra_driver.model.cdi import ContainerEdits
from dra_driver.model.ids import ClaimUid, PodUid, ResourceName, UnitId
from dra_driver.model.plan import Refusal
from dra_driver.model.plugin import (
    ContainerAnswer,
    KubeletCheckpoint,
    PluginResource,
    Unit,
    UnitsOfContainer,
)
from dra_driver.model.presence import Alive
from dra_driver.model.state import PreparedClaim, Unknown
from dra_driver.services.plugin.allocate import AllocateUnits, Answers
from dra_driver.services.plugin.holders import Holders
from dra_driver.services.plugin.take_up import TakeUp
from dra_driver.services.plugin.witnesses import Witnesses
from dra_driver.testing.builders import an_inventory
from tests.support.local_node import LocalNode

GPU = ResourceName("nvidia.com/gpu")


def a_resource(count: int = 2, **more: Any) -> PluginResource:
    """One unit for each of gpu-0, gpu-1, …; the unit's ID is the device's UUID."""
    units = tuple(
        Unit(UnitId(f"uuid-gpu-{n}"), an_inventory(count).devices[n].name) for n in range(count)
    )
    return PluginResource(GPU, units, "a test", **more)


def all_edits(
    edits: Sequence[ContainerEdits], cdi_ids: Sequence[str], _uid: ClaimUid
) -> ContainerAnswer:
    """Answer with everything."""
    env = {name: value for one in edits for name, value in one.env.items()}
    nodes = tuple(node for one in edits for node in one.device_nodes)
    return ContainerAnswer(env, nodes, cdi_ids=tuple(cdi_ids))


class PluginNode(LocalNode):
    """The node. `containers` is the content of the kubelet's checkpoint, `active` what pod-resources list, `kubelet` the number of its process. While
    the kubelet is `silent` it says nothing, and neither does the kernel; while the checkpoint is `damaged` only this file says nothing, and while pods are `hidden` only the kernel says nothing of their cgroups. `asked` is
    called before each answer about "pods" or "lists".
    `answers` is how containers get their devices."""

    def __init__(self, directory: Path, **more: Any) -> None:
        self.containers: tuple[UnitsOfContainer, ...] = ()
        self.writes = 0
        self.silent = ""
        self.damaged = self.hidden = self.unlisted = False
        self.asked: Callable[[str], None] = lambda _what: None
        self.kubelet = 1
        self.active: dict[str, frozenset[UnitId]] = {}
        self.cgroups: set[PodUid] = set()
        self.resource: PluginResource | None = a_resource(4)
        self.answers = Answers(all_edits)
        super().__init__(directory, **more)

    def _open(self) -> None:
        super()._open()
        witnesses = Witnesses(
            self._checkpoint, self._pods, self._active_units, lambda: self.kubelet
        )
        self.holders = Holders(self.parts, self.store, witnesses, freed=self._freed)
        force_setattr(self.parts.releasable, "units_needed", self.holders.needed)
        resources = lambda: {} if self.resource is None else {GPU: self.resource}  # noqa: E731
        self.taking_up = TakeUp(self.parts, self.holders, witnesses, resources=resources)
        self.allocate_units = AllocateUnits(
            self.parts,
            self.holders,
            resources=lambda name: self.resource if name == GPU else None,
            answers=lambda: self.answers,
        )

    def _checkpoint(self) -> tuple[str, KubeletCheckpoint | Unknown]:
        if self.silent:
            return "", Unknown(self.silent)
        if self.damaged:
            return "", Unknown("the file is damaged")
        return str(self.writes), KubeletCheckpoint(self.containers)

    def _pods(self) -> frozenset[PodUid] | Unknown:
        self.asked("pods")
        if self.silent or self.hidden:
            return Unknown(self.silent or "no cgroups")
        return frozenset(self.cgroups)

    def _active_units(self, _name: ResourceName) -> frozenset[UnitId] | Unknown:
        self.asked("lists")
        if self.silent or self.unlisted:
            return Unknown(self.silent or "no answer")
        return frozenset().union(*self.active.values())

    def allocate(self, *units: str) -> ContainerAnswer | Refusal:
        """An Allocate call."""
        return self.allocate_units(GPU, [UnitId(one) for one in units])

    def write(self, pod: str, *units: str, container: str = "main") -> None:
        """The kubelet writes its checkpoint at the end of a container's admission. Entries of other pods with these units are gone by then."""
        entry = UnitsOfContainer(PodUid(pod), container, GPU, frozenset(map(UnitId, units)))
        kept = [one for one in self.containers if one.pod == pod or not one.units & entry.units]
        self.containers = (*kept, entry)
        self.writes += 1

    def admit(
        self, pod: str, *units: str, **containers: Sequence[str]
    ) -> ContainerAnswer | Refusal:
        """Admit a pod: its container gets these units; returns the answer of the last container."""
        wanted: Mapping[str, Sequence[str]] = containers or {"main": units}
        found: ContainerAnswer | Refusal = Refusal("nothing was asked")
        for name, asked in wanted.items():
            found = self.allocate(*asked)
            if isinstance(found, Refusal):
                return found
            self.write(pod, *asked, container=name)
            self.active[pod] = self.active.get(pod, frozenset()) | set(map(UnitId, asked))
        return found

    def run(self, pod: str) -> None:
        """The pod's containers run."""
        self.cgroups.add(PodUid(pod))
        self.presences[PodUid(pod)] = Alive("its cgroup has processes")

    def force_delete(self, pod: str) -> None:
        """The kubelet forgets the pod, and its containers run on."""
        self.active.pop(pod, None)

    def end(self, pod: str) -> None:
        """The last process of the pod ends, and its cgroup is removed."""
        self.force_delete(pod)
        self.cgroups.discard(PodUid(pod))
        self.presences.pop(PodUid(pod), None)

    def rows(self) -> tuple[PreparedClaim, ...]:
        """The rows of the device plugin API."""
        return self.holders.rows()

    def owned(self) -> set[str]:
        """The devices that have an owner."""
        with self.store.reading() as state:
            return set(state.owned_devices(self.place.pool))

    def reboot(self, **more: Any) -> None:
        """Nothing runs any more, /var/run is empty, and a new process begins. The kubelet keeps its checkpoint."""
        self.presences.clear()
        self.cgroups.clear()
        for file in (self.directory / "cdi").iterdir():
            file.unlink()
        self.restart(boot_id=f"{self.boot_id}+", **more)
        self.recover()

    def look(self) -> None:
        """What the leader does every few seconds."""
        self.holders.once()
        self.keeper.once()
