# SPDX-License-Identifier: Apache-2.0
"""Sample the usage of all devices, and who has them, for the metrics. A scrape reads the last samples and asks nobody.

Each backend has a thread of its own, so that hardware that hangs costs only its own values. A device that gave no value keeps its
last one, with its age. Another thread reads the state file, and the kubelet's list of containers if claims have changed: the call has an
effect in the kubelet (`dra_driver.kubelet.pod_resources`), so it is not made more often than needed. It notes when a device was found, too:
hardware that hangs from the start gives no first sample, and must not look like hardware that nothing measures.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from threading import Event, Lock

import structlog
from msgspec import Struct
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from dra_driver.backends.base import UsageOf
from dra_driver.errors import DriverError
from dra_driver.model.events import ClaimPrepared, ClaimUnprepared, DriverEvent
from dra_driver.model.ids import ClaimUid
from dra_driver.model.inventory import Inventory
from dra_driver.model.state import PreparedClaim, Unknown, Users
from dra_driver.model.usage import ContainerUse, NodeUsage, UsageSample
from dra_driver.planning.claim_totals import advanced
from dra_driver.planning.device_holders import unknown_users, uses_of

SAMPLE_SECONDS = 15.0
ASK_AGAIN_SECONDS, LONGEST_ASK_AGAIN_SECONDS = 60.0, 1800.0
"""When the kubelet is asked again while it does not list the containers of a claim, or says nothing: each time twice as late."""
SHARED_SECONDS = 300.0
"""How often the kubelet is asked about claims that several pods may use: nobody tells when one of them starts or ends."""
SETTLE_SECONDS = 1.0
"""A claim that has just been prepared or ended is noticed after so long; several of them at once cost one look."""

Loop = Callable[[Event], None]
Seen = frozenset[tuple[ClaimUid, Users]]


class Sources(Struct, frozen=True):
    """Where the samples come from. `usages` are the backends that can measure, by name; `containers` asks the kubelet."""

    usages: Mapping[str, UsageOf]
    inventory: Callable[[], Inventory]
    rows: Callable[[], tuple[PreparedClaim, ...]]
    state_bytes: Callable[[], int]
    containers: Callable[[], "Iterable[ContainerUse] | Unknown"]


class UsageSampler:
    """Keeps the last samples. It is an observer too: it looks at the state when a claim was prepared or has ended."""

    def __init__(
        self,
        sources: Sources,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[Event, float], bool] = Event.wait,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._wait = wait
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._mutex = Lock()
        self._kept = NodeUsage()
        self._begun: dict[ClaimUid, float] = {}
        self._changed = Event()
        self._asked_for: Seen = frozenset()
        self._ask_at = self._silent_until = 0.0
        self._pause = ASK_AGAIN_SECONDS
        self._complained: set[str] = set()

    def loops(self) -> Mapping[str, Loop]:
        """The loops by the names of their threads."""
        backends: dict[str, Loop] = {
            f"usage-{name}": self._loop_of(name) for name in self._sources.usages
        }
        return backends | {"usage-of-claims": self._follow_claims}

    def current(self) -> NodeUsage:
        """Return the last samples. It never waits for hardware, the kubelet or the state file."""
        with self._mutex:
            return self._kept

    def __call__(self, event: DriverEvent) -> None:
        """Note when a claim was prepared, and let the thread look at the state."""
        if isinstance(event, ClaimPrepared) and not event.error:
            with self._mutex:
                self._begun.setdefault(event.claim.uid, self._clock())
        if isinstance(event, ClaimPrepared | ClaimUnprepared):
            self._changed.set()

    def sample(self, backend: str) -> None:
        """Ask one backend once."""
        # The time of the begin: a value may have changed while other devices were asked.
        taken = self._clock()
        try:
            found = dict(self._sources.usages[backend]())
        except (Exception, SystemExit) as error:  # noqa: BLE001  the backend is other people's code, and must not end the thread
            self._complain(backend, error)
            return
        self._complained.discard(backend)
        samples = {name: UsageSample(usage, taken) for name, usage in found.items()}
        with self._mutex:
            self._kept = replace(self._kept, samples={**self._kept.samples, **samples})

    def look(self) -> None:
        """Read the state once, and go on with the counters of claims."""
        with self._mutex:
            begun = dict(self._begun)
        try:
            rows = self._sources.rows()
        except DriverError as error:
            self._complain("state", error)
            return
        self._complained.discard("state")
        uses = self._uses(rows)
        size = self._kept.state_bytes
        with suppress(OSError):
            size = self._sources.state_bytes()
        inventory = self._sources.inventory()
        with self._mutex:
            kept = self._kept
            samples = {name: one for name, one in kept.samples.items() if name in inventory.by_name}
            now = self._clock()
            totals = advanced(kept.totals, rows, samples, now, begun)
            found = {
                device.name: kept.found.get(device.name, now)
                for device in inventory.devices
                if device.backend in self._sources.usages
            }
            self._kept = NodeUsage(inventory.devices, samples, rows, uses, totals, size, found)
            # What was noted before this look has been used, or belongs to a claim that ended at once.
            for uid in begun:
                self._begun.pop(uid, None)

    def _uses(self, rows: tuple[PreparedClaim, ...]) -> tuple[ContainerUse, ...]:
        """The containers of these rows; the kubelet is asked if there are other rows than last time, or if it did not know them all."""
        seen = frozenset((row.ref.uid, row.users) for row in rows if row.held is None)
        before, now = self._kept.uses, self._clock()
        is_new = bool(seen - self._asked_for)
        if now < self._silent_until:
            return self._still_known(rows)
        if not is_new and now < self._ask_at:
            return before
        shared = any(row.held is None and _is_shared(row.users) for row in rows)
        if not is_new and not shared and not unknown_users(rows, before):
            return before
        found = self._sources.containers()
        if isinstance(found, Unknown):
            self._silent_until = now + self._longer()
            return self._still_known(rows)
        uses = tuple(found)
        if is_new:
            self._pause = ASK_AGAIN_SECONDS
        self._ask_at = now + (self._longer() if unknown_users(rows, uses) else SHARED_SECONDS)
        self._asked_for = seen
        return uses

    def _still_known(self, rows: tuple[PreparedClaim, ...]) -> tuple[ContainerUse, ...]:
        """The containers of the rows about which the kubelet was asked. A pod that has the device of another one now must not be called
        by that one's name.
        """
        known = [row for row in rows if (row.ref.uid, row.users) in self._asked_for]
        return uses_of(known, self._kept.uses)

    def _longer(self) -> float:
        """Return the pause, and double it."""
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_ASK_AGAIN_SECONDS)
        return pause

    def _loop_of(self, backend: str) -> Loop:
        def run(stop: Event) -> None:
            while True:
                self.sample(backend)
                if self._wait(stop, SAMPLE_SECONDS):
                    return

        return run

    def _follow_claims(self, stop: Event) -> None:
        until = self._clock()
        while True:
            # Cleared before the look: what happens during it is seen by the next one.
            if self._changed.is_set() or self._clock() >= until:
                self._changed.clear()
                self.look()
                until = self._clock() + SAMPLE_SECONDS
            if self._wait(stop, SETTLE_SECONDS):
                return

    def _complain(self, what: str, error: BaseException) -> None:
        """Say it once, until it works again."""
        if what not in self._complained:
            self._log.warning(
                "usage_not_sampled",
                source=what,
                error=f"{type(error).__name__}: {error}",
                next_step="the metrics keep the last values until they are stale; it is tried again",
            )
        self._complained.add(what)


def _is_shared(users: Users) -> bool:
    return users.unnamed or len(users.pods or ()) > 1
