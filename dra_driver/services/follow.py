# SPDX-License-Identifier: Apache-2.0
"""Which pods join a claim that is prepared here, and does its allocation change?

The kubelet prepares a claim once, whatever pods use it later, and it forgets a pod that is removed from the API while its
containers run on. So the pods of each prepared claim are remembered as the API server names them, by a watch on that claim
alone. Claims of templates are followed too: another pod may name such a claim, and nobody checks for whom it was made.

Watches are bounded; what is beyond them is asked now and then. A watch remembers pods, and is no proof that there are no others: its
connection may be dead without a word. So who releases a claim asks once more, unless it is *followed* at this very moment.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from threading import Event, Thread
from typing import Protocol

import structlog
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.kube.base import OF_THE_OBJECT, ClaimEvent, ClaimFound, Expired
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import (
    ClaimPrepared,
    ClaimUnprepared,
    DevicesFreed,
    DriverEvent,
    Observer,
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

MOST_WATCHES = 32
LOOK_SECONDS = 30.0  # another process may have prepared a claim; our own wakes us
POLL_SECONDS = 60.0
# A connection that has said nothing for longer may be dead, and pods may join behind it.
FRESH_SECONDS = 1.0
END_SECONDS = 2.0
EARLY_END_SECONDS = 1.0
WATCH_NAME = "watch of a claim"
# A look may cost a tenth of the time, however many claims come and go: so much longer than it took nobody looks again.
REST_RATIO = 10
MOST_REST_SECONDS = 1.0
_WAKE_SECONDS = 1.0

Wait = Callable[[Event, float], bool]
Start = Callable[[Callable[[], None]], Callable[[float], None]]


class ClaimsDoor(Protocol):
    """The API server as far as one claim is asked about."""

    def find_claim(self, ref: ClaimRef) -> ClaimFound:
        """As it stands, and from where to watch."""

    def watch_claim(
        self, ref: ClaimRef, resource_version: str, stop: Event
    ) -> Iterator[ClaimEvent]:
        """Its changes."""


class FollowedStore(Protocol):
    """The state as the follower sees it."""

    @property
    def boot_id(self) -> str:
        """This boot."""

    def transaction(self, commit: str) -> AbstractContextManager[Transaction]:
        """One transaction."""

    def reading(self) -> AbstractContextManager[AllClaims]:
        """Read only."""


class ClaimWatch:
    """One claim, watched until it is gone. `take` is told how it stands, and answers whether it is still what is prepared here."""

    def __init__(
        self,
        door: ClaimsDoor,
        ref: ClaimRef,
        take: Callable[[Claim | None], bool],
        *,
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

    def is_current(self) -> bool:
        """Whether the API server has told within the last FRESH_SECONDS how the claim stands."""
        heard = self._heard
        return heard is not None and self._clock() - heard < FRESH_SECONDS

    def run(self, *, wait: Wait = Event.wait) -> None:
        """List and watch, again and again; after an error after a longer pause each time."""
        tries = 0
        while not self.stop.is_set():
            begun = self._clock()
            delay = EARLY_END_SECONDS
            try:
                self._follow()
            except Expired:
                pass  # listed again
            except Exception as error:  # noqa: BLE001  the guard of its thread: what nobody foresaw costs this claim's watch only
                tries = 0 if self._clock() - begun > STEADY_SECONDS else tries
                known = error if isinstance(error, DriverError) else DriverError(repr(error))
                delay = delay_after(known, tries)
                tries += 1
                if known is not error:
                    # Which claim stands in the error: names of threads are labels of a metric, and claims come without end.
                    self._observe(ThreadFailed(WATCH_NAME, f"claim {self.ref}: {error!r}", delay))
            finally:
                self._heard = None
            wait(self.stop, delay)

    def _follow(self) -> None:
        found = self._door.find_claim(self.ref)
        self._learn(found.claim)
        for event in self._door.watch_claim(self.ref, found.resource_version, self.stop):
            if event.type == "BOOKMARK":
                self._heard = self._clock() if self._heard is not None else None
            else:
                self._learn(None if event.type == "DELETED" else event.claim)

    def _learn(self, claim: Claim | None) -> None:
        self._heard = self._clock() if self._take(claim) else None


class ClaimFollower:
    """Watches the claims that have a row here; an observer that wakes up when there are others.

    `changed` is called with a claim that is gone, or allocated no more or in another way.
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
        self._woken = Event()
        self._poll_at = clock()
        self._failed_polls = 0

    def __call__(self, event: DriverEvent) -> None:
        if isinstance(event, ClaimPrepared | ClaimUnprepared | DevicesFreed):
            self._woken.set()

    def followed(self, ref: ClaimRef) -> bool:
        """Whether its watch has just said that every pod that may use the claim is in its row, and its allocation the one prepared."""
        found = self._watches.get(ref.uid)
        return found is not None and found[0].is_current()

    def run(self, stop: Event, *, wait: Wait = Event.wait) -> None:
        """Follow until `stop`."""
        look_at = self._clock()
        try:
            while not stop.is_set():
                begun = self._clock()
                if self._woken.is_set() or begun >= look_at:
                    self._woken.clear()
                    look_at = begun + LOOK_SECONDS
                    self._look()
                    # A look reads every row, and each claim that comes or goes asks for one.
                    rest = min(REST_RATIO * (self._clock() - begun), MOST_REST_SECONDS)
                    if rest > 0:
                        wait(stop, rest)
                wait(self._woken, _WAKE_SECONDS)
        finally:
            self._end(list(self._watches))

    def _look(self) -> None:
        try:
            self.once()
        except DriverError as error:
            self._log.warning("claims_not_followed", error=str(error))

    def once(self) -> None:
        """Begin and end watches as rows came and went, and ask about those beyond. Raises DriverError if the state cannot be read."""
        with self._store.reading() as state:
            rows = [row for row in state.all_claims() if self._counts(row)]
        # Who is watched stays so; then claims that anybody may join.
        rows.sort(key=lambda row: (row.ref.uid not in self._watches, row.users.sole, row.ref.uid))
        watched, beyond = rows[:MOST_WATCHES], rows[MOST_WATCHES:]
        self._end(list(self._watches.keys() - {row.ref.uid for row in watched}))
        for row in watched:
            if row.ref.uid not in self._watches:
                self._begin(row.ref)
        if beyond and self._clock() >= self._poll_at:
            self._poll_at = self._clock() + self._poll(beyond)

    def _counts(self, row: PreparedClaim) -> bool:
        """Of another boot nobody runs any more, and who is held is asked about by its keeper."""
        if not row.ref.name or row.held is not None:
            return False
        return bool(row.owned) and row.boot_id == self._store.boot_id

    def _begin(self, ref: ClaimRef) -> None:
        def take(claim: Claim | None) -> bool:
            return self._take(ref, claim)

        watch = ClaimWatch(self._door, ref, take, observe=self._observe, clock=self._clock)
        self._watches[ref.uid] = watch, self._start(watch.run)

    def _end(self, uids: list[ClaimUid]) -> None:
        ended = [self._watches.pop(uid) for uid in uids]
        for watch, _ in ended:
            watch.stop.set()
        for _, join in ended:
            join(END_SECONDS)

    def _poll(self, rows: list[PreparedClaim]) -> float:
        """Ask about each of them; seconds until the next time. An API server that is away is not asked about the others.

        A claim that cannot be read keeps nobody from asking about them.
        """
        for row in rows:
            try:
                self._take(row.ref, self._door.find_claim(row.ref).claim)
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


def _on_a_thread(run: Callable[[], None]) -> Callable[[float], None]:
    thread = Thread(target=run, name="follow-claim", daemon=True)
    thread.start()
    return thread.join
