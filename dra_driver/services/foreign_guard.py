# SPDX-License-Identifier: Apache-2.0
"""Keep devices from users of this driver while a plugin of somebody else has given them out, or could.

A foreign plugin asks nobody before it gives a device to a pod, and tells nobody. Three witnesses know of it: the kubelet's checkpoint (which
pod has which units, and which resources are registered), pod-resources (what is allocatable now), and the pods' cgroups (what runs). This
service looks at them after each write of the checkpoint, and every few seconds.

A pod that was seen in the checkpoint is remembered, also over a restart of the driver, until its cgroup proves that it has ended: the kubelet
forgets a pod that was deleted by force while its containers run. A pod without a cgroup that was never seen to run may be about to start.

One thing cannot be prevented: the foreign plugin gives out a device that a pod already has through this driver. That is told by an Event.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from threading import Event, Lock
from typing import Protocol

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError, Permanent
from dra_driver.kube.base import NodeEvent
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.foreign import RememberedPod
from dra_driver.model.ids import DeviceName, PodUid, ResourceName, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.names import DEVICE_GIVEN_TWICE, DEVICE_PLUGIN_BESIDE
from dra_driver.model.plugin import KubeletCheckpoint, PluginResource, PodUnits
from dra_driver.model.presence import Alive, CannotTell, Gone, Presence
from dra_driver.model.state import PreparedClaim, Unknown
from dra_driver.planning.guard import (
    Divided,
    ForeignPod,
    ForeignResource,
    Kept,
    OwnUnits,
    beyond,
    devices_of,
    few,
    foreign_pods,
    foreign_resources,
    kept_devices,
    taint_value,
)
from dra_driver.planning.prepare import NodePlace

LOOK_SECONDS = 2.0  # while a foreign pod may run
IDLE_SECONDS = 10.0
ASK_SECONDS = (
    10.0  # between two questions to pod-resources, as long as the checkpoint stays as it is
)
GRACE_SECONDS = 10.0  # an admitted pod gets its cgroup at once
LIST_SECONDS = 5.0  # the kubelet takes units back at each list of pods
FORGOTTEN_SECONDS = 300.0  # the kubelet waits so long for a plugin to come back
LEAVING_SECONDS = 10.0  # until the kubelet has noticed that this driver offers a resource no more

_Key = tuple[PodUid, ResourceName]


class Memory(Protocol):
    """What is kept on the disk (`dra_driver.node.foreign_memory`)."""

    def read(self) -> tuple[tuple[RememberedPod, ...], tuple[str, ...]]:
        """Return the pods of this boot, and the resources that this driver offered."""

    def write(self, pods: tuple[RememberedPod, ...], offered: tuple[str, ...], /) -> None:
        """Replace them. Raises DriverError."""


@dataclass(frozen=True, slots=True)
class ForeignWitnesses:
    """What the kubelet and the kernel tell. `checkpoint` comes with the version of its file; `allocatable` are healthy units by resource;
    `active` are the units of active pods; `presence` is None if the admin does not want the cgroups to be the proof.
    """

    checkpoint: Callable[[], tuple[str, KubeletCheckpoint | Unknown]]
    allocatable: Callable[[], Mapping[str, int] | Unknown]
    active: Callable[[], frozenset[PodUnits] | Unknown]
    presence: Callable[[Collection[PodUid]], Mapping[PodUid, Presence]] | None


@dataclass(frozen=True, slots=True)
class ForeignInputs:
    """What this driver knows itself. `rows` are those of the state; `offered` are the units of each resource that it offers by the device
    plugin API.
    """

    inventory: Callable[[], Inventory]
    rows: Callable[[], Iterable[PreparedClaim]]
    offered: Callable[[], Mapping[ResourceName, Collection[UnitId]]]
    divided: Divided


@dataclass(slots=True)
class _Known:
    """A pod with units of a resource. `ended`: proven; it stays here as long as the checkpoint names it."""

    units: frozenset[UnitId]
    since: float
    seen: bool = False
    ended: bool = False


class ForeignGuard:
    """Knows what is kept. `changed` is called when it becomes something else; `tell_node` writes an Event on the Node."""

    def __init__(  # noqa: PLR0913  named at its only call
        self,
        witnesses: ForeignWitnesses,
        inputs: ForeignInputs,
        memory: Memory,
        *,
        place: NodePlace,
        tell_node: Callable[[NodeEvent], None],
        log: FilteringBoundLogger | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._witnesses = witnesses
        self._inputs = inputs
        self._memory = memory
        self._place = place
        self._tell_node = tell_node
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._clock = clock
        self._subscribers: list[Callable[[], None]] = []
        self._looking = Lock()
        self._kept: Mapping[DeviceName, Kept] = {}
        self._known: dict[_Key, _Known] = {}
        self._taken: dict[ResourceName, float] = {}
        self._left: dict[ResourceName, float] = {}
        self._given: Mapping[PodUid | None, frozenset[tuple[ResourceName, UnitId]]] = {}
        self._begun = False
        self._written: object = None
        self._checkpoint = KubeletCheckpoint()
        self._found: KubeletCheckpoint | Unknown = Unknown("nobody has looked")
        self._counts: Mapping[str, int] | None = None
        self._ask_at = self._list_at = -inf
        self._active: frozenset[PodUnits] | Unknown = Unknown("nobody has asked")
        self._last_given: dict[ResourceName, float] = {}
        self._stored: object = None
        self._told: dict[str, tuple[NodeEvent, ...]] = {}

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change. It must not block."""
        self._subscribers.append(changed)

    # What others ask. The first question waits for the first look; after that only `current` looks, and only if it must.

    def devices(self) -> Mapping[DeviceName, Kept]:
        """Return the devices that are kept, each with its reason."""
        if not self._begun:
            self.look()
        return self._kept

    def taints(self) -> Mapping[DeviceName, str]:
        """Return the value of the taint of each device that is kept."""
        return {name: taint_value(kept.resource) for name, kept in self.devices().items()}

    def current(self) -> Mapping[DeviceName, Kept]:
        """Return the devices that are kept, after a look if the kubelet has written its checkpoint since the last one."""
        written, _ = self._witnesses.checkpoint()
        if not self._begun or written != self._written:
            self.look()
        return self._kept

    def served(self) -> frozenset[str] | None:
        """Return the extended resources of plugins, of this driver's too, that the kubelet knows; None if it has not said them."""
        if not self._begun or self._counts is None or isinstance(self._found, Unknown):
            return None
        return frozenset((*self._checkpoint.registered, *self._counts, *self._left))

    def refusing(self, get_claim: Callable[[ClaimRef], Claim]) -> Callable[[ClaimRef], Claim]:
        """Return a function that reads a claim, and raises Permanent if a foreign pod has one of its devices: the scheduler may have chosen it
        before the taint was there. Admin access shares a device with anybody.
        """

        def read(ref: ClaimRef) -> Claim:
            claim = get_claim(ref)
            kept = self.current()
            for result in claim.results or ():
                mine = (result.driver, result.pool) == (self._place.driver, self._place.pool)
                found = kept.get(DeviceName(result.device))
                if mine and not result.admin_access and found is not None and found.held:
                    raise Permanent(
                        f"device {result.device} is not free: {found.reason}; end that pod, or delete this one, so that the scheduler "
                        f"chooses another device"
                    )
            return claim

        return read

    # What it does on its own.

    def run(self, stop: Event, wait: Callable[[Event, float], object]) -> None:
        """Look after each write of the checkpoint until `stop`. `wait` returns when it was written, at the latest after so many seconds."""
        while not stop.is_set():
            self.look()
            soon = None in self._given or any(not known.ended for known in self._known.values())
            wait(stop, LOOK_SECONDS if soon else IDLE_SECONDS)

    def look(self) -> None:
        """Look once. What cannot be read stays as it was."""
        with self._looking:
            try:
                kept = self._look()
            except DriverError as error:
                self._log.warning(
                    "foreign_plugins_not_looked_at",
                    error=str(error),
                    next_step="what is kept stays kept; it is tried again",
                )
                return
            before, self._kept = self._kept, kept
        if before != kept:
            for name in sorted(before.keys() ^ kept.keys()):
                one = kept.get(name)
                self._log.info(
                    "device_kept_from_users" if one else "device_free_of_others",
                    device=name,
                    reason=(one or before[name]).reason,
                )
            for tell in self._subscribers:
                tell()

    def _look(self) -> Mapping[DeviceName, Kept]:
        if not self._begun:
            self._remember_again()
        written, found = self._witnesses.checkpoint()
        self._found = found
        # The rows after the checkpoint: a unit that this driver gave out has its row before the kubelet writes.
        rows = tuple(self._inputs.rows())
        inventory = self._inputs.inventory()
        self._ask(again=written != self._written)
        checkpoint = self._now(found)
        own = self._own(rows, checkpoint)
        self._written, self._checkpoint, self._begun = written, checkpoint, True
        resources = foreign_resources(checkpoint, self._counts, inventory, own)
        running = self._running(checkpoint, inventory, own)
        self._store(own)
        self._report(resources, running, rows, inventory)
        self._say("taken", self._taken_over(checkpoint))
        return kept_devices(resources, running, self._inputs.divided, inventory)

    def _remember_again(self) -> None:
        pods, offered = self._memory.read()
        now = self._clock()
        for one in pods:
            key = (PodUid(one.pod), ResourceName(one.resource))
            self._known[key] = _Known(frozenset(map(UnitId, one.units)), now, one.seen)
        self._left = dict.fromkeys(map(ResourceName, offered), now)

    def _ask(self, *, again: bool) -> None:
        now = self._clock()
        if again or now >= self._ask_at:
            self._ask_at = now + ASK_SECONDS
            counts = self._witnesses.allocatable()
            self._counts = None if isinstance(counts, Unknown) else counts
        for name, count in (self._counts or {}).items():
            if count:
                self._last_given[ResourceName(name)] = now

    def _now(self, found: KubeletCheckpoint | Unknown) -> KubeletCheckpoint:
        """The checkpoint. If it cannot be read, what pod-resources told lately takes its place: a plugin that restarts comes back."""
        if not isinstance(found, Unknown):
            return found
        if self._counts is None and self._begun:
            return self._checkpoint
        recent = self._clock() - FORGOTTEN_SECONDS
        names = (name for name, at in self._last_given.items() if at > recent)
        return KubeletCheckpoint(registered=dict.fromkeys(names, frozenset()))

    def _own(self, rows: Iterable[PreparedClaim], checkpoint: KubeletCheckpoint) -> OwnUnits:
        now = self._clock()
        offered = frozenset(map(ResourceName, self._inputs.offered()))
        for name in offered:
            self._left[name] = now
        counts = self._counts
        self._left = {
            name: at
            for name, at in self._left.items()
            # The kubelet has it still, and nobody else serves it.
            if now - at < LEAVING_SECONDS
            or counts is None
            or (not counts.get(name) and name in (*checkpoint.registered, *counts))
        }
        leaving = {name for name, at in self._left.items() if now - at < LEAVING_SECONDS}
        given = self._given_before(checkpoint)
        for row in rows:
            if not row.ref.of_plugin:
                continue
            units = frozenset(
                (ResourceName(row.ref.name), UnitId(name))
                for device in row.devices
                for name in device.request_names
            )
            for pod in row.users.pods or (None,):
                given[pod] = given.get(pod, frozenset()) | units
        self._given = given
        return OwnUnits(frozenset({*offered, *leaving}), frozenset(self._left), given)

    def _given_before(
        self, checkpoint: KubeletCheckpoint
    ) -> dict[PodUid | None, frozenset[tuple[ResourceName, UnitId]]]:
        """What this driver gave to pods that the kubelet still names. A row goes when its pod has ended, and the kubelet's entry stays until the
        next pod asks for units: it is no sign of somebody else.
        """
        named = {entry.pod for entry in checkpoint.containers}
        unread = isinstance(self._found, Unknown)
        return {
            pod: units
            for pod, units in self._given.items()
            if pod is not None and (unread or pod in named)
        }

    def _running(
        self, checkpoint: KubeletCheckpoint, inventory: Inventory, own: OwnUnits
    ) -> list[ForeignPod]:
        """Return the foreign pods that may have processes, or may be about to start."""
        now = self._clock()
        named: dict[_Key, frozenset[UnitId]] = {}
        for one in foreign_pods(checkpoint, inventory, own):
            key = (one.pod, one.resource)
            named[key] = named.get(key, frozenset()) | one.units
        for key, units in named.items():
            known = self._known.setdefault(key, _Known(units, now))
            if units - known.units:
                known.units |= units
                known.since, known.ended = now, False
        ours = {
            key
            for key, known in self._known.items()
            if {(key[1], unit) for unit in known.units} <= own.given.get(key[0], frozenset())
        }
        self._known = {
            key: known
            for key, known in self._known.items()
            if key not in ours and (key in named or not known.ended)
        }
        self._look_for_ends()
        return [
            ForeignPod(pod, resource, known.units, *devices_of(resource, known.units, inventory))
            for (pod, resource), known in sorted(self._known.items())
            if not known.ended
        ]

    def _look_for_ends(self) -> None:
        presence = self._witnesses.presence
        found: Mapping[PodUid, Presence] = {}
        if presence is not None and self._known:
            found = presence({pod for pod, _ in self._known})
        for (pod, resource), known in self._known.items():
            if presence is None:
                known.ended = not self._is_fresh(known) and not self._is_listed(resource, known)
                continue
            match found.get(pod, CannotTell("nobody has said it")):
                case Alive():
                    known.seen, known.ended = True, False
                case Gone():
                    known.ended = known.seen or (
                        known.ended
                        or (not self._is_fresh(known) and not self._is_listed(resource, known))
                    )
                case CannotTell():
                    known.ended = False

    def _is_fresh(self, known: _Known) -> bool:
        return self._clock() - known.since < GRACE_SECONDS

    def _is_listed(self, resource: ResourceName, known: _Known) -> bool:
        """Whether an active pod has the units, so that its containers may start."""
        now = self._clock()
        if now >= self._list_at:
            self._list_at = now + LIST_SECONDS
            self._active = self._witnesses.active()
        if isinstance(self._active, Unknown):
            return True
        return any(one.resource == resource and one.units & known.units for one in self._active)

    def _store(self, own: OwnUnits) -> None:
        """Write down what a restart must know, if it has changed. A failure is only logged: the checkpoint has most of it."""
        pods = tuple(
            RememberedPod(pod, resource, tuple(sorted(known.units)), known.seen)
            for (pod, resource), known in sorted(self._known.items())
            if not known.ended
        )
        offered = tuple(sorted({*own.offered, *own.left}))
        if (pods, offered) == self._stored or (not pods and not offered and self._stored is None):
            return
        try:
            self._memory.write(pods, offered)
            self._stored = (pods, offered)
        except DriverError as error:
            self._log.warning("foreign_pods_not_remembered", error=str(error))

    # What people are told.

    def _report(
        self,
        resources: Iterable[ForeignResource],
        running: Iterable[ForeignPod],
        rows: Iterable[PreparedClaim],
        inventory: Inventory,
    ) -> None:
        divided = self._inputs.divided
        more = beyond(resources, divided, inventory)
        self._say("beyond", (self._beyond(*one) for one in sorted(more.items())))
        self._say("twice", self._given_twice(running, rows))

    def _taken_over(self, checkpoint: KubeletCheckpoint) -> Iterable[NodeEvent]:
        """Say which resources of this driver the kubelet has from another plugin. Right after a change it has still the list before."""
        now = self._clock()
        strange = {
            name: units
            for name, own in self._inputs.offered().items()
            if (units := checkpoint.registered.get(name, frozenset()).difference(own))
        }
        self._taken = {name: self._taken.get(name, now) for name in strange}
        for name, since in sorted(self._taken.items()):
            if now - since >= LEAVING_SECONDS:
                yield NodeEvent(
                    "Warning",
                    DEVICE_PLUGIN_BESIDE,
                    f"the kubelet lists units of {name} that {self._place.driver} does not offer: {few(strange[name])}. Another device plugin has "
                    f"taken over this driver's resource, and the kubelet asks that one for devices. Keep that plugin off this node, and then "
                    f"delete the pod of this driver on it, so that it registers again; or let the two have different names "
                    f"(docs/older-clusters.md)",
                )

    @staticmethod
    def _beyond(name: ResourceName, devices: Collection[DeviceName]) -> NodeEvent:
        return NodeEvent(
            "Warning",
            DEVICE_PLUGIN_BESIDE,
            f"the device plugin of {name} lists {few(devices)}, which devicePlugin.foreign leaves to this driver: a device can be given to two "
            f"pods. Restrict that plugin to its own devices, or change devicePlugin.foreign",
        )

    def _given_twice(
        self, running: Iterable[ForeignPod], rows: Iterable[PreparedClaim]
    ) -> Iterable[NodeEvent]:
        owners = {
            key.device: row for row in rows for key in row.owned if key.pool == self._place.pool
        }
        for pod in running:
            # Of a unit whose device cannot be told nobody knows that it is this one.
            for name in sorted(pod.devices & owners.keys()) if pod.told else ():
                yield NodeEvent(
                    "Warning",
                    DEVICE_GIVEN_TWICE,
                    f"device {name} has two users: {owners[name].ref.word}, and pod {pod.pod}, to which the device plugin of {pod.resource} gave "
                    f"it. End one of them; keep that plugin off this node while pods use {self._place.driver}",
                )

    def _say(self, what: str, events: Iterable[NodeEvent]) -> None:
        """Tell each sentence once, as long as it is true. One that cannot be written is tried again at the next look."""
        now = tuple(events)
        told = self._told.get(what, ())
        kept = [event for event in now if event in told]
        for event in now:
            if event in told:
                continue
            try:
                self._tell_node(event)
            except DriverError as error:
                self._log.info("event_not_written", error=str(error))
                continue
            self._log.warning("foreign_plugin", what=what, message=event.message)
            kept.append(event)
        self._told[what] = tuple(kept)


def without_held(
    find: Callable[[ResourceName], PluginResource | None],
    kept: Callable[[], Mapping[DeviceName, Kept]],
) -> Callable[[ResourceName], PluginResource | None]:
    """Return a function that finds a resource without the units whose devices foreign pods have: the kubelet may have chosen one before the
    new list reached it.
    """

    def found(name: ResourceName) -> PluginResource | None:
        resource = find(name)
        held = {device for device, one in kept().items() if one.held}
        if resource is None or not held:
            return resource
        return replace(
            resource, units=tuple(one for one in resource.units if one.device not in held)
        )

    return found
