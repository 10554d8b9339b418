# SPDX-License-Identifier: Apache-2.0
"""What the API server holds of this node's slices, followed by one list and then a watch.

Two threads know news: the watch hears of every change, and the writer gets an answer to each write. Either may be first,
so three rules keep the mirror true:

* Of two versions of one object the one with the larger resource version counts.
* What the watch saw deleted stays deleted, also when the answer to its creation arrives later.
* An answer to a write that began before the last list is not taken: the list has it, or the watch will tell it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Lock

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.kube.base import Expired, KubeApi, NotServed, SliceEvent
from dra_driver.model.events import Observer, PublishFailed, ignore
from dra_driver.model.slices import DeleteSlice, SliceChange, StoredSlice

RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
NOT_SERVED_SECONDS = (10.0, 30.0, 60.0, 120.0, 300.0)
PERMANENT_SECONDS = (60.0,)
STEADY_SECONDS = (
    60.0  # a watch that lived so long was no failure: the next delay is the first again
)
WHOLE_WATCH_SECONDS = (
    290.0  # a server that ends a watch sooner was not asked to (see dra_driver.kube.http)
)
EARLY_END_SECONDS = 1.0


class SliceMirror:
    """The slices by name; `changed` is called after each news, on whichever thread brought it."""

    def __init__(
        self,
        kube: KubeApi,
        *,
        changed: Callable[[], None],
        observe: Observer = ignore,
        log: FilteringBoundLogger | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._changed = changed
        self._observe = observe
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._clock = clock
        self._mutex = Lock()
        self._slices: Mapping[str, StoredSlice] | None = None
        self._lists = 0
        self._deleted: set[str] = set()  # UIDs, since the last list
        self._unserved_told = False

    def present(self) -> Mapping[str, StoredSlice] | None:
        """The slices by name; None before the first list."""
        with self._mutex:
            return self._slices

    def write(self, change: SliceChange) -> StoredSlice | None:
        """Carry out one change and know its outcome. Raises what the API server answers."""
        with self._mutex:
            lists = self._lists
        stored = self._kube.apply_slice_change(change)
        with self._mutex:
            if lists == self._lists:
                self._remember(change, stored)
        return stored

    def _remember(self, change: SliceChange, stored: StoredSlice | None) -> None:
        slices = dict(self._slices or {})
        if isinstance(change, DeleteSlice):
            known = slices.get(change.present.name)
            if known is not None and known.uid == change.present.uid:
                del slices[known.name]
        elif stored is not None and stored.uid not in self._deleted:
            known = slices.get(stored.name)
            if known is None or _is_newer(stored, known):
                slices[stored.name] = stored
        self._slices = slices

    def relist(self) -> str:
        """Ask for all slices anew; answers the list's resource version."""
        listed = self._kube.list_slices()
        self._unserved_told = False
        with self._mutex:
            self._slices = {stored.name: stored for stored in listed.slices}
            self._lists += 1
            self._deleted.clear()
        self._changed()
        return listed.resource_version

    def watch(self, stop: Event, *, wait: Callable[[Event, float], bool] = Event.wait) -> None:
        """List, then watch, until `stop`; after an error again, each time after a longer pause."""
        tries = 0
        while not stop.is_set():
            begun = self._clock()
            try:
                self._follow(stop, wait)
            except Expired:
                self._log.info("watch_expired", next_step="the slices are listed again")
                delay = EARLY_END_SECONDS
            except DriverError as error:
                if self._clock() - begun > STEADY_SECONDS:
                    tries = 0
                delay = self._report(error, tries)
                tries += 1
            else:
                return
            wait(stop, delay)

    def _follow(self, stop: Event, wait: Callable[[Event, float], bool]) -> None:
        version = self.relist()
        while not stop.is_set():
            begun = self._clock()
            for event in self._kube.watch_slices(version, stop):
                version = event.resource_version
                self._take(event)
            if stop.is_set() or self._clock() - begun >= WHOLE_WATCH_SECONDS:
                continue
            # The server was restarted. If its data are older now, our version lies in its future, and a watch from there would
            # be silent until then.
            wait(stop, EARLY_END_SECONDS)
            version = self.relist()

    def _take(self, event: SliceEvent) -> None:
        found = event.slice
        if found is None:
            return
        with self._mutex:
            slices = dict(self._slices or {})
            known = slices.get(found.name)
            if event.type == "DELETED":
                self._deleted.add(found.uid)
                if known is None or known.uid != found.uid:
                    return  # we deleted it, or it was made anew since
                del slices[found.name]
            else:
                if known is not None and not _is_newer(found, known):
                    return  # what we wrote comes back
                slices[found.name] = found
            self._slices = slices
        self._changed()

    def _report(self, error: DriverError, tries: int) -> float:
        delay = delay_after(error, tries)
        if not isinstance(error, NotServed):
            self._observe(PublishFailed(f"cannot follow the slices of this node: {error}", delay))
        elif not self._unserved_told:
            self._unserved_told = True
            self._observe(PublishFailed(str(error), delay))
            self._log.error(
                "resource_api_not_served",
                error=str(error),
                next_step="use Kubernetes 1.32 or later with the API group resource.k8s.io enabled; "
                "the driver stays up and asks again",
            )
        return delay


def delay_after(error: DriverError, tries: int) -> float:
    """Seconds before the next try after `tries` earlier failures; never sooner than the API server asked for."""
    match error:
        case NotServed():
            table: Sequence[float] = NOT_SERVED_SECONDS
        case Permanent():
            table = PERMANENT_SECONDS
        case _:
            table = RETRY_SECONDS
    asked = error.retry_after_seconds if isinstance(error, Temporary) else None
    return max(table[min(tries, len(table) - 1)], asked or 0.0)


def _is_newer(found: StoredSlice, known: StoredSlice) -> bool:
    """Resource versions of one kind grow as numbers; where they are none, the later news counts."""
    if found.resource_version.isdecimal() and known.resource_version.isdecimal():
        return int(found.resource_version) > int(known.resource_version)
    return found.resource_version != known.resource_version
