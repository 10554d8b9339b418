# SPDX-License-Identifier: Apache-2.0
"""What the services for claims share: the state, the CDI files, the executor and the questions to the API server."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from typing import Protocol

from msgspec import Struct

from dra_driver.errors import DriverError, Temporary
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.events import Observer, ignore
from dra_driver.model.ids import ClaimUid, DeviceKey, PodUid
from dra_driver.model.inventory import Inventory
from dra_driver.model.lease import Lease
from dra_driver.model.plan import Plan, Step
from dra_driver.model.presence import Gone, Presence
from dra_driver.model.state import NodeState, PreparedClaim, Users
from dra_driver.planning.prepare import NodePlace
from dra_driver.planning.unprepare import resets, still_used
from dra_driver.services.claim_locks import Lock
from dra_driver.services.execute import CdiFiles, Executor, Marks
from dra_driver.services.release import Releasable

ASK_SECONDS = 2.0  # callers can go on without the answer, so they do not wait longer for it

PresenceOf = Callable[[Collection[PodUid]], Mapping[PodUid, Presence]]
Ask = Callable[[Collection[ClaimRef], float], Mapping[ClaimRef, Claim | DriverError]]


class Transaction(Marks, Protocol):
    """The methods of an open transaction that services call."""

    def read(self, *, uids: Sequence[ClaimUid] = (), keys: Sequence[DeviceKey] = ()) -> NodeState:
        """Return the rows of these claims, and the owners of these devices."""

    def add_users(self, uid: ClaimUid, users: Users) -> None:
        """Add pods that may use the claim."""


class AllClaims(Transaction, Protocol):
    """A transaction that can list every row."""

    def all_claims(self) -> tuple[PreparedClaim, ...]:
        """Return every row."""


class Store(Protocol):
    """The methods of the state store that services call."""

    @property
    def boot_id(self) -> str:
        """The ID of this boot."""

    def transaction(self, commit: str) -> AbstractContextManager[Transaction]:
        """Open one transaction that commits under this name."""

    def reading(self) -> AbstractContextManager[Transaction]:
        """Read without a transaction."""


def nothing_used(_lease: Lease) -> bool:
    """Return False: tools and tests without a backend cannot ask the hardware."""
    return False


def nobody_followed(_ref: ClaimRef) -> bool:
    """Return False: tools and tests without a follower have no watches."""
    return False


def nobody_unwatched(_ref: ClaimRef) -> bool:
    """Return False: tools and tests without a follower wait for no watch."""
    return False


def nothing_reserved(_claim: Claim) -> None:
    """Do nothing: tools and tests without a follower begin no watch."""


def nothing_missed(_ref: ClaimRef, _claim: Claim | None) -> None:
    """Do nothing: tools and tests without a follower have missed no change."""


def nothing_learned(_inventory: Inventory) -> None:
    """Do nothing: tools have no inventory."""


Kinds = type[Step] | tuple[type[Step], ...]


class NodeParts(Struct, frozen=True):
    """The parts that services use; the process has one of each.

    `ask(refs, until)` reads each claim once, and returns by `until`. `followed` returns whether the watch of a claim is current, so
    that the claim's row has every pod and the current allocation. `catch_up(ref, claim)` writes pods into the row that used the claim
    up to this version of it (None: deleted), and that the watch has missed. `reserved(claim)` is called before a row is committed for the claim;
    until a watch has read the claim, `unwatched` returns True. `learn` writes into the state which physical resource is behind
    each device, before devices are reserved.
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
    learn: Callable[[Inventory], None] = nothing_learned
    followed: Callable[[ClaimRef], bool] = nobody_followed
    catch_up: Callable[[ClaimRef, Claim | None], None] = nothing_missed
    reserved: Callable[[Claim], None] = nothing_reserved
    unwatched: Callable[[ClaimRef], bool] = nobody_unwatched
    observe: Observer = ignore
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    wall: Callable[[], float] = time.time

    def now(self) -> str:
        """Return the current time as text, in UTC."""
        return datetime.fromtimestamp(self.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def row(self, uid: ClaimUid) -> PreparedClaim | None:
        """Return the row of a claim; None if the state has none."""
        with self.store.reading() as state:
            return state.read(uids=[uid]).claims.get(uid)

    def mark(self, commit: str, plans: Sequence[Plan], kind: Kinds) -> None:
        """Apply all marks of these kinds in these plans, in one transaction."""
        with self.store.transaction(commit) as transaction:
            for plan in plans:
                self.executor.mark(
                    transaction, [step for step in plan.steps if isinstance(step, kind)]
                )


class Usage(Struct, frozen=True):
    """Finds out whether a process may still use a claim's devices. `presence` returns whether pods still have processes; `in_use`
    returns whether the hardware sees a process. `presence` is None
    with `--release-proof unprepare`: then the kubelet's unprepare call is the proof that no process uses the devices.
    """

    store: Store
    presence: PresenceOf | None
    in_use: Callable[[Lease], bool] = nothing_used

    def __call__(self, claim: PreparedClaim) -> str:
        """Return why the claim's devices cannot be released; empty if it is proved that no process uses them."""
        if self.presence is None:
            return ""
        uid = claim.ref.uid
        with self.store.reading() as state:
            # Read again: pods may have been added since the plan was made.
            row = state.read(uids=[uid]).claims.get(uid, claim)
        return self.of(row)

    def of(self, row: PreparedClaim) -> str:
        """The same for a row as it is here, or for a part of one. The caller has its lock, and has just read it."""
        if self.presence is None:
            return ""
        boot_id = self.store.boot_id
        if reason := still_used(row, self.presence(row.users.pods or ()), boot_id=boot_id):
            return reason
        by_admin = row.held is not None and row.held.by_admin
        return "" if by_admin or row.boot_id != boot_id else self._seen_by_hardware(row)

    def _seen_by_hardware(self, row: PreparedClaim) -> str:
        """The pods have ended, but a process that is not in their cgroups may use a device. A backend that fails cannot tell."""
        for step in resets(row):
            with suppress(Exception):
                if self.in_use(step.lease):
                    return f"the hardware still sees a process on device {step.lease.device}"
        return ""

    def may_run(self, users: Users) -> bool:
        """Whether a container of any of these pods may be running."""
        if self.presence is None or users.has_unknown or users.unnamed:
            return True
        return any(
            not isinstance(found, Gone) for found in self.presence(users.pods or ()).values()
        )

    def must_ask(self, row: PreparedClaim, *, unwatched: bool = False) -> bool:
        """Whether the driver must ask the API server for the claim's pods: another pod may use the claim without a kubelet call.

        A claim made from a template has one pod (`sole`), so the answer is no. But if another pod has named the claim all the same,
        the answer is yes, as for a shared claim; and as long as the claim is `unwatched`.
        """
        if self.presence is None or not row.owned or row.boot_id != self.store.boot_id:
            return False
        pods = row.users.pods
        return unwatched or pods is None or not row.users.sole or len(pods) > 1


class ClaimReader:
    """Reads claims at the API server in parallel, with a time limit."""

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
        """Read each claim once, within ASK_SECONDS. Returns an error for each claim that could not be read."""
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
