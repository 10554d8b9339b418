# SPDX-License-Identifier: Apache-2.0
"""Why does a request not get this device? All reasons, for every device of the cluster.

The search stops at the first reason against a device, and at the first device that fits. The report needs all reasons of all
devices: it groups devices by their reason, and the device with the fewest reasons shows what to change.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TypeVar

from msgspec import Struct, field

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.cancellation import Check, never
from dra_driver.explain.claim_request import ClaimRequest
from dra_driver.explain.device_state import features_off, state_for
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.facts.left_out import LeftOut
from dra_driver.explain.selector_answers import Judgement, answers_for
from dra_driver.explain.verdict import Verdict

_Made = TypeVar("_Made")


class ReasonGroup(Struct):
    """Devices with the same first reason (None: no reason against them)."""

    reason: Verdict | None
    devices: list[SliceDevice] = field(default_factory=list)


class DeviceKind(Struct):
    """Devices with the same answers of the selectors, and the same `others`: reasons against them other than selectors."""

    judgement: Judgement
    others: tuple[Verdict, ...]
    devices: list[SliceDevice] = field(default_factory=list)


class RequestExplained:
    """One request and every device of the cluster.

    `problems` are reasons that hold for every device (class missing, gate off, CEL does not compile). `own` are the claims
    ("namespace/name") of the same pod that have their devices already.
    """

    def __init__(
        self,
        fleet: Fleet,
        request: ClaimRequest,
        nodes: DeviceNodes,
        stop: Check = never,
        own: Collection[str] = (),
    ) -> None:
        self.request = request
        self.fleet = fleet
        self.own = own
        self.may_be_none = request.all_devices and fleet.rules.all_may_be_none
        """Whether the request is served although no device matches it."""
        self.answers = answers_for(fleet, request, stop)
        self.problems: tuple[Verdict, ...] = (
            *features_off(fleet, request),
            *self.answers.problems,
        )
        self._state = state_for(fleet, request, nodes)
        self._nodes = nodes
        self._stop = stop
        self.asks: Hashable = (self.answers, self._state, self.problems)
        """Equal for requests of one pod or claim that get the same reasons against every device."""

    def changed(self, request: ClaimRequest) -> "RequestExplained":
        """Return the same for another version of the request."""
        return RequestExplained(self.fleet, request, self._nodes, self._stop, self.own)

    def is_over(self) -> bool:
        """Return whether the time is over: what is only a hint is not looked for any more."""
        return self._stop()

    def reasons(self, device: SliceDevice) -> tuple[Verdict, ...]:
        """Return all reasons against the device, false selectors first; () if there is none."""
        selected = self.answers.judged(device).verdicts
        others = self._state.all_reasons(device)
        return (*selected, *others) if selected and others else selected or others

    def of_left_out(self, part: LeftOut) -> set[bool | None]:
        """Return what holds of devices of which no amount is known: None if the selectors of the request fail on one, {False} if none counts.

        True if the request may get one; if it asks for all devices: if one matches, for without that one it gets none.
        """
        key = (LeftOut, part.slices, part.node, self.asks)
        return self.fleet.shared(
            key, lambda: {self._may_fail(part), *map(self._may_get, part.devices)}
        )

    def _may_fail(self, part: LeftOut) -> bool:
        """Return whether the request ends the search because the pool is invalid, as one for all devices does."""
        read = not part.node or part.node in self.fleet.nodes.nodes
        return part.invalid and read and self.request.all_devices and not self.problems

    def _may_get(self, device: SliceDevice) -> bool | None:
        if self._stop():
            return True
        if self.problems or self._state.passes_over(device):
            return False
        matches = self.answers.may_match(device)
        # The search asks the selectors first, so one that fails ends it whatever is against the device. And a request for all
        # devices does not do without one that matches.
        if not matches or self.request.all_devices:
            return matches
        return not self._state.refuses(device)

    def first(self, device: SliceDevice) -> Verdict | None:
        """Return the first reason, as the report shows it for a group of devices; None if there is no reason."""
        reasons = self.reasons(device)
        return self.answers.in_brief(reasons[0]) if reasons else None

    def kinds(self, devices: Sequence[SliceDevice]) -> Sequence[DeviceKind]:
        """Return the devices by all their reasons, in the order of the first device of each kind."""
        return self.shared(DeviceKind, devices, lambda: self._kinds(devices))

    def shared(
        self, what: Hashable, devices: Sequence[SliceDevice], make: Callable[[], _Made]
    ) -> _Made:
        """Return what is made for these devices; if they are all devices, once for all requests that ask for the same."""
        if devices is not self.fleet.all_devices:
            return make()
        return self.fleet.shared((what, self.asks), make)

    def _kinds(self, devices: Sequence[SliceDevice]) -> Sequence[DeviceKind]:
        judged, others = self.answers.judged, self._state.all_reasons
        found: dict[tuple[int, int], DeviceKind] = {}
        for device in devices:
            judgement, more = judged(device), others(device)
            key = (id(judgement), id(more))
            kind = found.get(key)
            if kind is None:
                kind = found[key] = DeviceKind(judgement, more)
            kind.devices.append(device)
        return list(found.values())


def grouped(request: RequestExplained, devices: Sequence[SliceDevice]) -> list[ReasonGroup]:
    """Group the devices by their first reason: first the devices with no reason, then the other groups, the largest first."""
    return request.shared(ReasonGroup, devices, lambda: _grouped(request, devices))


def _grouped(request: RequestExplained, devices: Sequence[SliceDevice]) -> list[ReasonGroup]:
    groups: dict[Verdict | None, ReasonGroup] = {}
    for kind in request.kinds(devices):
        first = request.first(kind.devices[0])
        group = groups.get(first)
        if group is None:
            group = groups[first] = ReasonGroup(first)
        group.devices += kind.devices
    return sorted(groups.values(), key=lambda one: (one.reason is not None, -len(one.devices)))
