# SPDX-License-Identifier: Apache-2.0
"""Set the binding conditions of claims that wait for them, so that the scheduler binds their pods.

Only simulated devices want that today (`AllocatableDevice.binds`). The kubelet does not know such a claim yet, and the state has no row
for it. So the leader of the node reads the allocated claims, every LOOK_SECONDS, as long as there is such a device; otherwise it asks
nothing. A claim that cannot be written costs only itself: it is tried again, later each time.
"""

from collections.abc import Callable
from math import inf
from threading import Event

import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from dra_driver.errors import DriverError
from dra_driver.kube.base import KubeApi
from dra_driver.model.claim import Claim
from dra_driver.model.ids import ClaimUid
from dra_driver.planning.binding import binds_any, entries_to_bind
from dra_driver.services.pace import delay_after
from dra_driver.services.parts import NodeParts

LOOK_SECONDS = 1.0
PART = "binding"
"""The part of the driver that owns these entries: what another part writes about the same device stays."""

Wait = Callable[[Event, float], bool]


class _Failed(Struct):
    """How often a claim could not be written, and when to try again."""

    tries: int = 0
    again_at: float = -inf


class BindingController:
    """Sets the conditions of this node's devices."""

    def __init__(
        self, parts: NodeParts, kube: KubeApi, *, log: FilteringBoundLogger | None = None
    ) -> None:
        self._parts = parts
        self._kube = kube
        self._log: FilteringBoundLogger = log or structlog.get_logger()
        self._failed: dict[ClaimUid, _Failed] = {}

    def run(self, stop: Event, *, wait: Wait = Event.wait) -> None:
        """Look until `stop`."""
        tries = 0
        delay = LOOK_SECONDS
        while not wait(stop, delay):
            try:
                self.once()
                tries, delay = 0, LOOK_SECONDS
            except DriverError as error:
                delay = delay_after(error, tries)
                tries += 1
                self._log.info("claims_to_bind_not_read", error=str(error), again_in_seconds=delay)

    def once(self) -> None:
        """Set what is missing in each claim of this node. Raises DriverError if the claims cannot be read."""
        if not binds_any(self._parts.inventory()):
            return
        claims = self._kube.allocated_claims(self._parts.place.pool)
        known = {claim.ref.uid for claim in claims}
        self._failed = {uid: one for uid, one in self._failed.items() if uid in known}
        for claim in claims:
            self._set(claim)

    def _set(self, claim: Claim) -> None:
        parts, uid = self._parts, claim.ref.uid
        entries = entries_to_bind(claim, parts.inventory(), parts.place, parts.now())
        failed = self._failed.get(uid, _Failed())
        if not entries or parts.clock() < failed.again_at:
            return
        try:
            self._kube.report_devices(claim.ref, entries, part=PART)
        except DriverError as error:
            delay = delay_after(error, failed.tries)
            self._failed[uid] = _Failed(failed.tries + 1, parts.clock() + delay)
            self._log.warning(
                "binding_conditions_not_set",
                claim=str(claim.ref),
                error=str(error),
                again_in_seconds=delay,
            )
        else:
            self._failed.pop(uid, None)
            self._log.info("binding_conditions_set", claim=str(claim.ref))
