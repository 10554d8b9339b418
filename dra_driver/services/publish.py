# SPDX-License-Identifier: Apache-2.0
"""Keep the ResourceSlices of this node as they should be.

Two threads: `watch` mirrors the driver's slices from the API server; `run` is the only writer. It wakes when the
inventory or the mirror changed, decides (`dra_driver.planning`), and writes what differs, which is usually nothing.
While nothing changes, the watch is the only request.

* What somebody else deletes or changes is put right at once; who does it again and again is met with growing patience.
* A device that vanished while a claim names it stays in its slice. Whether one does is asked only then, and then again
  until the device may go. What was published is remembered on disk, so that this holds too when the driver was down while
  the device vanished and the kubelet deleted the slices.
* What the API server does not store is reported, and from then on taken as the wish.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from threading import Condition, Event
from typing import Literal, Protocol

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.kube.base import Conflict, KubeApi, NodeEvent
from dra_driver.model.events import (
    DeviceVanished,
    FieldsDropped,
    Observer,
    PublicationProblem,
    Published,
    PublishFailed,
    SliceLost,
    SliceWritten,
    ignore,
)
from dra_driver.model.ids import DeviceName, NodeName
from dra_driver.model.inventory import Inventory
from dra_driver.model.slices import (
    CreateSlice,
    DeleteSlice,
    PublishedDevice,
    SliceChange,
    StoredSlice,
    UpdateSlice,
)
from dra_driver.planning.prepare import NodePlace
from dra_driver.planning.reconcile import dropped_fields, plan_changes, same_devices, slice_name
from dra_driver.planning.slices import PoolPlan, plan_pool
from dra_driver.services.mirror import SliceMirror, delay_after

# Before what somebody else undid is put right the first, second, … time. The first pause lets one sweep of
# deletions (the kubelet's, at its start) arrive as a whole.
PATIENCE_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
QUIET_SECONDS = 600.0  # undisturbed for so long, patience starts anew
KEPT_SECONDS = 60.0  # how often it is asked whether a vanished device is still allocated
_STOP_SECONDS = 1.0  # how late the end of the process may be noticed
_CONFLICT_TRIES = 3


class Memory(Protocol):
    """What the slices held last, across restarts: the kubelet deletes them, and then nobody else knows a vanished device."""

    def read(self) -> tuple[PublishedDevice, ...]:
        """What was written last. Raises DriverError."""

    def write(self, devices: Sequence[PublishedDevice], /) -> None:
        """Remember this instead. Raises DriverError."""


class NoMemory:
    """Remembers nothing."""

    def read(self) -> tuple[PublishedDevice, ...]:
        return ()

    def write(self, _devices: Sequence[PublishedDevice], /) -> None:
        pass


@dataclass(frozen=True, slots=True)
class PublisherInputs:
    """Where this node's facts come from. `prepared_here` names devices that a prepared claim holds."""

    inventory: Callable[[], Inventory]
    prepared_here: Callable[[], frozenset[DeviceName]]
    set_kept: Callable[[Sequence[DeviceName]], None]
    memory: Memory = field(default_factory=NoMemory)


class Publisher:
    """Both threads' work. `published_once` is set after the first complete publication. `clock` is monotonic seconds."""

    def __init__(
        self,
        kube: KubeApi,
        inputs: PublisherInputs,
        *,
        place: NodePlace,
        observe: Observer = ignore,
        log: FilteringBoundLogger | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.published_once = Event()
        self._kube = kube
        self._inputs = inputs
        self._place = place
        self._observe = observe
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._clock = clock
        self._mirror = SliceMirror(
            kube, changed=self.wake, observe=observe, log=self._log, clock=clock
        )
        self._changed = Condition()
        self._due = inf
        self._failures = 0
        self._patience = _Patience()
        self._settled: PoolPlan | None = None  # what the API server was last brought to hold
        self._last: PoolPlan | None = None  # what was last wished, whether or not it was written
        self._remembered: tuple[PublishedDevice, ...] | None = (
            None  # what the memory holds, if it could be read
        )
        self._kept: tuple[PublishedDevice, ...] = ()
        self._vanished: frozenset[DeviceName] = frozenset()
        # By slice: a wish, and what the API server made of it.
        self._adopted: dict[str, tuple[tuple[PublishedDevice, ...], tuple[PublishedDevice, ...]]]
        self._adopted = {}
        self._told: set[tuple[str, str]] = set()

    def watch(self, stop: Event, *, wait: Callable[[Event, float], bool] = Event.wait) -> None:
        """Follow the API server's slices until `stop`."""
        self._mirror.watch(stop, wait=wait)

    def run(self, stop: Event) -> None:
        """Publish whenever something is due, until `stop`."""
        while not stop.is_set():
            self.step()
            with self._changed:
                seconds = min(max(self._due - self._clock(), 0.0), _STOP_SECONDS)
                if seconds:
                    self._changed.wait(seconds)

    def wake(self) -> None:
        """Something changed: look now."""
        self._look_in(0.0)

    def released(self) -> None:
        """A claim was unprepared: a vanished device may leave its slice now, if there is one."""
        if self._kept:
            self.wake()

    def step(self) -> None:
        """Look and publish, if it is due."""
        with self._changed:
            if self._due > self._clock():
                return
            self._due = inf
        if self._mirror.present() is None:
            return  # the first list wakes us
        again = PATIENCE_SECONDS[-1]  # also after an error that nobody foresaw
        try:
            again = self._publish()
            self._failures = 0
        except DriverError as error:
            again = self._failed(error)
        finally:
            self._look_in(again)

    def _look_in(self, seconds: float) -> None:
        with self._changed:
            self._due = min(self._due, self._clock() + seconds)
            self._changed.notify_all()

    def _failed(self, error: DriverError) -> float:
        delay = delay_after(error, self._failures)
        self._failures += 1
        self._observe(PublishFailed(str(error), delay))
        if isinstance(error, Permanent):
            self._tell_node("PublishFailed", str(error), key=("PublishFailed", str(error)))
        return delay

    def _publish(self) -> float:
        """Bring the API server up to date; answers in how many seconds to look again without being woken."""
        for tries in range(_CONFLICT_TRIES):
            plan = self._plan()
            changes = self._changes(plan)
            if changes and not tries and (pause := self._pause(plan, changes)):
                return pause
            try:
                self._write(plan, changes)
            except Conflict as error:
                self._log.info(
                    "slice_conflict", error=str(error), next_step="the slices are listed again"
                )
                self._mirror.relist()
            else:
                return KEPT_SECONDS if self._kept else inf
        raise Temporary(
            f"somebody else changed the slices of pool {self._place.pool} {_CONFLICT_TRIES} times while they were "
            f"written; see whether a second driver runs under the name {self._place.driver} on this node"
        )

    def _pause(self, plan: PoolPlan, changes: Sequence[SliceChange]) -> float:
        """How long to wait first, when what is to be written was already there and somebody else undid it."""
        if self._settled is None or self._settled.slices != plan.slices:
            return 0.0
        fresh = not self._patience.waiting
        seconds = self._patience.pause(self._clock())
        if fresh:
            lost = [change.name for change in changes if isinstance(change, CreateSlice)]
            for name in lost:
                self._observe(SliceLost(name, seconds))
            if not lost:
                self._log.warning("slice_changed_by_somebody_else", restored_after_seconds=seconds)
        return seconds

    def _changes(self, plan: PoolPlan) -> tuple[SliceChange, ...]:
        names = self._names(plan)
        wanted = [
            self._as_stored(name, devices) for name, devices in zip(names, plan.slices, strict=True)
        ]
        present = tuple((self._mirror.present() or {}).values())
        return plan_changes(wanted, present, pool=self._place.pool, names=names)

    def _names(self, plan: PoolPlan) -> tuple[str, ...]:
        node = NodeName(self._place.pool)
        return tuple(
            slice_name(index, self._place.driver, node) for index in range(len(plan.slices))
        )

    def _as_stored(
        self, name: str, devices: tuple[PublishedDevice, ...]
    ) -> tuple[PublishedDevice, ...]:
        wished, stored = self._adopted.get(name, (None, ()))
        return stored if wished is not None and same_devices(wished, devices) else devices

    def _write(self, plan: PoolPlan, changes: Sequence[SliceChange]) -> None:
        self._remember(plan)
        restored = bool(changes) and self._patience.waiting
        self._settled = None
        wishes = dict(zip(self._names(plan), plan.slices, strict=True))
        for change in changes:
            stored = self._mirror.write(change)
            name, action = _written(change)
            self._observe(SliceWritten(name, action))
            if stored is not None:
                self._adopt(change, stored, wishes[name])
        self._settled = plan
        if restored:
            self._patience.restored(self._clock())
        else:
            self._patience.forget()
        if changes or not self.published_once.is_set():
            self._observe(Published(len(plan.devices), len(plan.slices)))
        self.published_once.set()
        for problem in plan.problems:
            if (problem.device, problem.subject) not in self._told:
                self._observe(PublicationProblem(problem))
            self._tell_node(
                "DeviceAttributeDropped", str(problem), key=(problem.device, problem.subject)
            )

    def _adopt(
        self, change: SliceChange, stored: StoredSlice, wish: tuple[PublishedDevice, ...]
    ) -> None:
        if isinstance(change, DeleteSlice) or same_devices(
            change.spec.devices, stored.spec.devices
        ):
            return
        self._adopted[stored.name] = wish, stored.spec.devices
        fields = dropped_fields(change.spec, stored.spec) or ("devices",)
        self._observe(FieldsDropped(stored.name, fields))

    # Vanished devices.

    def _plan(self) -> PoolPlan:
        inventory = self._inputs.inventory()
        gone = {
            name: device for name, device in self._known().items() if name not in inventory.by_name
        }
        kept = self._allocated(frozenset(gone)) if gone else frozenset()
        for name in sorted(gone.keys() - self._vanished):
            self._observe(DeviceVanished(name, kept=name in kept))
        for name in sorted({device.name for device in self._kept} & (gone.keys() - kept)):
            self._log.info("vanished_device_withdrawn", device=name)
        self._vanished = frozenset(gone)
        self._kept = tuple(device for name, device in gone.items() if name in kept)
        self._inputs.set_kept([device.name for device in self._kept])
        plan = plan_pool(inventory, kept=self._kept)
        self._last = plan
        return plan

    def _known(self) -> Mapping[DeviceName, PublishedDevice]:
        """Every device that the cluster may have seen, in the order of publication."""
        slices = self._mirror.present() or {}
        remembered = {device.name: device for device in self._recall()}
        present = {
            device.name: device
            for name in sorted(slices)
            for device in slices[name].spec.devices
            if slices[name].spec.pool == self._place.pool
        }
        return {**remembered, **present, **(self._last.devices if self._last else {})}

    def _recall(self) -> tuple[PublishedDevice, ...]:
        if self._remembered is None:
            try:
                self._remembered = self._inputs.memory.read()
            except DriverError as error:
                self._log.warning(
                    "publication_not_recalled", error=str(error), next_step="it is tried again"
                )
        return self._remembered or ()

    def _remember(self, plan: PoolPlan) -> None:
        """Before it is written, so that nothing is ever published that is not remembered. Costs a warning when it fails."""
        devices = tuple(plan.devices.values())
        if same_devices(devices, self._remembered or ()):
            return
        try:
            self._inputs.memory.write(devices)
            self._remembered = devices
        except DriverError as error:
            self._log.warning(
                "publication_not_remembered",
                error=str(error),
                next_step="it is published all the same, and remembered with the next change",
            )

    def _allocated(self, names: frozenset[DeviceName]) -> frozenset[DeviceName]:
        """Devices that a claim holds, these among them. Who cannot be asked may have said yes, so the answer is yes then."""
        try:
            here = self._inputs.prepared_here() & names
            if here == names:
                return here
            claims = self._kube.allocated_claims(self._place.pool)
        except DriverError as error:
            self._log.warning(
                "allocations_unknown",
                error=str(error),
                next_step="vanished devices stay in the slices; it is asked again",
            )
            return names
        return here | {
            result.device
            for claim in claims
            for result in claim.results or ()
            if (result.driver, result.pool) == (self._place.driver, self._place.pool)
        }

    def _tell_node(self, reason: str, message: str, *, key: tuple[str, str]) -> None:
        """Say it once on the Node object."""
        if key in self._told:
            return
        self._told.add(key)
        try:
            self._kube.emit_event(NodeEvent("Warning", reason, message))
        except DriverError as error:
            self._log.warning("event_not_written", reason=reason, error=str(error))


class _Patience:
    """How long to let somebody's change stand before it is undone: longer each time, until it was quiet for a while."""

    def __init__(self) -> None:
        self._times = 0
        self._last = -inf
        self._until: float | None = None

    @property
    def waiting(self) -> bool:
        return self._until is not None

    def pause(self, now: float) -> float:
        """Seconds left of the pause, which begins with the first call."""
        if self._until is None:
            if now - self._last > QUIET_SECONDS:
                self._times = 0
            self._until = now + PATIENCE_SECONDS[min(self._times, len(PATIENCE_SECONDS) - 1)]
        return max(self._until - now, 0.0)

    def restored(self, now: float) -> None:
        self._times += 1
        self._last = now
        self._until = None

    def forget(self) -> None:
        """What was to be undone went away by itself, or by a change of ours."""
        self._until = None


def _written(change: SliceChange) -> tuple[str, Literal["create", "update", "delete"]]:
    match change:
        case CreateSlice(name):
            return name, "create"
        case UpdateSlice(present):
            return present.name, "update"
        case DeleteSlice(present):
            return present.name, "delete"
