# SPDX-License-Identifier: Apache-2.0
"""A copy of this node's slices at the API server, kept by a list and a watch (client-go calls this an informer).

Two threads change the copy. The watch reports every change. The writer gets the answer to each write, and lists again after a
conflict. The answer to a write may come before or after the watch event, so four rules keep the copy right:

* Of two versions of one object the one with the larger resourceVersion is newer.
* An object that the watch reported as deleted stays deleted, even if the answer to its creation arrives later.
* The answer to a write is ignored if the watch thread has listed the slices since the write began: the list has the object, or the
  watch will report it.
* A list by the writer does not undo what the watch reported in the meantime. Only the list at the beginning of a watch replaces
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

STEADY_SECONDS = 60.0  # after a watch of this length the next pause is the shortest again
WHOLE_WATCH_SECONDS = 290.0  # less than the shortest watch that the driver asks for (dra_driver.kube.http): one that ends sooner was cut off


class SliceMirror:
    """The slices by name. `changed` is called after each list and each change that the watch reports, on the thread of the watch. With
    `expects_claims=False` the admin chose another API for the devices, and a cluster without slices is as it should be.
    """

    def __init__(
        self,
        kube: KubeApi,
        *,
        changed: Callable[[], None],
        expects_claims: bool = True,
        observe: Observer = ignore,
        log: FilteringBoundLogger | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._changed = changed
        self._expects_claims = expects_claims
        self._observe = observe
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._clock = clock
        self._mutex = Lock()
        self._slices: Mapping[str, StoredSlice] | None = None
        self._lists = 0
        self._deleted: set[str] = set()  # UIDs, since the last list
        self._unserved_told = False

    def present(self) -> Mapping[str, StoredSlice] | None:
        """Return the slices by name; None before the first list."""
        with self._mutex:
            return self._slices

    def write(self, change: SliceChange) -> StoredSlice | None:
        """Write one change and keep the result. Raises the error of the API server."""
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
        """List all slices again. Only the writer calls this, so it does not call `changed`, which would wake the writer."""
        with self._mutex:
            lists = self._lists
        listed = self._kube.list_slices()
        with self._mutex:
            # Otherwise the watch thread has listed since, and its list is newer.
            if lists == self._lists:
                self._slices = self._merged(listed)

    def _merged(self, listed: SliceList) -> Mapping[str, StoredSlice]:
        """Return the listed slices, with newer versions that the watch has reported. The caller has the mutex."""
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
        """List all slices. Returns the resourceVersion to watch from."""
        listed = self._kube.list_slices()
        self._unserved_told = False
        with self._mutex:
            self._slices = {stored.name: stored for stored in listed.slices}
            self._lists += 1
            self._deleted.clear()
        self._changed()
        return listed.resource_version

    def watch(self, stop: Event, *, wait: Callable[[Event, float], bool] = Event.wait) -> None:
        """List and watch until `stop`. After each error the pause is longer."""
        tries = 0
        while not stop.is_set():
            begun = self._clock()
            try:
                self._follow(stop, wait)
            except Exception as error:  # noqa: BLE001  also an unexpected error: without the mirror nothing is published
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
            # The watch ended early. The API server may have restarted from a backup. Then our resourceVersion is newer than any that
            # the server has, and a watch from it would report nothing. So wait, longer after each early end, and list again.
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
                    return  # this driver deleted it, or it was created again since
                del slices[found.name]
            else:
                if known is not None and not _is_newer(found, known):
                    return  # the driver's own write, reported by the watch
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
        if not self._expects_claims:
            self._log.info(
                "resource_api_not_served",
                error=str(error),
                next_step="nothing has to be done: the devices are offered by the device plugin API, as the configuration says (path)",
            )
            return
        self._observe(PublishFailed(str(error), delay))
        self._log.error(
            "resource_api_not_served",
            error=str(error),
            next_step="use Kubernetes 1.32 or later with the API group resource.k8s.io enabled; until then the device plugin API "
            "offers the devices, and the driver asks again",
        )


def _is_newer(found: StoredSlice, known: StoredSlice) -> bool:
    """Whether `found` is newer. If a resourceVersion is no number, any different one is taken as newer."""
    if found.resource_version.isdecimal() and known.resource_version.isdecimal():
        return _is_later(found.resource_version, known.resource_version)
    return found.resource_version != known.resource_version


def _is_later(version: str, than: str) -> bool:
    """Whether `version` is a larger resourceVersion than `than`. False if one of them is no number."""
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)
