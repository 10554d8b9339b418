# SPDX-License-Identifier: Apache-2.0
"""Which pods start to use a prepared claim, and does its allocation change?

The kubelet prepares a claim once, even if other pods use the claim later. And when a pod is removed from the API, the kubelet
forgets the pod while its containers may still run. So the driver watches each prepared claim at the API server and writes its pods
into the row. The driver also watches claims made from a template: another pod may name such a claim, because Kubernetes does not
check for which pod the claim was made.

At most MOST_WATCHES claims are watched; the driver polls the others. A watch reports new pods. But a watch without events proves
nothing, because its connection may be broken without an error. So before the driver releases a claim, it reads the claim once
more, unless the claim is *followed*: its watch had an event within the last FRESH_SECONDS. If the watch has not delivered the
version that is read then, the driver also reads the changes in between. They may name a pod that is gone from the API again.

A watch begins when the node is quiet: no call for SETTLE_SECONDS, or LATEST_SECONDS after the first one. To open a watch takes
longer than to prepare a claim, for the API server too. It would delay the kubelet's next call, and the other pods that a node gets at
once. Nothing is missed: the claim's version that the call has read is kept (`reserved`), and changes are read from there on, by the
watch or before a release. Until the watch has read the claim once, the claim is *unwatched*: before a release the driver asks for the
pods of each such claim, also of a claim made from a template.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from threading import Event, Thread
from typing import Protocol

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError, Permanent, Temporary
from dra_driver.kube.base import OF_THE_OBJECT, ClaimEvent, ClaimFound, Expired
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import (
    ClaimPrepared,
    ClaimUnprepared,
    DevicesFreed,
    DriverEvent,
    Observer,
    Recovered,
    ThreadFailed,
    ignore,
)
from dra_driver.model.ids import ClaimUid
from dra_driver.model.state import PreparedClaim
from dra_driver.planning.allocation import is_allocation_of
from dra_driver.planning.prepare import NodePlace, users_for
from dra_driver.services.mirror import STEADY_SECONDS
from dra_driver.services.pace import delay_after
from dra_driver.services.parts import AllClaims, Transaction
from dra_driver.services.reserved_versions import ReservedVersions

MOST_WATCHES = 32
# How often the follower looks for claims that another process prepared.
LOOK_SECONDS = 30.0
# For claims of this process it waits until nothing has been prepared or unprepared for so long, and at most for LATEST_SECONDS.
SETTLE_SECONDS = 2.0
LATEST_SECONDS = 20.0
POLL_SECONDS = 60.0
# Without an event for longer than this the connection may be dead, and other pods may use the claim unnoticed.
FRESH_SECONDS = 1.0
END_SECONDS = 2.0
# The API server sends the changes of the past at once. It waits for so long only if it does not have the version that was read.
CATCH_UP_SECONDS = 2
EARLY_END_SECONDS = 1.0
WATCH_NAME = "watch of a claim"
_WAKE_SECONDS = 1.0

Wait = Callable[[Event, float], bool]
Start = Callable[[Callable[[], None]], Callable[[float], None]]


class ClaimsDoor(Protocol):
    """The requests about one claim that the follower sends to the API server."""

    def find_claim(self, ref: ClaimRef) -> ClaimFound:
        """Return the claim, and the resourceVersion to watch from."""

    def watch_claim(
        self, ref: ClaimRef, resource_version: str, stop: Event, *, seconds: int | None = None
    ) -> Iterator[ClaimEvent]:
        """Yield the changes of the claim."""


class FollowedStore(Protocol):
    """The methods of the state store that the follower calls."""

    @property
    def boot_id(self) -> str:
        """The ID of this boot."""

    def transaction(self, commit: str) -> AbstractContextManager[Transaction]:
        """Open one transaction."""

    def reading(self) -> AbstractContextManager[AllClaims]:
        """Read without a transaction."""


class NotYet(Temporary):
    """The API server that was asked does not have all changes yet, up to the version that was read."""


class ClaimWatch:
    """A watch of one claim. It calls `take` with each version of the claim (None: deleted). `take` returns whether the claim is
    still allocated as it is prepared on this node. `version` is the claim's resourceVersion that is known already; "" for none.
    """

    def __init__(
        self,
        door: ClaimsDoor,
        ref: ClaimRef,
        take: Callable[[Claim | None], bool],
        *,
        version: str = "",
        observe: Observer = ignore,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ref = ref
        self.stop = Event()
        self._door = door
        self._take = take
        self._observe = observe
        self._clock = clock
        self._heard: float | None = None
        self._read = False
        # Of the last list, event or bookmark: what happens later is not known yet.
        self._version = version
        # The version of the claim that was learned last; None: deleted.
        self._learned: str | None = version

    def is_current(self) -> bool:
        """Whether the API server has sent the current claim or a bookmark within the last FRESH_SECONDS."""
        heard = self._heard
        return heard is not None and self._clock() - heard < FRESH_SECONDS

    def has_read(self) -> bool:
        """Whether the watch has read the claim at least once as it is prepared, with all changes since `version`."""
        return self._read

    def run(self, *, wait: Wait = Event.wait) -> None:
        """List and watch until `stop`. After each error the pause is longer."""
        tries = 0
        while not self.stop.is_set():
            begun = self._clock()
            delay = EARLY_END_SECONDS
            try:
                self._follow()
            except Expired:
                pass  # listed again
            except Exception as error:  # noqa: BLE001  guards the thread: an unexpected error affects the watch of this claim only
                tries = 0 if self._clock() - begun > STEADY_SECONDS else tries
                known = error if isinstance(error, DriverError) else DriverError(repr(error))
                delay = delay_after(known, tries)
                tries += 1
                if known is not error:
                    # The claim is named in the message only: thread names are labels of a metric, and their number must stay small.
                    self._observe(ThreadFailed(WATCH_NAME, f"claim {self.ref}: {error!r}", delay))
            finally:
                self._heard = None
            wait(self.stop, delay)

    def look(self) -> str:
        """Read the claim once, and what happened to it since the last time. Returns the version to watch from.

        If the changes since then cannot be read, the claim as it is now counts all the same.
        """
        found = self._door.find_claim(self.ref)
        with suppress(Permanent, NotYet):
            self.catch_up(found.claim)
        self._learn(found.claim)
        self._version = found.resource_version
        return found.resource_version

    def catch_up(self, claim: Claim | None) -> None:
        """Read the changes that the watch has missed, up to this version of the claim (None: deleted).

        Raises DriverError, and NotYet if the API server does not send this version in time. If the API server does not have these
        changes any more, they are lost.
        """
        wanted = None if claim is None else claim.resource_version
        if not self._version or wanted == self._learned:
            return
        if claim is not None and _is_older(claim.resource_version, self._version):
            return  # the API server was restored from a backup, and does not have these changes
        # Not `self.stop`: a watch that the follower ends here would look like one that has delivered everything.
        changes = self._door.watch_claim(self.ref, self._version, Event(), seconds=CATCH_UP_SECONDS)
        try:
            for event in changes:
                if event.claim is not None:
                    self._take(event.claim)
                if event.resource_version == wanted or event.type == "DELETED":
                    return
        except Expired:
            return
        if claim is not None:
            raise NotYet(f"the API server has not sent claim {self.ref} as of version {wanted}")

    def _follow(self) -> None:
        for event in self._door.watch_claim(self.ref, self.look(), self.stop):
            if event.type == "BOOKMARK":
                self._heard = self._clock() if self._heard is not None else None
            else:
                self._learn(None if event.type == "DELETED" else event.claim)
            self._version = event.resource_version

    def _learn(self, claim: Claim | None) -> None:
        is_current = self._take(claim)
        self._heard = self._clock() if is_current else None
        self._read |= is_current
        self._learned = None if claim is None else claim.resource_version


class ClaimFollower:
    """Watches the claims that have a row. The follower is an observer of events: it looks when rows were added or removed.

    Each claim has its own watch. With one watch for all claims the API server would send every claim of the cluster to every node.
    The follower calls `changed` with a claim that is deleted, deallocated, or allocated in another way.
    """

    def __init__(  # noqa: PLR0913  parts of the process, each given once
        self,
        door: ClaimsDoor,
        store: FollowedStore,
        place: NodePlace,
        *,
        changed: Callable[[ClaimRef], None],
        observe: Observer = ignore,
        log: FilteringBoundLogger | None = None,
        clock: Callable[[], float] = time.monotonic,
        start: Start | None = None,
    ) -> None:
        self._door = door
        self._store = store
        self._place = place
        self._changed = changed
        self._observe = observe
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._clock = clock
        self._start = start or _on_a_thread
        self._watches: dict[ClaimUid, tuple[ClaimWatch, Callable[[float], None]]] = {}
        self._polled: dict[ClaimUid, ClaimWatch] = {}
        self._reserved = ReservedVersions(clock)
        self._news: tuple[float, float] | None = None  # the first and the last since the last look
        self._poll_at = clock()
        self._failed_polls = 0

    def __call__(self, event: DriverEvent) -> None:
        if isinstance(event, ClaimPrepared | ClaimUnprepared | DevicesFreed | Recovered):
            now = self._clock()
            news = self._news  # read once: the follower's thread may clear it
            self._news = (now if news is None else news[0], now)
        if isinstance(event, ClaimUnprepared) and not event.error:
            self._reserved.ended(event.claim.uid)

    def reserved(self, claim: Claim) -> None:
        """Note the version of a claim that a prepare call has read: changes count from there on. Call it before the row can be seen."""
        self._reserved.note(claim.ref.uid, claim.resource_version)

    def unwatched(self, ref: ClaimRef) -> bool:
        """Whether no watch and no poll of this process has read the claim yet: a pod may have joined it unnoticed."""
        watch = self._watch_of(ref.uid)
        return watch is None or not watch.has_read()

    def followed(self, ref: ClaimRef) -> bool:
        """Whether the claim's watch is current, so that the row has every pod and the current allocation."""
        found = self._watches.get(ref.uid)
        return found is not None and found[0].is_current()

    def catch_up(self, ref: ClaimRef, claim: Claim | None) -> None:
        """Write the pods into the row that used the claim up to this version of it (None: deleted), also those that are gone again.

        Raises DriverError.
        """
        # In this order: a version is forgotten after its watch was begun.
        version = self._reserved.of(ref.uid)
        watch = self._watch(ref, version) if version else self._watch_of(ref.uid)
        if watch is not None:
            watch.catch_up(claim)

    def run(self, stop: Event, *, wait: Wait = Event.wait) -> None:
        """Follow claims until `stop`."""
        look_at = self._clock()
        try:
            while not stop.is_set():
                now = self._clock()
                if now >= look_at or self._is_quiet(now):
                    self._news = None
                    look_at = now + LOOK_SECONDS
                    self._look()
                wait(stop, _WAKE_SECONDS)
        finally:
            self._end(list(self._watches))

    def _is_quiet(self, now: float) -> bool:
        """Whether rows were added or removed, and it is time to look: the node is quiet, or there is much to forget."""
        news = self._news
        if news is None:
            return False
        if self._reserved.many_ended:
            return True
        first, last = news
        return now - last >= SETTLE_SECONDS or now - first >= LATEST_SECONDS

    def _look(self) -> None:
        try:
            self.once()
        except DriverError as error:
            self._log.warning("claims_not_followed", error=str(error))

    def once(self) -> None:
        """Start a watch for each new row, end the watches of removed rows, and poll the claims above MOST_WATCHES. Raises
        DriverError if the state cannot be read.
        """
        ended = self._reserved.begin_look()
        with self._store.reading() as state:
            every = state.all_claims()
        rows = [row for row in every if self._counts(row)]
        # Keep the watches that exist. Then prefer claims that other pods may use.
        rows.sort(key=lambda row: (row.ref.uid not in self._watches, row.users.sole, row.ref.uid))
        watched, beyond = rows[:MOST_WATCHES], rows[MOST_WATCHES:]
        self._end(list(self._watches.keys() - {row.ref.uid for row in watched}))
        for row in watched:
            if row.ref.uid not in self._watches:
                self._begin(row.ref)
        new = [row for row in beyond if row.ref.uid not in self._polled]
        self._polled = {
            row.ref.uid: self._polled.get(row.ref.uid)
            or self._watch(row.ref, self._reserved.of(row.ref.uid))
            for row in beyond
        }
        self._reserved.end_look(
            ended,
            watched=[row.ref.uid for row in rows],
            there={row.ref.uid for row in every},
        )
        if beyond and self._clock() >= self._poll_at:
            self._poll_at = self._clock() + self._poll(beyond)
        elif new:
            self._poll(new)  # from now on it is known from where changes are missing

    def _counts(self, row: PreparedClaim) -> bool:
        """Whether the row needs a watch. Not for rows of another boot, whose pods are gone, and not for held rows, which
        `dra_driver.services.held` checks, unless their pods are still being asked for.
        """
        if not row.ref.name or row.ref.of_plugin or (row.held is not None and not row.held.unasked):
            return False
        return bool(row.owned) and row.boot_id == self._store.boot_id

    def _watch_of(self, uid: ClaimUid) -> ClaimWatch | None:
        watched = self._watches.get(uid)
        return self._polled.get(uid) if watched is None else watched[0]

    def _begin(self, ref: ClaimRef) -> None:
        watch = self._polled.get(ref.uid) or self._watch(ref, self._reserved.of(ref.uid))
        self._watches[ref.uid] = watch, self._start(watch.run)

    def _watch(self, ref: ClaimRef, version: str) -> ClaimWatch:
        def take(claim: Claim | None) -> bool:
            return self._take(ref, claim)

        return ClaimWatch(
            self._door, ref, take, version=version, observe=self._observe, clock=self._clock
        )

    def _end(self, uids: list[ClaimUid]) -> None:
        ended = [self._watches.pop(uid) for uid in uids]
        for watch, _ in ended:
            watch.stop.set()
        for _, join in ended:
            join(END_SECONDS)

    def _poll(self, rows: list[PreparedClaim]) -> float:
        """Read each of these claims at the API server. Returns the seconds until the next poll.

        If the API server does not answer, the poll ends. If only one claim cannot be read, the poll goes on with the next one.
        """
        for row in rows:
            try:
                self._polled[row.ref.uid].look()
            except OF_THE_OBJECT as error:
                self._log.info("claim_not_asked", error=str(error))
            except DriverError as error:
                self._log.info("claims_not_asked", error=str(error))
                delay = delay_after(error, self._failed_polls)
                self._failed_polls += 1
                return max(delay, LOOK_SECONDS)
        self._failed_polls = 0
        return POLL_SECONDS

    def _take(self, ref: ClaimRef, claim: Claim | None) -> bool:
        with self._store.reading() as state:
            row = state.read(uids=[ref.uid]).claims.get(ref.uid)
        if row is None:
            return False
        if claim is None or claim.ref.uid != ref.uid:
            self._changed(ref)
            return False
        users = users_for(row, claim, self._place)
        if row.users.joined(users) != row.users:
            with self._store.transaction("joined") as transaction:
                transaction.add_users(ref.uid, users)
        place = self._place
        if not is_allocation_of(row, claim, place.driver, place.cdi_kind):
            self._changed(ref)
            return False
        return True


def _is_older(version: str, other: str) -> bool:
    # Kubernetes compares versions as numbers, too (KEP-5504). Versions of another form are not compared.
    return version.isdigit() and other.isdigit() and int(version) < int(other)


def _on_a_thread(run: Callable[[], None]) -> Callable[[float], None]:
    thread = Thread(target=run, name="follow-claim", daemon=True)
    thread.start()
    return thread.join
