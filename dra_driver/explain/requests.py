# SPDX-License-Identifier: Apache-2.0
"""Why does each request get no device, and which device has the fewest reasons against it?"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from dra_driver.allocator.devices import SliceDevice
from dra_driver.explain.claim_request import ClaimRequest, claim_with_only
from dra_driver.explain.facts.device_nodes import where_usable
from dra_driver.explain.facts.facts import Facts
from dra_driver.explain.misses import Miss, nearest
from dra_driver.explain.names import full_name, values_found
from dra_driver.explain.never_matches import never_matches
from dra_driver.explain.nodes import NodesExplained, meaning_of
from dra_driver.explain.outcome import DeviceGroup, NearestMiss, RequestReport
from dra_driver.explain.proposals import fewer
from dra_driver.explain.reasons import ReasonGroup, RequestExplained, grouped
from dra_driver.explain.trial import TrialResult
from dra_driver.explain.verdict import (
    AllUnsatisfied,
    CapacityTooSmall,
    CouldNotTell,
    Fits,
    NoDevices,
    NotEnoughDevices,
    SelectorError,
    SelectorFalse,
    Tainted,
    Verdict,
)
from dra_driver.explain.verdicts.request import ALL_AT_ONCE
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.device import taint_text

EXAMPLES = 5


class RequestsExplained:
    """All requests that need devices, after the nodes were tried."""

    def __init__(
        self, facts: Facts, requests: Sequence[RequestExplained], nodes: NodesExplained
    ) -> None:
        self._fleet = facts.fleet
        self.requests = requests
        self._nodes = nodes
        limited = len(facts.nodes.nodes) < len(facts.fleet.state.nodes)
        self._only = tuple(facts.nodes.nodes) if limited else ()
        every = facts.fleet.all_devices
        self.devices = (
            [one for one in every if facts.nodes.of(one) != frozenset()] if limited else every
        )
        self._misses: dict[int, Miss | None] = {}
        self._grouped: dict[int, list[ReasonGroup]] = {}
        self._verdicts: dict[int, tuple[Verdict, ...]] = {}

    def reports(self, claim: ResourceClaim) -> tuple[RequestReport, ...]:
        """Return the report of each request of a claim."""
        name = full_name(claim.metadata)
        return tuple(
            self._report(one)
            for one in self.requests
            if full_name(one.request.claim.metadata) == name
        )

    def _report(self, explained: RequestExplained) -> RequestReport:
        request = explained.request
        if explained.problems:
            return RequestReport(name=request.name, asks=str(request), verdicts=explained.problems)
        groups = self.groups(explained)
        served = self._nodes.some_fit and not self._nodes.fatal
        verdicts = () if served else self.verdicts(explained)
        has_fitting = any(group.reason is None for group in groups)
        miss = None if has_fitting else self.miss(explained)
        return RequestReport(
            name=request.name,
            asks=str(request),
            verdicts=verdicts,
            devices=self._device_groups(explained, groups),
            nearest=_nearest(miss) if miss else None,
        )

    def _device_groups(
        self, explained: RequestExplained, groups: Sequence[ReasonGroup]
    ) -> tuple[DeviceGroup, ...]:
        return explained.shared(
            DeviceGroup,
            self.devices,
            lambda: tuple([_device_group(one, explained) for one in groups]),
        )

    def groups(self, explained: RequestExplained) -> list[ReasonGroup]:
        """Return all devices by their first reason, grouped once."""
        key = id(explained)
        if key not in self._grouped:
            self._grouped[key] = grouped(explained, self.devices)
        return self._grouped[key]

    def miss(self, explained: RequestExplained) -> Miss | None:
        """Return the device with the fewest reasons against it, searched once; None if no device has a reason against it."""
        key = id(explained)
        if key not in self._misses:
            self._misses[key] = nearest(explained, self.devices)
        return self._misses[key]

    def verdicts(self, explained: RequestExplained) -> tuple[Verdict, ...]:
        """Return why the request as a whole gets no devices, found once."""
        key = id(explained)
        if key not in self._verdicts:
            self._verdicts[key] = tuple(self._of_all(explained, self.groups(explained)))
        return self._verdicts[key]

    def _of_all(
        self, explained: RequestExplained, groups: Sequence[ReasonGroup]
    ) -> Iterator[Verdict]:
        """Yield why the request gets no devices; `groups` are all devices by their first reason.

        Reasons that exclude every device come first: no devices at all, a run-time error, selectors that are false for every
        device. Last comes: each node has too few devices.
        """
        all_false = all(isinstance(group.reason, SelectorFalse) for group in groups)
        if explained.may_be_none and all_false:
            return
        if not self._fleet.devices:
            if not self._fleet.state.gaps("resourceslices"):
                yield NoDevices()
            return
        error = self._error(explained, groups)
        if error is not None:
            yield error
        elif all_false and (miss := self.miss(explained)) is not None:
            yield from never_matches(explained, self.devices, miss, self._only)
        else:
            yield from self._too_few(explained, groups)

    def _error(
        self, explained: RequestExplained, groups: Sequence[ReasonGroup]
    ) -> SelectorError | None:
        """Return the run-time error that stops the pod on all nodes.

        If no error stops the pod: return an error only if every device has one or is excluded by a selector. None else.
        """
        stopping = self._nodes.stopping
        if stopping or self._nodes.fatal:
            devices: Iterable[SliceDevice] = self._fleet.all_devices
            if stopping:  # else the error is on a node that the report is not about
                devices = (device for one in stopping for device in one.group.devices)
            firsts = (explained.first(device) for device in devices)
            return next((one for one in firsts if isinstance(one, SelectorError)), None)
        if not all(isinstance(one.reason, SelectorFalse | SelectorError) for one in groups):
            return None
        firsts = (explained.first(kind.devices[0]) for kind in explained.kinds(self.devices))
        return next((one for one in firsts if isinstance(one, SelectorError)), None)

    def _too_few(
        self, explained: RequestExplained, groups: Sequence[ReasonGroup]
    ) -> Iterator[Verdict]:
        """Yield a reason if no node has enough of the devices that fit."""
        request = explained.request
        alone = claim_with_only(request)
        stopped: TrialResult | None = None
        for tried in self._nodes.tried:
            result = self._nodes.try_again(tried, [alone])
            if result.fits:
                return
            if result.cancelled:
                yield CouldNotTell("timeout", result.error)
                return
            stopped = result if result.fatal and tried.takes_the_pod else stopped
        if stopped is not None:
            yield meaning_of(stopped)
        elif not self._nodes.tried:
            return
        elif request.all_devices:
            yield AllUnsatisfied(_why_not_all(groups))
        elif request.body.count > 1 or any(group.reason is None for group in groups):
            available = self._available(explained)
            if isinstance(available, CouldNotTell):
                yield available
            else:
                matching = self._matching(explained)
                all_too_few = available < matching < request.body.count
                most = matching if all_too_few else 0
                yield NotEnoughDevices(request.body.count, available, matching=most)

    def _matching(self, explained: RequestExplained) -> int:
        """Return the largest number of devices of one node that match the request, in use or not.

        0 if that is not known: some share counters, so that fewer can be had together, or are of a pool that is not complete or valid.
        """
        of_each = [
            [one for one in tried.group.devices if not any(map(_is_unlike, explained.reasons(one)))]
            for tried in self._nodes.tried
        ]
        unusable = self._fleet.unusable
        if any(
            one.device.consumes_counters or one.slice.pool_id in unusable
            for found in of_each
            for one in found
        ):
            return 0
        return max(map(len, of_each), default=0)

    def _available(self, explained: RequestExplained) -> int | CouldNotTell:
        """Return the largest number of devices that the request can get on one node, if it gets fewer than it asks for.

        If the time is over before that is found out: a reason that says so.
        """
        request = explained.request
        best = 0
        for tried in self._nodes.tried:
            usable = sum(not explained.reasons(device) for device in tried.group.devices)
            most = min(usable, request.body.count - 1)
            # Each of these devices fits alone. But if they share counters, fewer of them may fit together. So the request is tried
            # with smaller counts until it fits.
            while most > best:
                claims = [_only(fewer(request, most).claim, request)]
                result = self._nodes.try_again(tried, claims)
                if result.cancelled:
                    return CouldNotTell("timeout", result.error)
                if result.fits:
                    best = most
                most -= 1
        return best


def _is_unlike(reason: Verdict) -> bool:
    """Whether the device is another one than the request asks for, whoever has it."""
    return isinstance(reason, SelectorFalse | SelectorError | CapacityTooSmall)


def _nearest(miss: Miss) -> NearestMiss:
    return NearestMiss(
        device=str(miss.device.id), node=where_usable(miss.device), reasons=_all_missed(miss)
    )


def _all_missed(miss: Miss) -> tuple[Verdict, ...]:
    """Return each false condition as a separate reason, then the other reasons."""
    false = (
        SelectorFalse(
            selector.source, selector.index, part.part, values_found(part.found), part.hint
        )
        for selector, part in miss.parts
    )
    others = (one for one in miss.reasons if not isinstance(one, SelectorFalse))
    return (*false, *others)


def _only(claim: ResourceClaim, request: ClaimRequest) -> ResourceClaim:
    """Return the changed claim with only this request and no constraints."""
    index = request.indices[0]
    requests = (claim.spec.devices.requests or [])[index : index + 1]
    devices = msgspec.structs.replace(claim.spec.devices, requests=requests, constraints=None)
    spec = msgspec.structs.replace(claim.spec, devices=devices)
    return msgspec.structs.replace(claim, spec=spec)


def _why_not_all(groups: Sequence[ReasonGroup]) -> str:
    others = [one for one in groups if one.reason and not isinstance(one.reason, SelectorFalse)]
    matching = sum(len(one.devices) for one in groups if not isinstance(one.reason, SelectorFalse))
    if others:
        return (
            f"all matching devices of a node are asked for; of {matching} in the cluster "
            f"{sum(len(one.devices) for one in others)} cannot be had, for example: {others[0].reason}"
        )
    return ALL_AT_ONCE


def _device_group(group: ReasonGroup, explained: RequestExplained) -> DeviceGroup:
    reason = group.reason
    return DeviceGroup(
        verdict=Fits() if reason is None else reason,
        count=len(group.devices),
        examples=tuple(str(device.id) for device in group.devices[:EXAMPLES]),
        since=_oldest(group.devices, reason.taint) if isinstance(reason, Tainted) else "",
        foreign=explained.answers.foreign(group.devices[0]),
    )


def _oldest(devices: Sequence[SliceDevice], taint: str) -> str:
    """Return the time of the oldest taint of these devices that has this text; "" if it has no time."""
    times = (
        one.time_added
        for device in devices
        for one in device.device.taints or ()
        if one.time_added and taint_text(one) == taint
    )
    return min(times, default="")
