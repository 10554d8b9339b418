# SPDX-License-Identifier: Apache-2.0
"""On which nodes would everything fit, and what is in the way on the others?

Nodes that cannot differ are asked about once. An error of the allocator stops the pod everywhere, but only if the
scheduler gets as far as that on some node: nodes that the pod itself excludes are never asked about devices.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from dra_driver.allocator.amounts import amount
from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.failures import ConstraintBroken, PoolUnusable
from dra_driver.explain import conflict
from dra_driver.explain.facts.claim_state import full_name
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.facts.pod_filters import PodFilters
from dra_driver.explain.outcome import NodeGroup
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.trial import EquivalentNodes, NodeEquivalence, TrialResult, ask
from dra_driver.explain.verdict import (
    AllUnsatisfied,
    CapacityConsumed,
    ChosenDevice,
    CouldNotTell,
    CountersUsedUp,
    HeldByClaim,
    NodeResources,
    NotEnoughDevices,
    PoolIncomplete,
    PoolInvalid,
    SelectorError,
    SelectorFalse,
    Tainted,
    TooManyDevices,
    Verdict,
)
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import ResourceClaim

MALFORMED = "malformed"
SHOWN_REASONS = 2
MOST_CONFLICTS = 4
"""Groups of nodes for which a conflict is taken apart; the others get the same words."""


_OF_ONE_NODE = (HeldByClaim, CapacityConsumed, CountersUsedUp, Tainted, AllUnsatisfied)
"""Reasons that name what only one node has: a claim, or the rule of a taint."""


class Asking(Protocol):
    """What is asked of each node."""

    def claims_on(self, node: Node) -> list[ResourceClaim]:
        """The claims to allocate there."""

    def elsewhere(self, node: Node) -> tuple[Verdict, ...]:
        """Allocated claims that cannot be used there."""

    def fatal_elsewhere(self) -> str:
        """An error on nodes that are not looked at, which stops the pod on all nodes."""

    def offered(self, node: Node) -> tuple[str, ...]:
        """What else tells nodes apart."""

    def requests_of(self, claims: Sequence[ResourceClaim]) -> list[RequestExplained]:
        """The requests of claims."""

    def cancelled(self) -> bool:
        """Whether to stop."""


@dataclass(slots=True)
class TriedNodes:
    """Nodes that are alike, what was asked of them, and the answer."""

    alike: EquivalentNodes
    claims: list[ResourceClaim]
    elsewhere: tuple[Verdict, ...]
    answer: TrialResult
    filtered: dict[tuple[object, ...], tuple[tuple[Verdict, ...], list[Node]]]

    reasons: tuple[Verdict, ...] | None = None
    places: dict[object, tuple[Verdict, ...]] = field(default_factory=dict)
    """What is in the way on nodes other than the example, by the devices that they can use."""

    @property
    def fits(self) -> bool:
        """Whether the devices fit there."""
        return self.answer.fits and not self.elsewhere

    @property
    def takes_the_pod(self) -> bool:
        """Whether some of the nodes has nothing against the pod."""
        return () in self.filtered


class NodesExplained:
    """All nodes that are looked at."""

    def __init__(
        self, fleet: Fleet, alikeness: NodeEquivalence, filters: PodFilters | None, asking: Asking
    ) -> None:
        self._fleet = fleet
        self._asking = asking
        self._filters = filters
        nodes = alikeness.nodes
        extra = {name: (asking.offered(n), asking.elsewhere(n)) for name, n in nodes.items()}
        self.count = len(nodes)
        self.asked = [self._ask(one) for one in alikeness.alike(extra)]
        self._alikeness = alikeness
        self._conflicts = 0

    def stop(self) -> bool:
        """Whether nobody waits any more."""
        return self._asking.cancelled()

    def devices_on(self, asked: TriedNodes, node: Node) -> Sequence[SliceDevice]:
        """The devices that a node can use."""
        if node is asked.alike.example:
            return asked.alike.devices
        return self._alikeness.devices_on(node)

    def _ask(self, alike: EquivalentNodes) -> TriedNodes:
        node = alike.example
        claims = self._asking.claims_on(node)
        answer = TrialResult(results=())
        if claims:
            answer = ask(self._fleet.allocator, node, claims, self._asking.cancelled)
        filtered: dict[tuple[object, ...], tuple[tuple[Verdict, ...], list[Node]]] = {}
        for one in alike.nodes:
            reasons = self._filters.reasons(one) if self._filters else ()
            key = tuple(map(_kind, reasons))
            known, nodes = filtered.get(key, (reasons, []))
            nodes.append(one)
            filtered[key] = (_of_both(known, reasons), nodes)
        return TriedNodes(alike, claims, self._asking.elsewhere(node), answer, filtered)

    @property
    def some_fit(self) -> bool:
        """Whether the devices fit on some node."""
        return any(one.fits for one in self.asked)

    @property
    def some_take_the_pod(self) -> bool:
        """Whether the devices fit on a node that has nothing against the pod."""
        return any(one.fits and one.takes_the_pod for one in self.asked)

    @property
    def allocated_elsewhere(self) -> Verdict | None:
        """What keeps the devices that a claim already has from a node that would take the pod."""
        found = (one.elsewhere[0] for one in self.asked if one.elsewhere and one.takes_the_pod)
        return next(found, None)

    @property
    def fitting(self) -> int:
        """On how many nodes the devices fit."""
        return sum(len(one.alike.nodes) for one in self.asked if one.fits)

    @property
    def taking(self) -> int:
        """On how many of those nothing speaks against the pod either."""
        return sum(len(one.filtered[()][1]) for one in self.asked if one.fits and one.takes_the_pod)

    @property
    def cancelled(self) -> bool:
        """Whether an answer is missing."""
        return any(one.answer.cancelled for one in self.asked)

    @property
    def stopping(self) -> list[TriedNodes]:
        """Where the scheduler meets an error that stops the pod on all nodes."""
        return [one for one in self.asked if one.answer.fatal and one.takes_the_pod]

    @cached_property
    def fatal(self) -> str:
        """The error that stops the pod on all nodes, if the scheduler meets one."""
        first = next((one.answer.error for one in self.stopping), "")
        return first or self._asking.fatal_elsewhere()

    @cached_property
    def malformed(self) -> str:
        """The error that stops the pod everywhere because an object is none that an API server would take."""
        return next((one.answer.error for one in self.stopping if self._is_malformed(one)), "")

    def _is_malformed(self, asked: TriedNodes) -> bool:
        told = self.in_the_way(asked)
        return any(isinstance(one, CouldNotTell) and one.cause == MALFORMED for one in told)

    def first_placement(self) -> tuple[ChosenDevice, ...]:
        """What the scheduler would take on the first node that has nothing against the pod."""
        taking = (one for one in self.asked if one.fits and one.takes_the_pod)
        return next((placement(one) for one in taking), ())

    def groups(self) -> tuple[NodeGroup, ...]:
        """The nodes by what is in the way; those where nothing is come first."""
        found: dict[tuple[object, ...], NodeGroup] = {}
        for one in self.asked:
            for kinds, (reasons, nodes) in one.filtered.items():
                for devices, names in self._by_devices(one, nodes).items():
                    key = (one.fits and names[0], devices, kinds)
                    known = found.get(key)
                    together = (*(known.nodes if known else ()), *names)
                    found[key] = NodeGroup(
                        count=len(together),
                        nodes=together,
                        devices=devices,
                        pod=_of_both(known.pod if known else reasons, reasons),
                        placement=self._placement_on(one, nodes[0]) if one.fits else (),
                    )
        return tuple(sorted(found.values(), key=_first_what_fits))

    def _by_devices(
        self, asked: TriedNodes, nodes: Sequence[Node]
    ) -> dict[tuple[Verdict, ...], list[str]]:
        """The names of nodes by why the devices do not fit there."""
        found: dict[tuple[Verdict, ...], list[str]] = {}
        for node in nodes:
            found.setdefault(self._on(asked, node), []).append(node.metadata.name)
        return found

    def _on(self, asked: TriedNodes, node: Node) -> tuple[Verdict, ...]:
        """Why the devices do not fit on one node: of nodes that are alike each has other claims on its devices."""
        common = self.in_the_way(asked)
        if node is asked.alike.example or not any(isinstance(one, _OF_ONE_NODE) for one in common):
            return common
        place = self._alikeness.place(node)
        if place not in asked.places:
            requests = self._asking.requests_of(asked.claims)
            found = _counting(asked, requests, self.devices_on(asked, node))
            asked.places[place] = tuple(dict.fromkeys((*asked.elsewhere, *found))) or common
        return asked.places[place]

    def in_the_way(self, asked: TriedNodes) -> tuple[Verdict, ...]:
        """Why the devices do not fit on the example of nodes that are alike."""
        if asked.reasons is None:
            asked.reasons = () if asked.fits else tuple(dict.fromkeys(self._devices(asked)))
        return asked.reasons

    def _placement_on(self, asked: TriedNodes, node: Node) -> tuple[ChosenDevice, ...]:
        """Nodes that are alike have devices of other names: the allocator is asked again for the one that is shown."""
        if node is asked.alike.example or not asked.claims:
            return placement(asked)
        claims = self._asking.claims_on(node)
        answer = ask(self._fleet.allocator, node, claims, self._asking.cancelled)
        return placement(TriedNodes(asked.alike, claims, (), answer, {}))

    def _devices(self, asked: TriedNodes) -> Iterator[Verdict]:
        yield from asked.elsewhere
        if asked.answer.fits:
            return
        if asked.answer.cancelled:
            yield CouldNotTell("timeout", asked.answer.error)
            return
        if asked.answer.too_many:
            yield TooManyDevices(asked.answer.too_many)
            return
        requests = self._asking.requests_of(asked.claims)
        found = _counting(asked, requests, asked.alike.devices)
        if not found and asked.answer.error and asked.answer.failure is not ConstraintBroken:
            found = [meaning_of(asked.answer)]
        yield from found or [self._conflict(asked, requests)]

    def _conflict(self, asked: TriedNodes, requests: Sequence[RequestExplained]) -> Verdict:
        """Every request alone has enough devices on the node: what keeps them from being had together?"""
        parts = conflict.parts_of(asked.claims)
        self._conflicts += 1
        if self._conflicts <= MOST_CONFLICTS:
            parts = conflict.smallest(asked.claims, lambda claims: self.fits(asked, claims))
        usable = [
            device
            for device in asked.alike.devices
            if any(not request.reasons(device) for request in requests)
        ]
        return conflict.told(asked.claims, parts, usable)

    def fits(self, asked: TriedNodes, claims: Sequence[ResourceClaim]) -> bool:
        """Whether these claims would fit on such a node."""
        return self.answer(asked, claims).fits

    def answer(self, asked: TriedNodes, claims: Sequence[ResourceClaim]) -> TrialResult:
        """The scheduler's answer for these claims on such a node."""
        return ask(self._fleet.allocator, asked.alike.example, claims, self._asking.cancelled)


def placement(asked: TriedNodes) -> tuple[ChosenDevice, ...]:
    """The devices of an answer."""
    return tuple(
        ChosenDevice(full_name(claim), one.request, one.driver, one.pool, one.device)
        for claim, result in zip(asked.claims, asked.answer.results or (), strict=False)
        for one in result.devices.results or ()
    )


def _counting(
    asked: TriedNodes, requests: Sequence[RequestExplained], devices: Sequence[SliceDevice]
) -> list[Verdict]:
    """What counting says against a node; devices that do not match are no reason for an error."""
    found = _alone(requests, devices)
    return [one for one in found if not (asked.answer.fatal and isinstance(one, SelectorFalse))]


def _alone(
    requests: Sequence[RequestExplained], devices: Sequence[SliceDevice]
) -> Iterator[Verdict]:
    """Why requests cannot be served on a node with these devices, each looked at alone."""
    by_main: dict[tuple[str, int], list[list[Verdict]]] = {}
    for request in requests:
        by_main.setdefault(request.asked.main, []).append(list(lacking(request, devices)))
    for alternatives in by_main.values():
        if all(alternatives):
            for reasons in alternatives:
                yield from reasons


def lacking(request: RequestExplained, devices: Sequence[SliceDevice]) -> Iterator[Verdict]:
    """Why one request alone cannot be served by these devices; nothing where it can, as far as counting goes."""
    if request.problems:
        yield from request.problems
        return
    firsts = [request.first(one) for one in request.meant(devices)]
    errors = [one for one in firsts if isinstance(one, SelectorError)]
    if errors:
        yield errors[0]
        return
    counted = Counter(one for one in firsts if one is not None)
    available = sum(one is None for one in firsts)
    if request.asked.all_devices:
        yield from _all(firsts)
        return
    needed = request.asked.body.count
    shared = any(one.device.allow_multiple_allocations for one in devices)
    if available >= needed or (shared and available):
        return
    if available or not counted:
        yield NotEnoughDevices(needed, available)
    yield from sorted(counted, key=lambda one: (isinstance(one, SelectorFalse), -counted[one]))[
        :SHOWN_REASONS
    ]


def _all(firsts: Sequence[Verdict | None]) -> Iterator[Verdict]:
    matching = [one for one in firsts if not isinstance(one, SelectorFalse)]
    broken = [one for one in matching if isinstance(one, PoolIncomplete | PoolInvalid)]
    yield from broken[:1]
    missing = [one for one in matching if one is not None]
    if not matching:
        yield AllUnsatisfied("all matching devices are asked for, and none matches")
    elif missing:
        yield AllUnsatisfied(
            f"all {len(matching)} matching devices are asked for, {len(missing)} cannot be had: {missing[0]}"
        )


def meaning_of(answer: TrialResult) -> Verdict:
    """What an error of the allocator means, where no request and no device accounts for it."""
    if answer.too_many:
        return TooManyDevices(answer.too_many)
    if answer.failure is PoolUnusable:
        return AllUnsatisfied(answer.error)
    return CouldNotTell(MALFORMED if answer.fatal else "failed", answer.error)


def _kind(reason: Verdict) -> object:
    """Nodes with more or less of a resource are told together."""
    return (NodeResources, reason.resource) if isinstance(reason, NodeResources) else reason


def _of_both(ones: Sequence[Verdict], others: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Reasons of the same kinds, true of the nodes of both."""
    return tuple(map(_range, ones, others)) if ones != others else tuple(ones)


def _range(one: Verdict, other: Verdict) -> Verdict:
    if not (isinstance(one, NodeResources) and isinstance(other, NodeResources)):
        return one
    free = [text for part in (one, other) for text in (part.least or part.free, part.free)]
    free.sort(key=lambda text: amount(text).nanos)
    least = free[0] if amount(free[0]).nanos != amount(free[-1]).nanos else ""
    return NodeResources(one.resource, one.needed, free[-1], least)


def _first_what_fits(group: NodeGroup) -> tuple[bool, bool, int]:
    return bool(group.devices), bool(group.pod), -group.count
