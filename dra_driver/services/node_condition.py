# SPDX-License-Identifier: Apache-2.0
"""Say on this Node whether its devices are ready, and take off the taint that kept pods away until then.

Options `node_condition` and `startup_taint`. Only the leader does this. It hears of publications as an observer of events, and asks the API
server once after each whether the slices are there. While nothing changes, it reads the Node every LOOK_SECONDS, and writes the
condition as often. What the condition says is decided in `planning/node_condition.py`.
"""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from math import inf
from threading import Lock

from msgspec import Struct
from msgspec.structs import replace

from dra_driver.kube.base import NodeApi
from dra_driver.model.events import (
    DriverEvent,
    NodeConditionWritten,
    Observer,
    Published,
    PublishFailed,
    StartupTaintRemoved,
    ignore,
)
from dra_driver.model.own_node import NodeCondition, OwnNode
from dra_driver.model.slices import StoredSlice
from dra_driver.planning.node_condition import (
    GRACE_SECONDS,
    HEARTBEAT_SECONDS,
    Offer,
    condition_of,
    condition_to_write,
    missing_of,
)

LOOK_SECONDS = HEARTBEAT_SECONDS
FAILURE_SECONDS = 30.0  # a try takes so long at most
SOON_SECONDS = 5.0  # if the API server does not show all of what was written


class NodeDoor(Struct, frozen=True):
    """What is asked: the slices of this node, why no devices are known (""), and the Node."""

    slices: Callable[[], Sequence[StoredSlice]]
    unknown: Callable[[], str]
    node: NodeApi


def nothing() -> None:
    """What is done at a change until somebody else is named."""


def utc_now() -> str:
    """The time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class NodeReadiness:
    """An observer that never waits, and what the loop (`NodeWrites`) calls. `clock` is monotonic seconds, `now` the time of the day.

    `writes` is whether the condition is written. `startup_taint` is the key of the taint to remove, "" for none. `changed` is called
    after each event that may change the condition, and must not block.
    """

    def __init__(
        self,
        door: NodeDoor,
        *,
        writes: bool,
        startup_taint: str = "",
        observe: Observer = ignore,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], str] = utc_now,
    ) -> None:
        self._door = door
        self._writes = writes
        self._startup_taint = startup_taint
        self._observe = observe
        self._clock = clock
        self._now = now
        self._lock = Lock()
        self._offer = Offer()
        self._failed_until = -inf
        self._said: tuple[bool, float] | None = None  # the status that is wanted, and since when
        self.changed: Callable[[], None] = nothing

    def __call__(self, event: DriverEvent) -> None:
        if isinstance(event, Published):
            self._learn(published=event.devices, failure="")
        elif isinstance(event, PublishFailed):
            # Nobody tells when a publication succeeds that has nothing to write. But one that fails again tells again, in time.
            self._failed_until = self._clock() + event.delay_seconds + FAILURE_SECONDS
            self._learn(failure=event.reason)

    def took_list(self, devices: int) -> None:
        """The kubelet took a list of so many devices from the device plugin; 0 if the plugin ended."""
        with self._lock:
            self._offer = replace(self._offer, listed=devices)
        self.changed()

    def look(self) -> float:
        """Look at the slices and at the Node, and write what is due. Returns the seconds until the next look. Raises DriverError."""
        offer = self._asked()
        wanted = condition_of(offer)
        self._write(wanted, self._door.node.read())
        if offer.missing:
            return SOON_SECONDS
        return LOOK_SECONDS if wanted.is_true else GRACE_SECONDS

    def _learn(self, *, failure: str, published: int | None = None) -> None:
        with self._lock:
            known = self._offer.published if published is None else published
            self._offer = replace(self._offer, published=known, failure=failure, missing=None)
        self.changed()

    def _asked(self) -> Offer:
        """What is known now; the slices are read if a publication ended since."""
        with self._lock:
            if self._offer.failure and self._clock() >= self._failed_until:
                self._offer = replace(self._offer, failure="")
            heard = self._offer
        offer = replace(heard, unknown=self._door.unknown())
        if offer.published is None or offer.missing is not None or offer.failure or offer.listed:
            return offer
        offer = replace(offer, missing=missing_of(self._door.slices(), offer.published))
        with self._lock:
            # If a publication ended meanwhile, or if something is missing, they are read again at the next look.
            if not offer.missing and self._offer is heard:
                self._offer = replace(heard, missing="")
        return offer

    def _write(self, wanted: NodeCondition, present: OwnNode) -> None:
        lasted = self._lasted(is_true=wanted.is_true)
        if self._writes:
            due = condition_to_write(wanted, present.condition, self._now(), lasted_seconds=lasted)
            if due is not None:
                self._door.node.apply_condition(due, present.uid)
                if present.condition is None or present.condition.says != due.says:
                    self._observe(NodeConditionWritten(due.is_true, due.reason, due.message))
        if (
            wanted.is_true
            and self._startup_taint in present.taints
            and self._door.node.remove_taint(self._startup_taint)
        ):
            self._observe(StartupTaintRemoved(self._startup_taint))

    def _lasted(self, *, is_true: bool) -> float:
        """For how long this status is wanted."""
        now = self._clock()
        if self._said is None or self._said[0] != is_true:
            self._said = is_true, now
        return now - self._said[1]
