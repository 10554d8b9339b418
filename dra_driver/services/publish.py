# SPDX-License-Identifier: Apache-2.0
"""Keep the ResourceSlices of this node as they should be.

Two threads: `watch` mirrors the driver's slices from the API server; `run` is the only writer. It wakes when the
inventory changed or the mirror did, decides (`dra_driver.planning`), and writes what differs, which is usually nothing.
While nothing changes, the watch is the only request.

* A slice that somebody deletes comes back at once; who deletes again and again is met with growing patience.
* A device that vanished while a claim names it stays in its slice. Whether one does is asked only then.
* What the API server does not store is reported, and from then on taken as the wish.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Condition, Event

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.kube.base import Conflict, Expired, KubeApi, NodeEvent, SliceEvent
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
    Problem,
    PublishedDevice,
    SliceChange,
    SliceSpec,
    StoredSlice,
    UpdateSlice,
)
from dra_driver.planning.prepare import NodePlace
from dra_driver.planning.reconcile import dropped_fields, plan_changes, slice_name
from dra_driver.planning.slices import PoolPlan, plan_pool

RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
NOT_SERVED_SECONDS = 300.0  # the longest wait while the cluster serves no resource.k8s.io
PERMANENT_SECONDS = 60.0
LOST_SECONDS = (
    0.0,
    1.0,
    2.0,
    5.0,
    15.0,
    60.0,
)  # before the first, second, … deleted slice comes back
QUIET_SECONDS = 600.0  # without a loss for so long, patience starts anew
KEPT_SECONDS = 60.0  # how often it is asked whether a vanished device is still allocated
SHORTEST_WATCH_SECONDS = 1.0
_IDLE_SECONDS = 1.0
_CONFLICT_TRIES = 3


@dataclass(frozen=True, slots=True)
class PublisherInputs:
    """Where this node's facts come from. `prepared_here` names devices that a prepared claim holds."""

    inventory: Callable[[], Inventory]
    prepared_here: Callable[[], frozenset[DeviceName]]
    set_kept: Callable[[Sequence[DeviceName]], None]


class Publisher:
    """Both threads' work. `clock` is monotonic seconds; `wait` is `Event.wait`, injected by tests."""

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
        self._changed = Condition()
        self._present: Mapping[str, StoredSlice] | None = None  # None: not listed yet
        self._due = 0.0
        self._losses = 0
        self._last_loss = 0.0
        self._failures = 0
        self._last_plan: PoolPlan | None = None
        self._kept: tuple[PublishedDevice, ...] = ()
        self._adopted: dict[
            int, tuple[tuple[PublishedDevice, ...], tuple[PublishedDevice, ...]]
        ] = {}
        self._told: set[Problem] = set()

    # The mirror of the API server's slices.

    def watch(self, stop: Event, *, wait: Callable[[Event, float], bool] = Event.wait) -> None:
        """List, then watch, until `stop`. Errors are reported and tried again after a growing time."""
        tries = 0
        while not stop.is_set():
            begun = self._clock()
            try:
                self._mirror(stop)
            except Expired:
                self._log.info("watch_expired", next_step="listing again")
            except DriverError as error:
                longest = NOT_SERVED_SECONDS if isinstance(error, Temporary) else PERMANENT_SECONDS
                delay = min(
                    _delay(tries, error)
                    if tries < len(RETRY_SECONDS)
                    else RETRY_SECONDS[-1] * 2 ** (tries - 5),
                    longest,
                )
                self._observe(
                    PublishFailed(f"cannot watch the slices of this node: {error}", delay)
                )
                wait(stop, delay)
                tries = tries + 1 if self._clock() - begun < QUIET_SECONDS else 0
                continue
            tries = 0
            if self._clock() - begun < SHORTEST_WATCH_SECONDS:
                wait(stop, SHORTEST_WATCH_SECONDS)

    def _mirror(self, stop: Event) -> None:
        listed = self._kube.list_slices()
        self._replace(listed.slices)
        version = listed.resource_version
        while not stop.is_set():
            begun = self._clock()
            for event in self._kube.watch_slices(version, stop):
                version = event.resource_version
                self._take(event)
            if self._clock() - begun < SHORTEST_WATCH_SECONDS:
                return  # a server that ends watches at once is listed again, after a pause

    def _replace(self, slices: Sequence[StoredSlice]) -> None:
        with self._changed:
            self._present = {stored.name: stored for stored in slices}
            self._wake_locked(0.0)

    def _take(self, event: SliceEvent) -> None:
        found = event.slice
        if found is None:
            return
        with self._changed:
            present = dict(self._present or {})
            known = present.get(found.name)
            if event.type == "DELETED":
                if known is None or known.uid != found.uid:
                    return  # our own deletion, or of a slice that was made anew since
                del present[found.name]
                delay = self._lost_locked(found.name)
            else:
                if known is not None and not _newer(found, known):
                    return  # what we wrote ourselves comes back
                present[found.name] = found
                delay = 0.0
            self._present = present
            self._wake_locked(delay)

    def _lost_locked(self, name: str) -> float:
        now = self._clock()
        if now - self._last_loss > QUIET_SECONDS:
            self._losses = 0
        delay = LOST_SECONDS[min(self._losses, len(LOST_SECONDS) - 1)]
        self._losses += 1
        self._last_loss = now
        self._observe(SliceLost(name, delay))
        return delay

    # The only writer.

    def wake(self) -> None:
        """Something changed: look now."""
        with self._changed:
            self._wake_locked(0.0)

    def released(self) -> None:
        """A claim was unprepared: a vanished device that it held may go now."""
        if self._kept:
            self.wake()

    def run(self, stop: Event) -> None:
        """Publish whenever something is due, until `stop`."""
        while not stop.is_set():
            self.step()
            with self._changed:
                seconds = min(max(self._due - self._clock(), 0.0), _IDLE_SECONDS)
                if seconds:
                    self._changed.wait(seconds)

    def step(self) -> None:
        """Publish if it is due; sets when it is due again."""
        with self._changed:
            if self._present is None or self._due > self._clock():
                if self._present is None:
                    self._due = self._clock() + _IDLE_SECONDS
                return
            self._due = float("inf")
        try:
            self._publish()
        except DriverError as error:
            self._failed(error)
            return
        self._failures = 0
        self.published_once.set()
        if self._kept:
            with self._changed:
                self._wake_locked(KEPT_SECONDS)

    def _wake_locked(self, delay: float) -> None:
        self._due = min(self._due, self._clock() + delay)
        self._changed.notify_all()

    def _failed(self, error: DriverError) -> None:
        delay = _delay(self._failures, error) if isinstance(error, Temporary) else PERMANENT_SECONDS
        self._failures += 1
        self._observe(PublishFailed(str(error), delay))
        if isinstance(error, Permanent):
            self._tell_node("PublishFailed", str(error))
        with self._changed:
            self._due = self._clock() + delay

    def _publish(self) -> None:
        for _ in range(_CONFLICT_TRIES):
            try:
                self._publish_once()
            except Conflict as error:
                self._log.info("slice_conflict", error=str(error), next_step="listing again")
                self._replace(self._kube.list_slices().slices)
            else:
                return
        raise Temporary(
            f"the slices of this node were changed by somebody else {_CONFLICT_TRIES} times while writing them"
        )

    def _publish_once(self) -> None:
        with self._changed:
            present = dict(self._present or {})
        plan = self._plan(present)
        wanted = [self._as_stored(index, devices) for index, devices in enumerate(plan.slices)]
        names = [
            slice_name(index, self._place.driver, NodeName(self._place.pool))
            for index in range(len(wanted))
        ]
        changes = plan_changes(wanted, tuple(present.values()), pool=self._place.pool, names=names)
        for change in changes:
            self._write(change, plan, names)
        if changes or not self.published_once.is_set():
            self._observe(Published(len(plan.devices), len(plan.slices)))
        self._last_plan = plan
        for problem in plan.problems:
            self._tell_problem(problem)

    def _as_stored(
        self, index: int, devices: tuple[PublishedDevice, ...]
    ) -> tuple[PublishedDevice, ...]:
        wished, stored = self._adopted.get(index, ((), ()))
        return stored if wished == devices and wished else devices

    def _write(self, change: SliceChange, plan: PoolPlan, names: Sequence[str]) -> None:
        stored = self._kube.apply_slice_change(change)
        with self._changed:
            present = dict(self._present or {})
            if isinstance(change, DeleteSlice):
                present.pop(change.present.name, None)
            elif stored is not None:
                present[stored.name] = stored
            self._present = present
        match change:
            case DeleteSlice(before):
                self._observe(SliceWritten(before.name, "delete"))
            case UpdateSlice(before, spec):
                self._observe(SliceWritten(before.name, "update"))
                self._adopt(names.index(before.name), plan, spec, stored)
            case CreateSlice(name, spec):
                self._observe(SliceWritten(name, "create"))
                self._adopt(names.index(name), plan, spec, stored)

    def _adopt(
        self, index: int, plan: PoolPlan, written: SliceSpec, stored: StoredSlice | None
    ) -> None:
        dropped = dropped_fields(written, stored.spec) if stored is not None else ()
        if stored is not None and dropped:
            self._adopted[index] = plan.slices[index], stored.spec.devices
            self._observe(FieldsDropped(stored.name, dropped))

    # Vanished devices.

    def _plan(self, present: Mapping[str, StoredSlice]) -> PoolPlan:
        inventory = self._inputs.inventory()
        known = {
            device.name: device for stored in present.values() for device in stored.spec.devices
        }
        known |= self._last_plan.devices if self._last_plan else {}
        # A device that only has a bad name today was never published; it cannot be among these.
        gone = {name: device for name, device in known.items() if name not in inventory.by_name}
        kept = self._allocated(frozenset(gone)) if gone else frozenset()
        before = {device.name for device in self._kept}
        self._kept = tuple(gone[name] for name in sorted(kept))
        for name in sorted(gone.keys() - before):
            self._observe(DeviceVanished(name, kept=name in kept))
        self._inputs.set_kept([device.name for device in self._kept])
        return plan_pool(inventory, kept=self._kept)

    def _allocated(self, names: frozenset[DeviceName]) -> frozenset[DeviceName]:
        here = self._inputs.prepared_here() & names
        if here == names:
            return here
        try:
            claims = self._kube.allocated_claims(self._place.pool)
        except DriverError as error:
            # Who cannot be asked may say "allocated"; the kept devices are asked about again.
            self._log.warning(
                "allocations_unknown",
                error=str(error),
                next_step="vanished devices stay in the slices",
            )
            return names
        allocated = {
            result.device
            for claim in claims
            for result in claim.results or ()
            if (result.driver, result.pool) == (self._place.driver, self._place.pool)
        }
        return here | (names & allocated)

    # Words for the Node object.

    def _tell_problem(self, problem: Problem) -> None:
        if problem in self._told:
            return
        self._told.add(problem)
        self._observe(PublicationProblem(problem))
        self._tell_node("DeviceAttributeDropped", str(problem))

    def _tell_node(self, reason: str, message: str) -> None:
        try:
            self._kube.emit_event(NodeEvent("Warning", reason, message))
        except DriverError as error:
            self._log.warning("event_not_written", reason=reason, error=str(error))


def _delay(tries: int, error: DriverError) -> float:
    asked = error.retry_after_seconds if isinstance(error, Temporary) else None
    return max(RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)], asked or 0.0)


def _newer(found: StoredSlice, known: StoredSlice) -> bool:
    """Whether an event tells more than what we hold. Resource versions of one object grow as numbers."""
    if found.uid != known.uid or not (
        found.resource_version.isdigit() and known.resource_version.isdigit()
    ):
        return True
    return int(found.resource_version) > int(known.resource_version)
