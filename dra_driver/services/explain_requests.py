# SPDX-License-Identifier: Apache-2.0
"""Why does each request get no device, what comes nearest, and what change would help?"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from dra_driver.allocator import conflict
from dra_driver.allocator.asked import alone
from dra_driver.allocator.change import Miss, Proposal, fewer, from_miss, nearest, other_class
from dra_driver.allocator.claim_state import full_name
from dra_driver.allocator.explain import Group, RequestExplained, grouped
from dra_driver.allocator.fleet import Fleet
from dra_driver.allocator.reach import Reach, described
from dra_driver.allocator.trial import ask
from dra_driver.cel.ast import Call, Constant, Expr
from dra_driver.cel.explain import conjuncts, meant, shown
from dra_driver.cel.paths import Path, path_of, value_at
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.report import Change, DeviceGroup, NearestMiss, RequestReport
from dra_driver.model.verdict import (
    AllUnsatisfied,
    ClassMissing,
    DriverPublishesNothing,
    Fits,
    NoDevices,
    NotEnoughDevices,
    SelectorFalse,
    SelectorNeverMatches,
    Verdict,
)
from dra_driver.services.explain_nodes import Asked, NodesExplained

EXAMPLES = 5
MOST_CHANGES = 3
MOST_TRIALS = 24
"""Nodes that a change is tried on."""
SHOWN_VALUES = 6


class RequestsExplained:
    """All requests that have to be served."""

    def __init__(
        self,
        fleet: Fleet,
        reach: Reach,
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
        verdicts = () if self._nodes.some_fit else tuple(self._as_a_whole(request, groups))
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

    def _as_a_whole(self, request: RequestExplained, groups: Sequence[Group]) -> Iterator[Verdict]:
        if not self._fleet.devices:
            if self._fleet.state.unread("resourceslices") is None:
                yield NoDevices()
            return
        judged = [request.judged(device).verdicts for device in self._devices]
        if judged and all(one and isinstance(one[0], SelectorFalse) for one in judged):
            yield from self._never(request)
            return
        yield from self._too_few(request, groups)

    def _never(self, request: RequestExplained) -> Iterator[Verdict]:
        """No device passes the selectors: which condition is to blame?"""
        driver = self._absent_driver(request)
        if driver:
            yield DriverPublishesNothing(driver, meant(driver, sorted(self._fleet.drivers)))
            return
        miss = self._miss(request)
        for chosen, false in miss.parts[:1] if miss else ():
            found, hint = false.found, false.hint
            if miss and false.path is not None:
                values = self._values(false.path)
                found = f"{false.path.shown(miss.device.id.driver)} is {_listed(values)}"
                near = [meant(one, list(values)) for one in false.wanted]
                hint = next((one for one in near if one), hint)
            yield SelectorNeverMatches(chosen.source, chosen.index, false.part, found, hint)

    def _absent_driver(self, request: RequestExplained) -> str:
        """A driver that the selectors insist on and that publishes nothing."""
        wanted = (
            _driver_wanted(part)
            for chosen in request.selectors
            for part in conjuncts(chosen.explained.root)
        )
        return next((one for one in wanted if one and one not in self._fleet.drivers), "")

    def _values(self, path: Path) -> Counter[str]:
        """What devices publish at a path, with numbers; devices without it do not count."""
        return Counter(
            text
            for device in self._devices
            if (text := shown(value_at(path, device.id.driver, device.device)))
        )

    def _too_few(self, request: RequestExplained, groups: Sequence[Group]) -> Iterator[Verdict]:
        """Some devices would do: are there enough of them on one node?"""
        single = alone(request.asked)
        for asked in self._nodes.asked:
            if self._nodes.fits(asked, [single]):
                return
        if request.asked.all_devices:
            yield AllUnsatisfied(_why_not_all(groups))
        elif any(group.reason is None for group in groups):
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
        for proposal in self._proposals():
            seen.setdefault(proposal.what, proposal)
        tried = ((proposal.what, self._tried(proposal)) for proposal in seen.values())
        helping = (Change(what=what, on=node) for what, node in tried if node)
        return tuple(islice(helping, MOST_CHANGES))

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
        """Dropping one constraint of a claim."""
        claims = {full_name(one.asked.claim): one.asked.claim for one in self._requests}
        for claim in claims.values():
            for index, constraint in enumerate(claim.spec.devices.constraints or ()):
                part = conflict.Part(0, "constraint", index)
                text = conflict.constraint_text(constraint)
                yield Proposal(
                    f"leave out the constraint {text}", conflict.without([claim], [part])[0]
                )

    def _tried(self, proposal: Proposal) -> str:
        """A node where everything fits with the change; "" if there is none."""
        allocator = self._fleet.allocator
        nodes = [(asked, asked.alike.example) for asked in self._nodes.asked]
        if proposal.ended:
            kept = [
                one
                for one in self._fleet.state.resource_claims
                if full_name(one) not in proposal.ended
            ]
            allocator = self._fleet.allocator_with(self._fleet.held_by(kept))
            nodes = list(self._nodes_of(proposal.ended))
        for asked, node in nodes[:MOST_TRIALS]:
            claims = [
                proposal.claim if full_name(one) == full_name(proposal.claim) else one
                for one in asked.claims
            ]
            answer = ask(allocator, node, claims, self._nodes.stop)
            if answer.fits and not asked.elsewhere:
                return node.metadata.name
        return ""

    def _nodes_of(self, ended: Sequence[str]) -> Iterator[tuple[Asked, Node]]:
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
        device=str(miss.device.id), node=described(miss.device), reasons=_all_missed(miss)
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


def _driver_wanted(part: Expr) -> str:
    """The driver that a condition insists on."""
    if not isinstance(part, Call) or part.function != "_==_":
        return ""
    for one, other in (part.args, reversed(part.args)):
        if path_of(one) == Path("driver") and isinstance(other, Constant):
            return other.value if isinstance(other.value, str) else ""
    return ""


def _listed(values: Counter[str]) -> str:
    if not values:
        return "published by no device"
    listed = ", ".join(f"{value} ({count:,})" for value, count in values.most_common(SHOWN_VALUES))
    return listed + (", …" if len(values) > SHOWN_VALUES else "")


def _why_not_all(groups: Sequence[Group]) -> str:
    others = [one for one in groups if one.reason and not isinstance(one.reason, SelectorFalse)]
    matching = sum(len(one.devices) for one in groups if not isinstance(one.reason, SelectorFalse))
    if others:
        return (
            f"all matching devices of a node are asked for; of {matching} in the cluster "
            f"{sum(len(one.devices) for one in others)} cannot be had, for example: {others[0].reason}"
        )
    return "all matching devices of a node are asked for, and that is none or more than a claim can hold"


def _device_group(group: Group) -> DeviceGroup:
    return DeviceGroup(
        verdict=Fits() if group.reason is None else group.reason,
        count=len(group.devices),
        examples=tuple(str(device.id) for device in group.devices[:EXAMPLES]),
    )
