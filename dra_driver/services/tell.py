# SPDX-License-Identifier: Apache-2.0
"""Write Events on the Node for people who watch the cluster. A separate thread writes them, so no observer waits for the API
server.

Of the health of a device the newest change waits, and at most AT_ONCE are written in QUIET_SECONDS: a device that flaps does not fill
the cluster with Events, and the last Event is true. Another reason for the same status is written once in REASON_SECONDS. Only the leader writes them, because the other process sees the same devices.
"""

import time
from collections import deque
from collections.abc import Callable
from threading import Event

from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.kube.base import NodeEvent
from dra_driver.model.events import (
    CgroupsNotFound,
    DeviceHealthChanged,
    DeviceNotClean,
    DeviceStatusForbidden,
    DriverEvent,
    Leading,
    NodeWriteForbidden,
    SecondOwnerRefused,
    StillHeld,
)
from dra_driver.model.names import (
    CGROUPS_NOT_FOUND,
    DEVICE_NOT_CLEAN,
    DEVICE_RECOVERED,
    DEVICE_RENAMED,
    DEVICE_STATUS_FORBIDDEN,
    DEVICE_UNHEALTHY,
    DEVICE_VANISHED,
    DEVICES_HELD,
    NODE_WRITE_REFUSED,
    NOT_CLEAN_TAINT,
    SECOND_OWNER_REFUSED,
)

LOOK_SECONDS = 1.0
REMEMBERED = 100  # older messages are in the log only
QUIET_SECONDS = 60.0
AT_ONCE = 2  # it fell ill, and it is well again
REASON_SECONDS = 600.0


class Teller:
    """An observer that never waits; `run` writes the Events. `clock` is monotonic seconds."""

    def __init__(
        self, log: FilteringBoundLogger, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._clock = clock
        self._heard: deque[NodeEvent] = deque(maxlen=REMEMBERED)
        self._leads = False
        # By device: what waits, and whether the status changed, not only the reason.
        self._health: dict[str, tuple[NodeEvent, bool]] = {}
        self._told_at: dict[str, list[float]] = {}

    def __call__(self, event: DriverEvent) -> None:
        match event:
            case Leading(leads):
                self._leads = leads
            case DeviceHealthChanged():
                self._hear_health(event)
            case _:
                told = _told(event)
                if told is not None and told not in self._heard:
                    self._heard.append(told)

    def _hear_health(self, event: DeviceHealthChanged) -> None:
        if event.status == "unhealthy":
            text = f"device {event.device} is unhealthy: {event.message}"
            told = NodeEvent("Warning", DEVICE_UNHEALTHY, text)
        elif event.status == "healthy" and event.before == "unhealthy":
            told = NodeEvent("Normal", DEVICE_RECOVERED, f"device {event.device} is healthy again")
        elif event.status == "gone":
            told = NodeEvent(
                "Warning", DEVICE_VANISHED, f"device {event.device} is gone: {event.message}"
            )
        elif event.status == "renamed":
            told = NodeEvent(
                "Warning",
                DEVICE_RENAMED,
                f"device {event.device} has another name: {event.message}",
            )
        elif event.before == "gone":
            told = NodeEvent("Normal", DEVICE_RECOVERED, f"device {event.device} is found again")
        else:
            return
        _, waits = self._health.get(event.device, (told, False))
        self._health[event.device] = (told, waits or event.before != event.status)

    def run(
        self,
        stop: Event,
        emit: Callable[[NodeEvent], None],
        *,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        """Write the waiting Events every LOOK_SECONDS until `stop`."""
        while not wait(stop, LOOK_SECONDS):
            self.once(emit)

    def once(self, emit: Callable[[NodeEvent], None]) -> None:
        """Write the waiting Events. After a failure the remaining Events wait for the next call."""
        try:
            while self._heard:
                emit(self._heard[0])
                self._heard.popleft()
            if self._leads:
                self._tell_health(emit)
        except DriverError as error:
            self._log.info("event_not_written", error=str(error))

    def _tell_health(self, emit: Callable[[NodeEvent], None]) -> None:
        now = self._clock()
        for device, waiting in self._health.copy().items():
            event, changed = waiting
            told_at = [at for at in self._told_at.get(device, ()) if now - at < REASON_SECONDS]
            lately = [at for at in told_at if now - at < QUIET_SECONDS]
            if len(lately) >= AT_ONCE or (told_at and not changed):
                continue
            emit(event)
            self._told_at[device] = [*told_at, now]
            if self._health[device] is waiting:  # else another thread brought a newer one
                del self._health[device]


def _told(event: DriverEvent) -> NodeEvent | None:  # noqa: PLR0911  a table: one short case for each event
    match event:
        case SecondOwnerRefused(claim, owner, device, reason):
            return NodeEvent(
                "Warning",
                SECOND_OWNER_REFUSED,
                f"device {device} was allocated to claim {claim} and belongs to claim {owner} on this node: {reason}",
            )
        case StillHeld(claim, devices, since, reason):
            return NodeEvent(
                "Warning",
                DEVICES_HELD,
                f"{devices} of claim {claim}: not needed since {since}, and not given to other claims: {reason}; end what uses it, and the "
                f"driver releases it. Run `dra-driver release {claim.word}` on this node if you know that nothing uses it",
            )
        case DeviceNotClean(device, found):
            return NodeEvent(
                "Warning",
                DEVICE_NOT_CLEAN,
                f"device {device} belongs to no claim, and is not given to one: {found}; end what uses it, and the driver removes the "
                f"taint {NOT_CLEAN_TAINT}",
            )
        case CgroupsNotFound(reason):
            return NodeEvent(
                "Warning",
                CGROUPS_NOT_FOUND,
                f"devices stay held after their claims are released, because nothing proves that pods have ended: {reason}",
            )
        case DeviceStatusForbidden(_, reason):
            return NodeEvent(
                "Warning",
                DEVICE_STATUS_FORBIDDEN,
                f"the status of devices is missing in claims of this node: {reason}; or set device_status to none",
            )
        case NodeWriteForbidden(what, reason):
            return NodeEvent("Warning", NODE_WRITE_REFUSED, f"{what} of this Node: {reason}")
        case _:
            return None
