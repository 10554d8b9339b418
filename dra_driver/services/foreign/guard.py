# SPDX-License-Identifier: Apache-2.0
"""Keep devices from users of this driver while a plugin of somebody else has given them out, or could.

A foreign plugin asks nobody before it gives a device to a pod, and tells nobody. Three witnesses know of it: the kubelet's checkpoint (which
pod has which units, and which resources are registered), pod-resources (what is allocatable now), and the pods' cgroups (what runs). This
service looks at them after each write of the checkpoint, and every few seconds.

| module | question |
| --- | --- |
| `kubelet.py` | what does the kubelet say of device plugins, and what counts while it is silent? |
| `own.py` | which of the kubelet's entries come from this driver itself? |
| `pods.py` | which pods have units of foreign plugins, and when is it proven that they have ended? |
| `events.py` | what are people told? |
| `dra_driver.planning.guard` | which devices are that? |

One thing cannot be prevented: the foreign plugin gives out a device that a pod already has through this driver. That is told by an Event.
"""

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Event, Lock

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError, Permanent
from dra_driver.kube.base import NodeEvent
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.ids import DeviceName, ResourceName, UnitId
from dra_driver.model.inventory import Inventory
from dra_driver.model.plugin import PluginResource, UnitsOfContainer
from dra_driver.model.state import PreparedClaim, Unknown
from dra_driver.planning.guard import (
    Divided,
    ForeignPod,
    ForeignResource,
    Kept,
    OwnUnits,
    foreign_pods,
    foreign_resources,
    kept_devices,
    taint_value,
)
from dra_driver.planning.prepare import NodePlace
from dra_driver.services.foreign.events import ForeignEvents
from dra_driver.services.foreign.kubelet import ForeignWitnesses, KubeletSays
from dra_driver.services.foreign.own import OwnTraces, units_by_pod
from dra_driver.services.foreign.pods import ForeignPods, Memory

LOOK_SECONDS = 2.0  # while a foreign pod may run
IDLE_SECONDS = 10.0


class ForeignInputs(Struct, frozen=True):
    """What this driver knows itself. `rows` are those of the state; `offered` are the units of each resource that it offers by the device
    plugin API.
    """

    inventory: Callable[[], Inventory]
    rows: Callable[[], Iterable[PreparedClaim]]
    offered: Callable[[], Mapping[ResourceName, Collection[UnitId]]]
    divided: Divided


class _Found(Struct, frozen=True):
    """What one look has found."""

    resources: Collection[ForeignResource]
    running: Collection[ForeignPod]
    rows: Collection[PreparedClaim]
    inventory: Inventory
    registered: Mapping[ResourceName, frozenset[UnitId]]


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
        self._inputs = inputs
        self._place = place
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._kubelet = KubeletSays(witnesses, clock)
        self._own = OwnTraces(inputs.offered, clock)
        self._pods = ForeignPods(witnesses, memory, log=self._log, clock=clock)
        self._events = ForeignEvents(place, inputs.divided, tell_node, log=self._log, clock=clock)
        self._subscribers: list[Callable[[], None]] = []
        self._looking = Lock()
        self._kept: Mapping[DeviceName, Kept] = {}
        self._looked: str | None = None  # the version of the checkpoint that `_kept` is about
        self._seen: frozenset[UnitsOfContainer] = frozenset()  # its entries
        self._begun = False
        self._untold: _Found | None = None

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change. It must not block."""
        self._subscribers.append(changed)

    # What others ask. The first question waits for the first look; after that only `current` looks, and only if it must.

    def devices(self) -> Mapping[DeviceName, Kept]:
        """Return the devices that are kept, each with its reason."""
        if self._looked is None:
            self._look()
        return self._kept

    def taints(self) -> Mapping[DeviceName, str]:
        """Return the value of the taint of each device that is kept."""
        return {name: taint_value(kept.resource) for name, kept in self.devices().items()}

    def current(self) -> Mapping[DeviceName, Kept]:
        """Return the devices that are kept, after a look if the kubelet has written down since the last one that a container got something
        from somebody else. So what a pod holds is in it; who could give out more is found by the loop.
        """
        if self._somebody_gave():
            # If another thread looks at this moment, its end is waited for.
            self._look()
        return self._kept

    def served(self) -> frozenset[str] | None:
        """Return the extended resources of plugins, of this driver's too, that the kubelet knows; None if it has not said them."""
        kubelet = self._kubelet
        if self._looked is None or kubelet.counts is None or kubelet.unread:
            return None
        return frozenset((*kubelet.checkpoint.registered, *kubelet.counts, *self._own.left))

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
            soon = self._own.expects_a_pod or self._pods.may_run
            wait(stop, LOOK_SECONDS if soon else IDLE_SECONDS)

    def look(self) -> None:
        """Look once, and tell people what was found; one thread does this. What cannot be read stays as it was."""
        self._look()
        found, self._untold = self._untold, None
        if found is not None:
            self._events.beyond_share(found.resources, found.inventory)
            self._events.given_twice(found.running, found.rows)
            self._events.taken_over(self._inputs.offered(), found.registered)

    def _somebody_gave(self) -> bool:
        """Whether the checkpoint has an entry that the last look did not see, and that no row of this driver explains. The kubelet writes after
        each Allocate: nothing is asked here, so that the next one does not wait for what this driver itself did.
        """
        looked = self._looked
        if looked is None:
            return True
        version, found = self._kubelet.latest()
        if version == looked:
            return False
        if isinstance(found, Unknown):
            return True
        if self._pods.may_return(found.containers):
            return True
        new = [entry for entry in found.containers if entry not in self._seen]
        try:
            own = OwnUnits(given=units_by_pod(self._inputs.rows() if new else ()))
        except DriverError:
            return True  # the look tells it, and what is kept stays kept
        return not all(own.has(entry) for entry in new)

    def _look(self) -> None:
        """Look once. Nobody is told here: a claim that waits for the answer must not wait for the API server too."""
        with self._looking:
            try:
                found = self._find()
                looked, kept = self._kubelet.written, self._kept_of(found)
            except DriverError as error:
                self._log.warning(
                    "foreign_plugins_not_looked_at",
                    error=str(error),
                    next_step="what is kept stays kept; it is tried again",
                )
                return
            except Exception as error:  # noqa: BLE001  a defect here must not open what is guarded
                # The same checkpoint is looked at again.
                looked, kept = None, self._all(error)
            else:
                self._untold = found
            # In this order: `_somebody_gave` reads them without the lock, the other way round.
            before, self._kept = self._kept, kept
            self._seen = frozenset(self._kubelet.checkpoint.containers)
            self._looked = looked
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

    def _kept_of(self, found: _Found) -> Mapping[DeviceName, Kept]:
        return kept_devices(found.resources, found.running, self._inputs.divided, found.inventory)

    def _all(self, error: Exception) -> Mapping[DeviceName, Kept]:
        """Every device: nobody knows what others have. Claims that have one already are served."""
        reason = f"the driver cannot tell which devices other plugins have given out: {type(error).__name__}: {error}"
        try:
            devices = self._inputs.inventory().devices
        except DriverError:
            return self._kept
        kept = {device.name: Kept(ResourceName("unknown"), reason) for device in devices}
        if kept != self._kept:
            self._log.error(
                "foreign_guard_failed",
                exc_info=error,
                next_step="no device is offered to new claims until it works again; report this with the log",
            )
        return kept

    def _find(self) -> _Found:
        # Also later: a process that stands by looks too, and writes the same file.
        offered = self._pods.remember_again()
        if not self._begun:
            self._own.offered_before(offered)
        self._kubelet.read()
        # The rows after the checkpoint: a unit that this driver gave out has its row before the kubelet writes.
        rows = tuple(self._inputs.rows())
        inventory = self._inputs.inventory()
        self._kubelet.take()
        own = self._own.units(rows, self._kubelet)
        self._begun = True
        checkpoint = self._kubelet.checkpoint
        resources = foreign_resources(checkpoint, self._kubelet.counts, inventory, own)
        named = foreign_pods(checkpoint, inventory, own)
        running = self._pods.running(named, inventory, own)
        self._pods.store(own.offered | own.left)
        return _Found(resources, running, rows, inventory, checkpoint.registered)


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
        return dataclasses.replace(
            resource, units=tuple(one for one in resource.units if one.device not in held)
        )

    return found
