# SPDX-License-Identifier: Apache-2.0
"""Keep the ResourceSlices of this node as they should be.

Two threads do this. `watch` keeps a copy of the driver's slices (`dra_driver.services.mirror`). `run` is the only writer: it
wakes up when the inventory or the copy changes, plans (`dra_driver.planning`), and writes the differences, if there are any. While
nothing changes, the watch is the only request.

* If somebody deletes or changes a slice, in any field, the driver writes the slice again. If that happens again and again, the
  driver waits longer each time.
* A device that vanished while a claim owns it stays in its slice with a taint (`dra_driver.services.vanished`).
* If the API server stores other values than the driver wrote, the driver reports the fields, and accepts the stored values from
  then on.
* If an object of somebody else has the name of a slice, the driver writes an Event on the Node and uses another name.
* After each error the next pause is longer. A change of the inventory or of the copy ends a pause only during the first tries.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from threading import Condition, Event
from typing import Literal

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.kube.base import Conflict, KubeApi, NameTaken, NotFound
from dra_driver.model.api.compare import same
from dra_driver.model.api.resource_slice import ResourcePool, ResourceSliceSpec
from dra_driver.model.events import (
    FieldsDropped,
    NameEvaded,
    Observer,
    PublicationProblem,
    Published,
    PublishFailed,
    SliceLost,
    SliceWritten,
    ThreadFailed,
    ignore,
)
from dra_driver.model.ids import NodeName
from dra_driver.model.names import PUBLISH_FAILED, SLICE_NAME_TAKEN
from dra_driver.model.slices import (
    CreateSlice,
    DeleteSlice,
    SliceChange,
    SliceContent,
    StoredSlice,
    UpdateSlice,
    content_of,
)
from dra_driver.planning.prepare import NodePlace
from dra_driver.planning.reconcile import dropped_fields, plan_changes
from dra_driver.planning.slices import PoolPlan
from dra_driver.planning.unrestricted import gates_in
from dra_driver.services.mirror import SliceMirror
from dra_driver.services.node_events import NodeEvents
from dra_driver.services.pace import Backoff, Patience
from dra_driver.services.served_fields import ServedFields
from dra_driver.services.slice_names import SliceNames
from dra_driver.services.vanished import PoolWish, PublisherInputs

# After a prepare call the thread looks at the owners of hardware; later than that, so that it does not delay the answer, and once for many calls.
_OWNERS_SECONDS = 0.1
_STOP_SECONDS = 1.0  # after `stop` the thread may go on for so long
_CONFLICT_TRIES = 3


class _Accepted(Struct, frozen=True):
    """What the driver wanted in a slice, and what the API server stored instead."""

    wish: SliceContent
    stored: SliceContent
    unlike: Mapping[str, str]


class Publisher:
    """Does the work of both threads. `published_once` is set after the first complete publication. `clock` is monotonic seconds.

    Only `run` writes, so two writes of this process never conflict. `_settled` is the plan that was last written completely. If the
    new plan is the same and the slices differ from it, somebody else changed the slices. Only then the driver waits (`_patience`)
    before it writes; it writes a change of the hardware at once.
    """

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
        self._place = place
        self._observe = observe
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._clock = clock
        self._mirror = SliceMirror(
            kube,
            changed=self.wake,
            expects_claims=inputs.expects_claims,
            observe=observe,
            log=self._log,
            clock=clock,
        )
        self._served = ServedFields(kube, place, clock=clock)
        self._wish = PoolWish(
            inputs,
            kube.allocated_claims,
            server=self._served.rules,
            place=place,
            observe=observe,
            log=self._log,
            clock=clock,
        )
        self._node = NodeEvents(kube.emit_event, log=self._log, clock=clock)
        self._head = ResourceSliceSpec(
            driver=place.driver, node_name=place.pool, pool=ResourcePool(name=place.pool)
        )
        self._names = SliceNames(place.driver, NodeName(place.pool))
        self._changed = Condition()
        self._due = inf
        self._owners_due = inf
        self._has_released = False
        self._news = False
        self._backoff = Backoff()
        self._patience = Patience()
        self._settled: PoolPlan | None = None  # what was last written completely
        self._accepted: dict[str, _Accepted] = {}  # by the slice's name

    def watch(self, stop: Event, *, wait: Callable[[Event, float], bool] = Event.wait) -> None:
        """Follow the slices at the API server until `stop`."""
        self._mirror.watch(stop, wait=wait)

    def run(self, stop: Event) -> None:
        """Publish whenever something is due, until `stop`."""
        while not stop.is_set():
            self.step()
            with self._changed:
                due = -inf if self._has_released else min(self._due, self._owners_due)
                seconds = min(max(due - self._clock(), 0.0), _STOP_SECONDS)
                if seconds:
                    self._changed.wait(seconds)

    def wake(self) -> None:
        """Publish now, because the inventory or the slices changed."""
        with self._changed:
            self._news = True
        self._look_in(0.0)

    def prepared(self) -> None:
        """Publish soon if a new owner has hardware that the scheduler would give away under another name."""
        with self._changed:
            self._owners_due = min(self._owners_due, self._clock() + _OWNERS_SECONDS)
            self._changed.notify_all()

    def released(self) -> None:
        """Publish now if a device is tainted because of a claim, or if other devices are held: a claim was unprepared, or released. It
        does not block.
        """
        with self._changed:
            self._has_released = True
            self._changed.notify_all()

    def step(self) -> None:
        """Plan and publish, if the next publication is due."""
        self._look_at_owners()
        with self._changed:
            if self._due > self._clock():
                return
            self._due, news, self._news = inf, self._news, False
        if self._mirror.present() is None:
            return  # the first list wakes this thread
        if self._backoff.allows(self._clock(), news=news):
            again = self._try()
        else:
            again = self._backoff.left(self._clock())
        self._look_in(min(again, self._node.flush()))

    def _look_at_owners(self) -> None:
        """Read the state after calls, in this thread, so that no call waits for it."""
        with self._changed:
            released, self._has_released = self._has_released, False
            prepared = self._owners_due <= self._clock()
            if prepared:
                self._owners_due = inf
        if released and (self._wish.keeps_some or self._wish.held_changed()):
            self.wake()
        if prepared and self._wish.occupied_unseen():
            self.wake()

    def _look_in(self, seconds: float) -> None:
        with self._changed:
            self._due = min(self._due, self._clock() + seconds)
            self._changed.notify_all()

    def _try(self) -> float:
        """Publish once, and report errors. Returns the seconds until the next try, if nothing changes before."""
        try:
            again = self._publish()
        except DriverError as error:
            again = self._backoff.failed(error, self._clock())
            self._observe(PublishFailed(str(error), again))
            if isinstance(error, Permanent):
                self._node.say((PUBLISH_FAILED, str(error)), PUBLISH_FAILED, str(error))
        except Exception as error:  # noqa: BLE001  an unexpected error must not end publication
            again = self._backoff.failed(error, self._clock())
            self._log.error("publish_failed_unexpectedly", exc_info=error)
            self._observe(ThreadFailed("publish", f"{type(error).__name__}: {error}", again))
        else:
            self._backoff.succeeded()
        return again

    def _publish(self) -> float:
        """Write all differences. Returns the seconds until the next try, if nothing changes before."""
        rounds = self._backoff.tries_at_once(_CONFLICT_TRIES)
        for tries in range(rounds):
            plan = self._wish.plan(self._present())
            names = self._names.choose(len(plan.slices), self._present())
            changes = self._changes(plan, names)
            if changes and not tries and (pause := self._pause(plan, changes)):
                return pause
            try:
                self._write(plan, names, changes)
            except Conflict as error:
                self._log.info("slice_conflict", error=str(error), next_step="it is looked again")
                if tries:
                    self._backoff.tried()
                self._mirror.look_again()
                if isinstance(error, NameTaken):
                    self._evade(error.name, names)
            else:
                return min(self._wish.again_seconds, self._served.seconds_left())
        raise Temporary(
            f"somebody else changed the slices of pool {self._place.pool} {'once' if rounds == 1 else f'{rounds} times'} while "
            f"they were written; see whether a second driver runs under the name {self._place.driver} on this node"
        )

    def _present(self) -> Mapping[str, StoredSlice]:
        return self._mirror.present() or {}

    def _pause(self, plan: PoolPlan, changes: Sequence[SliceChange]) -> float:
        """Return the seconds to wait before writing: 0, unless the slices were as planned and somebody else changed them."""
        if self._settled is None or self._settled.slices != plan.slices:
            return 0.0
        fresh = not self._patience.waiting
        seconds = self._patience.pause(self._clock())
        if fresh:
            lost = [change.name for change in changes if isinstance(change, CreateSlice)]
            for name in lost:
                self._observe(SliceLost(name, seconds))
            if not lost:
                self._log.warning(
                    "slice_changed_by_somebody_else",
                    slices={written[0]: _found(change) for change, written in _named(changes)},
                    restored_after_seconds=seconds,
                )
        return seconds

    def _changes(self, plan: PoolPlan, names: tuple[str, ...]) -> tuple[SliceChange, ...]:
        wanted, accepted = [], {}
        for name, content in zip(names, plan.slices, strict=True):
            kept = self._accepted.get(name)
            if kept is not None and same(kept.wish, content):
                wanted.append(kept.stored)
                accepted[name] = kept.unlike
            else:
                wanted.append(content)
        return plan_changes(
            wanted,
            tuple(self._present().values()),
            head=self._head,
            names=names,
            accepted=accepted,
        )

    def _write(
        self, plan: PoolPlan, names: tuple[str, ...], changes: Sequence[SliceChange]
    ) -> None:
        self._wish.remember(plan)
        restored = bool(changes) and self._patience.waiting
        self._settled = None
        wishes = dict(zip(names, plan.slices, strict=True))
        for change, (name, action) in _named(changes):
            stored = self._mirror.write(change)
            self._observe(SliceWritten(name, action))
            if stored is not None:
                self._accept(change, stored, wishes[name])
        self._settled = plan
        if restored:
            self._patience.restored(self._clock())
        else:
            self._patience.forget()
        if changes or not self.published_once.is_set():
            self._observe(Published(len(plan.devices), len(plan.slices)))
        self.published_once.set()
        for problem in plan.problems:
            key = (f"{problem.kind} {problem.device}", problem.subject)
            if self._node.say(key, problem.reason, str(problem)):
                self._observe(PublicationProblem(problem))

    def _accept(self, change: SliceChange, stored: StoredSlice, wish: SliceContent) -> None:
        if isinstance(change, DeleteSlice) or (
            same(written := content_of(change.spec), stored.content) and not stored.unlike
        ):
            # Now the API server stores the slice as written, so forget the earlier difference. Otherwise the driver would expect a
            # value that the API server does not add any more, and would write the slice again at each publication.
            self._accepted.pop(stored.name, None)
            return
        # A gate was switched off since the dry run. The next publication, at once, withholds what must not be published without it.
        self._served.lost(gates_in(written) - gates_in(stored.content))
        self._accepted[stored.name] = _Accepted(wish, stored.content, stored.unlike)
        fields = (*dropped_fields(written, stored.content), *stored.unlike) or ("devices",)
        self._observe(FieldsDropped(stored.name, fields))

    # If an object of somebody else has a slice's name.

    def _evade(self, name: str, names: tuple[str, ...]) -> None:
        if name in self._present():
            return  # the driver's own: the answer to its creation was lost
        try:
            holder = self._kube.slice_holder(name)
        except NotFound:
            return  # deleted again
        except DriverError as error:
            uid, found = "", f"it could not be looked at: {error}"
        else:
            if (holder.driver, holder.node) == (self._place.driver, self._place.pool):
                return  # the driver's own: created since the last list
            uid, found = holder.uid, str(holder)
        instead = self._names.evade(name, names)
        self._observe(NameEvaded(name, found, instead))
        message = (
            f"the name {name} of this node's ResourceSlice belongs to somebody else: {found}; this node publishes under "
            f"{instead} instead. Find out who made it (kubectl get resourceslice {name} -o yaml) and delete it"
        )
        self._node.say((name, uid), SLICE_NAME_TAKEN, message)


def _named(
    changes: Sequence[SliceChange],
) -> list[tuple[SliceChange, tuple[str, Literal["create", "update", "delete"]]]]:
    return [(change, _written(change)) for change in changes]


def _written(change: SliceChange) -> tuple[str, Literal["create", "update", "delete"]]:
    match change:
        case CreateSlice(name):
            return name, "create"
        case UpdateSlice(present):
            return present.name, "update"
        case DeleteSlice(present):
            return present.name, "delete"


def _found(change: SliceChange) -> tuple[str, ...]:
    """The paths of the fields in which somebody else changed the slice."""
    match change:
        case CreateSlice():
            return ()
        case UpdateSlice(present, spec):
            changed = dropped_fields(content_of(spec), present.content)
            return (*changed, *present.unlike)
        case DeleteSlice(present):
            return tuple(present.unlike)
