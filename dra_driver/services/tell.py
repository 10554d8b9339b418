# SPDX-License-Identifier: Apache-2.0
"""Write Events on the Node for people who watch the cluster. A separate thread writes them, so no observer waits for the API
server.
"""

from collections import deque
from collections.abc import Callable
from threading import Event

from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.kube.base import NodeEvent
from dra_driver.model.events import (
    CgroupsNotFound,
    DeviceNotClean,
    DeviceStatusForbidden,
    DriverEvent,
    SecondOwnerRefused,
    StillHeld,
)
from dra_driver.model.names import (
    CGROUPS_NOT_FOUND,
    DEVICE_NOT_CLEAN,
    DEVICE_STATUS_FORBIDDEN,
    DEVICES_HELD,
    NOT_CLEAN_TAINT,
    SECOND_OWNER_REFUSED,
)

LOOK_SECONDS = 1.0
REMEMBERED = 100  # older messages are in the log only


class Teller:
    """An observer that never waits; `run` writes the Events."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._heard: deque[NodeEvent] = deque(maxlen=REMEMBERED)

    def __call__(self, event: DriverEvent) -> None:
        told = _told(event)
        if told is not None and told not in self._heard:
            self._heard.append(told)

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
        while self._heard:
            try:
                emit(self._heard[0])
            except DriverError as error:
                self._log.info("event_not_written", error=str(error))
                return
            self._heard.popleft()


def _told(event: DriverEvent) -> NodeEvent | None:
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
        case _:
            return None
