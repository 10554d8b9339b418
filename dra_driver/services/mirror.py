# SPDX-License-Identifier: Apache-2.0
"""What the API server holds of this node's slices, followed by one list and then a watch.

Two threads know news: the watch hears of every change, and the writer gets an answer to each write, or looks again after a
conflict. Either may be first, so four rules keep the mirror true:

* Of two versions of one object the one with the larger resource version counts.
* What the watch saw deleted stays deleted, also when the answer to its creation arrives later.
* An answer to a write that began before the last list is not taken: the list has it, or the watch will tell it.
* A look of the writer's takes nothing back that the watch told meanwhile; only the list that a watch begins with replaces
  everything.
"""

import time
from collections.abc import Callable, Mapping
from threading import Event, Lock

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.kube.base import Expired, KubeApi, NotServed, SliceEvent, SliceList
from dra_driver.model.events import Observer, PublishFailed, ThreadFailed, ignore
from dra_driver.model.slices import DeleteSlice, SliceChange, StoredSlice
from dra_driver.services.pace import RETRY_SECONDS, delay_after, step_of

STEADY_SECONDS = (
    60.0  # a watch that lived so long was no failure: the next delay is the first again
)
WHOLE_WATCH_SECONDS = (
    290.0  # a server that ends a watch sooner was not asked to (see dra_driver.kube.http)
)


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

    def look_again(self) -> None:
        """Ask for all slices anew, on the writer's thread, which needs no call of `changed`."""
        with self._mutex:
            lists = self._lists
        listed = self._kube.list_slices()
        with self._mutex:
            if lists == self._lists:  # else the watch began anew, and knows more than this
                self._slices = self._merged(listed)

    def _merged(self, listed: SliceList) -> Mapping[str, StoredSlice]:
        """What is listed, but for what the watch knows better. Call with the lock held."""
        slices = {
            stored.name: stored for stored in listed.slices if stored.uid not in self._deleted
        }
        for name, stored in (self._slices or {}).items():
            present = slices.get(name)
            than = present.resource_version if present else listed.resource_version
            if _is_later(stored.resource_version, than):
                slices[name] = stored
        return slices

    def _list(self) -> str:
        """Where a watch begins: all slices, and the version that they are of."""
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
            except Exception as error:  # noqa: BLE001  also what nobody foresaw: without the mirror nothing is published
                if self._clock() - begun > STEADY_SECONDS:
                    tries = 0
                delay = self._report(error, tries)
                tries += 1
            else:
                return
            wait(stop, delay)

    def _follow(self, stop: Event, wait: Callable[[Event, float], bool]) -> None:
        version, early_ends = self._list(), 0
        while not stop.is_set():
            begun = self._clock()
            for event in self._kube.watch_slices(version, stop):
                version = event.resource_version
                self._take(event)
            lived = self._clock() - begun
            if stop.is_set() or lived >= WHOLE_WATCH_SECONDS:
                early_ends = 0
                continue
            # The server was restarted. If its data are older now, our version lies in its future, and a watch from there would
            # be silent until then.
            early_ends = 0 if lived > STEADY_SECONDS else early_ends
            wait(stop, step_of(RETRY_SECONDS, early_ends))
            early_ends += 1
            version = self._list()

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

    def _report(self, error: Exception, tries: int) -> float:
        delay = delay_after(error, tries)
        match error:
            case Expired():
                self._log.info("watch_expired", next_step="the slices are listed again")
            case NotServed():
                self._tell_unserved(error, delay)
            case DriverError():
                self._observe(
                    PublishFailed(f"cannot follow the slices of this node: {error}", delay)
                )
            case _:
                self._log.error("watch_failed_unexpectedly", exc_info=error)
                self._observe(ThreadFailed("watch", f"{type(error).__name__}: {error}", delay))
        return delay

    def _tell_unserved(self, error: NotServed, delay: float) -> None:
        if self._unserved_told:
            return
        self._unserved_told = True
        self._observe(PublishFailed(str(error), delay))
        self._log.error(
            "resource_api_not_served",
            error=str(error),
            next_step="use Kubernetes 1.32 or later with the API group resource.k8s.io enabled; "
            "the driver stays up and asks again",
        )


def _is_newer(found: StoredSlice, known: StoredSlice) -> bool:
    """Whether news are news; where resource versions are no numbers, what comes later is."""
    if found.resource_version.isdecimal() and known.resource_version.isdecimal():
        return _is_later(found.resource_version, known.resource_version)
    return found.resource_version != known.resource_version


def _is_later(version: str, than: str) -> bool:
    """Resource versions of one kind grow as numbers; where they are none, nothing can be said."""
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)
