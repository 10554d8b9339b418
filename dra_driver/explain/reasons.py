# SPDX-License-Identifier: Apache-2.0
"""Why does a request not get this device? All reasons, for every device of the cluster.

The search stops at the first reason against a device, and at the first device that fits. The report needs all reasons of all
devices: it groups devices by their reason, and the device with the fewest reasons shows what to change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.cancellation import Check, never
from dra_driver.explain.claim_request import ClaimRequest
from dra_driver.explain.device_state import DeviceState, features_off
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.selector_answers import SelectorAnswers
from dra_driver.explain.verdict import Verdict


@dataclass(slots=True)
class ReasonGroup:
    """Devices with the same first reason (None: no reason against them)."""

    reason: Verdict | None
    devices: list[SliceDevice] = field(default_factory=list)


class RequestExplained:
    """One request and every device of the cluster.

    `problems` are reasons that hold for every device (class missing, gate off, CEL does not compile).
    """

    def __init__(
        self, fleet: Fleet, request: ClaimRequest, nodes: DeviceNodes, stop: Check = never
    ) -> None:
        self.request = request
        self.fleet = fleet
        self.may_be_none = request.all_devices and fleet.rules.all_may_be_none
        """Whether the request is served although no device matches it."""
        self.answers = SelectorAnswers(fleet, request, stop)
        self.problems: tuple[Verdict, ...] = (
            *features_off(fleet, request),
            *self.answers.problems,
        )
        self._state = DeviceState(fleet, request, nodes)
        self._known: dict[SliceDevice, tuple[Verdict, ...]] = {}

    def reasons(self, device: SliceDevice) -> tuple[Verdict, ...]:
        """Return all reasons against the device, false selectors first; () if there is none."""
        known = self._known.get(device)
        if known is None:
            # Without more reasons it is the same tuple for all equal devices: a large fleet would have 100,000 of them.
            known = self.answers.judged(device).verdicts
            more = tuple(self._state.reasons(device))
            if more:
                known = (*known, *more)
            self._known[device] = known
        return known

    def first(self, device: SliceDevice) -> Verdict | None:
        """Return the first reason, as the report shows it for a group of devices; None if there is no reason."""
        reasons = self.reasons(device)
        return self.answers.in_brief(reasons[0]) if reasons else None


def grouped(request: RequestExplained, devices: Sequence[SliceDevice]) -> list[ReasonGroup]:
    """Group the devices by their first reason: first the devices with no reason, then the other groups, the largest first."""
    groups: dict[Verdict | None, ReasonGroup] = {}
    for device in devices:
        first = request.first(device)
        group = groups.get(first)
        if group is None:
            group = groups[first] = ReasonGroup(first)
        group.devices.append(device)
    return sorted(groups.values(), key=lambda one: (one.reason is not None, -len(one.devices)))
