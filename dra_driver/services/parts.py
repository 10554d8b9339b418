# SPDX-License-Identifier: Apache-2.0
"""What prepare, unprepare, recovery and the keeper of held devices work on."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from dra_driver.errors import DriverError, Temporary
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import Observer, ignore
from dra_driver.model.ids import ClaimUid, DeviceKey, PodUid
from dra_driver.model.inventory import Inventory
from dra_driver.model.plan import Plan, Step
from dra_driver.model.presence import Gone, Presence
from dra_driver.model.state import NodeState, PreparedClaim, Users
from dra_driver.planning.prepare import NodePlace
from dra_driver.planning.unprepare import still_used
from dra_driver.services.claim_locks import Lock
from dra_driver.services.execute import CdiFiles, Executor, Marks
from dra_driver.services.release import Releasable

ASK_SECONDS = 2.0  # an answer that is good to have, and that nobody waits for longer

PresenceOf = Callable[[Collection[PodUid]], Mapping[PodUid, Presence]]
Ask = Callable[[Collection[ClaimRef], float], Mapping[ClaimRef, Claim | DriverError]]


class Transaction(Marks, Protocol):
    """What services need of an open transaction."""

    def read(self, *, uids: Sequence[ClaimUid] = (), keys: Sequence[DeviceKey] = ()) -> NodeState:
        """Claims and owners by key."""

    def add_users(self, uid: ClaimUid, users: Users) -> None:
        """Remember who may use the claim besides those that are known."""


class AllClaims(Transaction, Protocol):
    """A transaction that can list every claim."""

    def all_claims(self) -> tuple[PreparedClaim, ...]:
        """Every row."""


class Store(Protocol):
    """What services need of the state."""

    @property
    def boot_id(self) -> str:
        """This boot."""

    def transaction(self, commit: str) -> AbstractContextManager[Transaction]:
        """One transaction."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """Read only."""


def nobody_followed(_ref: ClaimRef) -> bool:
    """Nobody watches claims."""
    return False


@dataclass(frozen=True, slots=True)
class NodeParts:
    """`ask(refs, until)` reads claims once each, and answers by `until` or sooner.

    `followed` says whether the API server has told just now that every pod that may use a claim is in its row, and that its
    allocation has not changed.
    """

    place: NodePlace
    inventory: Callable[[], Inventory]
    store: Store
    cdi: CdiFiles
    executor: Executor
    releasable: Releasable
    lock: Lock
    ask: Ask
    usage: "Usage"
    followed: Callable[[ClaimRef], bool] = nobody_followed
    observe: Observer = ignore
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    wall: Callable[[], float] = time.time

    def now(self) -> str:
        """This moment, for people."""
        return datetime.fromtimestamp(self.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def row(self, uid: ClaimUid) -> PreparedClaim | None:
        """What the state says of a claim."""
        with self.store.reading() as state:
            return state.read(uids=[uid]).claims.get(uid)

    def mark(self, commit: str, plans: Sequence[Plan], kind: type[Step]) -> None:
        """Apply the marks of one kind of all these plans in one transaction."""
        with self.store.transaction(commit) as transaction:
            for plan in plans:
                self.executor.mark(
                    transaction, [step for step in plan.steps if isinstance(step, kind)]
                )


@dataclass(frozen=True, slots=True)
class Usage:
    """Whether anything may still use a claim's devices. Without `presence` the kubelet's word is believed, as the admin chose."""

    store: Store
    presence: PresenceOf | None

    def __call__(self, claim: PreparedClaim) -> str:
        """Why the claim's devices cannot be given to others; empty when it is shown that nothing uses them."""
        if self.presence is None:
            return ""
        uid = claim.ref.uid
        with self.store.reading() as state:
            # Pods may have joined since the plan was made.
            row = state.read(uids=[uid]).claims.get(uid, claim)
        return still_used(row, self.presence(row.users.pods or ()), boot_id=self.store.boot_id)

    def may_run(self, users: Users) -> bool:
        """Whether a container of any of these pods may be running."""
        if self.presence is None or users.pods is None or users.unnamed:
            return True
        return any(not isinstance(found, Gone) for found in self.presence(users.pods).values())

    def must_ask(self, row: PreparedClaim) -> bool:
        """Whether the row's pods may not be all: other pods may have joined the claim without a call of the kubelet.

        Who names a claim that was made for another pod may use it too, though few do: from then on it is a shared one.
        """
        if self.presence is None or not row.owned or row.boot_id != self.store.boot_id:
            return False
        pods = row.users.pods
        return pods is None or not row.users.sole or len(pods) > 1


class ClaimReader:
    """Reads claims at the API server, several side by side; nobody waits longer than was agreed."""

    def __init__(
        self,
        get: Callable[[ClaimRef], Claim],
        pool: ThreadPoolExecutor,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._get = get
        self._pool = pool
        self._clock = clock

    def __call__(
        self, refs: Collection[ClaimRef], until: float
    ) -> Mapping[ClaimRef, Claim | DriverError]:
        """One try for each, at most ASK_SECONDS; what went wrong instead of a claim that could not be read."""
        until = min(until, self._clock() + ASK_SECONDS)
        reading = {ref: self._pool.submit(self._get, ref) for ref in refs}
        return {ref: self._answer(ref, future, until) for ref, future in reading.items()}

    def _answer(self, ref: ClaimRef, future: Future[Claim], until: float) -> Claim | DriverError:
        try:
            return future.result(timeout=max(0.0, until - self._clock()))
        except FutureTimeoutError:
            future.cancel()
            return Temporary(f"claim {ref} could not be read within {ASK_SECONDS:g} s")
        except DriverError as error:
            return error
