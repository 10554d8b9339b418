# SPDX-License-Identifier: Apache-2.0
"""Why does each request get no device, what comes nearest, and what change would help?"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from dra_driver.allocator.devices import SliceDevice
from dra_driver.cel.reasons.similar import meant
from dra_driver.explain import conflict
from dra_driver.explain.claim_request import claim_with_only
from dra_driver.explain.combined_changes import together
from dra_driver.explain.facts.claim_state import full_name
from dra_driver.explain.facts.device_nodes import DeviceNodes, where_usable
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.nodes import NodesExplained, TriedNodes, meaning_of
from dra_driver.explain.outcome import Change, DeviceGroup, NearestMiss, RequestReport
from dra_driver.explain.proposals import (
    Miss,
    Proposal,
    fewer,
    from_errors,
    from_miss,
    nearest,
    other_class,
)
from dra_driver.explain.reasons import ReasonGroup, RequestExplained, grouped
from dra_driver.explain.selectors import never
from dra_driver.explain.trial import TrialResult, ask
from dra_driver.explain.verdict import (
    AllUnsatisfied,
    ClassMissing,
    Fits,
    NoDevices,
    NotEnoughDevices,
    SelectorError,
    SelectorFalse,
    Verdict,
)
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import ResourceClaim

EXAMPLES = 5
MOST_CHANGES = 3
MOST_TRIALS = 24
"""Nodes that a change is tried on."""


class RequestsExplained:
    """All requests that have to be served."""

    def __init__(
        self,
        fleet: Fleet,
        reach: DeviceNodes,
        requests: Sequence[RequestExplained],
        nodes: NodesExplained,
    ) -> None:
        self._fleet = fleet
        self._requests = requests
        self._nodes = nodes
        limited = len(reach.nodes) < len(fleet.state.nodes)
        self._devices = [
            device
            for device in fleet.devices.values()
            if not limited or reach.of(device) != frozenset()
        ]
        self._misses: dict[int, Miss | None] = {}

    def reports(self, claim: ResourceClaim) -> tuple[RequestReport, ...]:
        """What there is to say of each request of a claim."""
        name = full_name(claim)
        return tuple(
            self._report(one) for one in self._requests if full_name(one.asked.claim) == name
        )

    def _report(self, request: RequestExplained) -> RequestReport:
        asked = request.asked
        if request.problems:
            return RequestReport(name=asked.name, asks=str(asked), verdicts=request.problems)
        groups = grouped(request, self._devices)
        served = self._nodes.some_fit and not self._nodes.fatal
        verdicts = () if served else tuple(self._as_a_whole(request, groups))
        has_fitting = any(group.reason is None for group in groups)
        miss = None if has_fitting else self._miss(request)
        return RequestReport(
            name=asked.name,
            asks=str(asked),
            verdicts=verdicts,
            devices=tuple(_device_group(one) for one in groups),
            nearest=_nearest(miss) if miss else None,
        )

    def _miss(self, request: RequestExplained) -> Miss | None:
        key = id(request)
        if key not in self._misses:
            self._misses[key] = nearest(request, self._devices)
        return self._misses[key]

    def _as_a_whole(
        self, request: RequestExplained, groups: Sequence[ReasonGroup]
    ) -> Iterator[Verdict]:
        if not self._fleet.devices:
            if not self._fleet.state.gaps("resourceslices"):
                yield NoDevices()
            return
        error = self._error(request)
        if error is not None:
            yield error
        elif groups and all(isinstance(group.reason, SelectorFalse) for group in groups):
            miss = self._miss(request)
            if miss is not None:
                yield from never(self._fleet, request, self._devices, miss)
        else:
            yield from self._too_few(request, groups)

    def _error(self, request: RequestExplained) -> SelectorError | None:
        """The run-time error that stops the pod, or that leaves no device even where the pod does not go."""
        stopping = self._nodes.stopping
        devices: Iterable[SliceDevice] = self._devices
        if stopping:
            devices = (device for one in stopping for device in one.alike.devices)
        elif self._nodes.fatal:  # on nodes that are not looked at
            devices = self._fleet.devices.values()
        elif not all(
            isinstance(request.first(device), SelectorFalse | SelectorError) for device in devices
        ):
            return None
        firsts = (request.first(device) for device in devices)
        return next((one for one in firsts if isinstance(one, SelectorError)), None)

    def _too_few(
        self, request: RequestExplained, groups: Sequence[ReasonGroup]
    ) -> Iterator[Verdict]:
        """Some devices would do: are there enough of them on one node?"""
        single = claim_with_only(request.asked)
        stopped: TrialResult | None = None
        for asked in self._nodes.asked:
            answer = self._nodes.answer(asked, [single])
            if answer.fits:
                return
            stopped = answer if answer.fatal and asked.takes_the_pod else stopped
        if stopped is not None:
            yield meaning_of(stopped)
        elif not self._nodes.asked:
            return
        elif request.asked.all_devices:
            yield AllUnsatisfied(_why_not_all(groups))
        elif request.asked.body.count > 1 or any(group.reason is None for group in groups):
            yield NotEnoughDevices(request.asked.body.count, self._available(request))

    def _available(self, request: RequestExplained) -> int:
        """The most devices that can be had on one node."""
        best = 0
        for asked in self._nodes.asked:
            usable = sum(not request.reasons(device) for device in asked.alike.devices)
            most = min(usable, request.asked.body.count - 1)
            while most > best and not self._nodes.fits(
                asked, [_only(fewer(request.asked, most).claim, request)]
            ):
                most -= 1
            best = max(best, most)
        return best

    def changes(self) -> tuple[Change, ...]:
        """The smallest changes that make everything fit, tried out one by one."""
        seen: dict[str, Proposal] = {}
        if self._nodes.fatal and not any(asked.answer.fatal for asked in self._nodes.asked):
            return ()  # what is wrong on nodes that are not looked at cannot be tried
        for proposal in self._proposals():
            seen.setdefault(proposal.what, proposal)
        tried = (
            (one.what, self._tried({full_name(one.claim): one.claim}, one.ended))
            for one in seen.values()
        )
        helping = (Change(what=what, on=node) for what, node in tried if node)
        return tuple(islice(helping, MOST_CHANGES)) or self._changes_together()

    def _changes_together(self) -> tuple[Change, ...]:
        """The first that helps of several changes in one."""
        tried = (
            (one.what, self._tried(one.claims, one.ended, first=one.asked))
            for one in together(self._requests, self._nodes.asked)
        )
        return tuple(islice((Change(what=what, on=node) for what, node in tried if node), 1))

    def _proposals(self) -> Iterator[Proposal]:
        for request in self._requests:
            for problem in request.problems:
                if isinstance(problem, ClassMissing):
                    near = meant(problem.device_class, list(self._fleet.classes))
                    if near:
                        yield other_class(request.asked, near.split()[-1].rstrip("?"))
            if request.problems:
                continue
            groups = grouped(request, self._devices)
            for verdict in self._as_a_whole(request, groups):
                if isinstance(verdict, NotEnoughDevices) and verdict.available:
                    yield fewer(request.asked, verdict.available)
                elif isinstance(verdict, AllUnsatisfied):
                    yield from (fewer(request.asked, most) for most in self._free(request))
            yield from from_errors(request, list(self._fleet.devices.values()))
            miss = self._miss(request)
            if miss is not None:
                yield from from_miss(request.asked, miss)
        yield from self._without_constraints()

    def _free(self, request: RequestExplained) -> list[int]:
        """The most free devices of a node, for a request that wants all of them."""
        counts = [
            sum(not request.reasons(device) for device in asked.alike.devices)
            for asked in self._nodes.asked
        ]
        return [max(counts)] if any(counts) else []

    def _without_constraints(self) -> Iterator[Proposal]:
        """Correcting the attribute of a constraint, or dropping one constraint of a claim."""
        claims = {full_name(one.asked.claim): one.asked.claim for one in self._requests}
        for claim in claims.values():
            for index, constraint in enumerate(claim.spec.devices.constraints or ()):
                part = conflict.ClaimPart(0, "constraint", index)
                text = conflict.constraint_text(constraint)
                near = conflict.near_attribute(constraint, self._devices)
                if near:
                    right = conflict.with_attribute(claim, index, near)
                    yield Proposal(f"write {near} instead of {text.split()[-1]}", right)
                yield Proposal(
                    f"leave out the constraint {text}", conflict.without([claim], [part])[0]
                )

    def _tried(
        self,
        changed: Mapping[str, ResourceClaim],
        ended: Sequence[str],
        first: TriedNodes | None = None,
    ) -> str:
        """A node where everything fits with the change; "" if there is none. `first` are the nodes to look at first."""
        allocator = self._fleet.allocator
        nodes = [(asked, asked.alike.example) for asked in self._nodes.asked]
        if ended:
            kept = [one for one in self._fleet.state.resource_claims if full_name(one) not in ended]
            allocator = self._fleet.allocator_with(self._fleet.held_by(kept))
            nodes = list(self._nodes_of(ended))
        nodes.sort(key=lambda one: (not one[0].answer.fatal, one[0] is not first))
        where = ""
        for asked, node in nodes[:MOST_TRIALS]:
            claims = [changed.get(full_name(one), one) for one in asked.claims]
            answer = ask(allocator, node, claims, self._nodes.stop)
            if answer.fatal and asked.takes_the_pod:
                return ""
            if answer.fits and not asked.elsewhere:
                where = where or node.metadata.name
        return where

    def _nodes_of(self, ended: Sequence[str]) -> Iterator[tuple[TriedNodes, Node]]:
        """Nodes that can use a device of one of these claims; of nodes that are alike only these few."""
        for asked in self._nodes.asked:
            for node in asked.alike.nodes:
                devices = self._nodes.devices_on(asked, node)
                if any(
                    claim in ended for one in devices for claim in self._fleet.claims_on(one.id)
                ):
                    yield asked, node
                    break


def _nearest(miss: Miss) -> NearestMiss:
    return NearestMiss(
        device=str(miss.device.id), node=where_usable(miss.device), reasons=_all_missed(miss)
    )


def _all_missed(miss: Miss) -> tuple[Verdict, ...]:
    """Every condition of its own, and the other reasons."""
    false = (
        SelectorFalse(chosen.source, chosen.index, part.part, part.found, part.hint)
        for chosen, part in miss.parts
    )
    others = (one for one in miss.reasons if not isinstance(one, SelectorFalse))
    return (*false, *others)


def _only(claim: ResourceClaim, request: RequestExplained) -> ResourceClaim:
    """The changed request without its neighbours."""
    index = request.asked.indices[0]
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
    return "all matching devices of a node are asked for, and they cannot be had at once"


def _device_group(group: ReasonGroup) -> DeviceGroup:
    return DeviceGroup(
        verdict=Fits() if group.reason is None else group.reason,
        count=len(group.devices),
        examples=tuple(str(device.id) for device in group.devices[:EXAMPLES]),
    )
