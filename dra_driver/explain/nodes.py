# SPDX-License-Identifier: Apache-2.0
"""On which nodes would everything fit, and why not on the other nodes?

Of equivalent nodes only one is tried. Some errors of the allocator stop the pod on all nodes. But the scheduler gets such an error
only from a node that passes the pod's other filters (node selector, taints, ...): on other nodes it never runs the allocator.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from dra_driver.allocator.devices import SliceDevice
from dra_driver.allocator.failures import ConstraintViolated, PoolUnusable
from dra_driver.allocator.features import OPTIONAL_NODE_OPERATIONS
from dra_driver.explain import conflict
from dra_driver.explain.claim_request import requests_in
from dra_driver.explain.counting import NodeReason, unserved
from dra_driver.explain.device_state import SKIPPING
from dra_driver.explain.equivalence import equivalence_for
from dra_driver.explain.facts.claim_problems import MALFORMED
from dra_driver.explain.facts.claim_state import skips_operations
from dra_driver.explain.facts.facts import Facts
from dra_driver.explain.names import full_name
from dra_driver.explain.not_read import (
    doubts_about_left_out,
    doubts_about_nodes,
    still_true,
    uncounted_nodes,
)
from dra_driver.explain.outcome import NodeGroup
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.trial import TrialResult, try_on
from dra_driver.explain.tried_nodes import Kinds, TriedNodes, of_both, try_all, try_on_all
from dra_driver.explain.verdict import (
    AllUnsatisfied,
    CapacityConsumed,
    ChosenDevice,
    CouldNotTell,
    CountersUsedUp,
    FeatureOff,
    HeldByClaim,
    NodeResources,
    SelectorFalse,
    Tainted,
    TooManyDevices,
    Verdict,
)
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import ResourceClaim

MOST_CONFLICTS = 4
"""The smallest conflict is searched for this many groups of nodes. Every other group has one of these, or all requests and
constraints."""

_OF_ONE_NODE = (HeldByClaim, CapacityConsumed, CountersUsedUp, Tainted, AllUnsatisfied)
"""Reasons that may differ between equivalent nodes, because they name a claim, a device or the rule of a taint."""


class NodesExplained:
    """All nodes that the report is about, tried and grouped."""

    def __init__(self, facts: Facts, requests: Sequence[RequestExplained]) -> None:
        self._facts = facts
        self._requests = requests
        self.count = len(facts.nodes.nodes)
        looks = [one.answers for one in requests]
        asked = [one.request for one in requests]
        self._equivalence = equivalence_for(facts.fleet, facts.nodes, looks, asked)
        self.tried = try_all(facts, self._equivalence)
        self._conflicts = 0
        self._found: list[Sequence[conflict.ClaimPart]] = []

    def devices_on(self, tried: TriedNodes, node: Node) -> Sequence[SliceDevice]:
        """Return the devices that a node can use."""
        if node is tried.group.example:
            return tried.group.devices
        return self._equivalence.devices_on(node)

    @property
    def some_fit(self) -> bool:
        """Whether the devices fit on some node."""
        return any(one.fits for one in self.tried)

    @property
    def some_take_the_pod(self) -> bool:
        """Whether the devices fit on a node that takes the pod."""
        return any(one.fits and one.takes_the_pod for one in self.tried)

    @property
    def lack_devices(self) -> bool:
        """Whether devices are what is missing: on every node, or on each one that takes the pod."""
        if self.some_take_the_pod:
            return False
        return not self.some_fit or any(one.takes_the_pod for one in self.tried)

    @property
    def allocated_elsewhere(self) -> Verdict | None:
        """The reason why the devices of an allocated claim cannot be used from a node that takes the pod; None if there is none."""
        found = (reason for one in self.tried if one.takes_the_pod for reason in one.ruled_out)
        return next((one for one in found if not isinstance(one, NodeResources)), None)

    @property
    def fitting(self) -> int:
        """The number of nodes on which the devices fit."""
        return sum(len(one.group.nodes) for one in self.tried if one.fits)

    @property
    def taking(self) -> list[Node]:
        """The nodes on which the devices fit and that take the pod; `uncounted` ones may be among them."""
        return _taking_the_pod(one for one in self.tried if one.fits)

    @cached_property
    def uncounted(self) -> frozenset[str]:
        """The nodes that are said to take the pod although nobody knows whether it has room there."""
        return uncounted_nodes(self._facts.fleet.state) if self._facts.subject.pod else frozenset()

    @property
    def cancelled(self) -> bool:
        """Whether the time was over before all nodes were tried."""
        return any(one.result.cancelled for one in self.tried)

    @cached_property
    def stopping(self) -> list[TriedNodes]:
        """The nodes where the scheduler gets an error that stops the pod on all nodes."""
        return [one for one in self.tried if one.stops_the_pod]

    @cached_property
    def stopping_anywhere(self) -> list[TriedNodes]:
        """The same, also of nodes that the report is not about."""
        everywhere = self._facts.whole_cluster
        if everywhere is None:
            return self.stopping
        return [one for one in try_on_all(everywhere) if one.stops_the_pod]

    @cached_property
    def fatal(self) -> str:
        """The error that stops the pod on all nodes, also from a node that the report is not about; "" if there is none."""
        stopping = self.stopping or self.stopping_anywhere
        return next((one.result.error for one in stopping), "")

    @property
    def deciding(self) -> list[str]:
        """The nodes of which each alone makes the outcome what it is: those with an error that stops the pod, else `taking`."""
        found = _taking_the_pod(self.stopping_anywhere) if self.fatal else self.taking
        return [node.metadata.name for node in found]

    @cached_property
    def malformed(self) -> str:
        """The error that stops the pod on all nodes because of an object that no API server would accept; "" if there is none."""
        return next((one.result.error for one in self.stopping if self._is_malformed(one)), "")

    def _is_malformed(self, tried: TriedNodes) -> bool:
        reasons = self.in_the_way(tried)
        found = (one.verdict for one in reasons)
        return any(isinstance(one, CouldNotTell) and one.cause == MALFORMED for one in found)

    def first_placement(self) -> tuple[ChosenDevice, ...]:
        """Return the devices that the scheduler would take on the first node where devices and pod fit."""
        return next(self.placements(), ())

    def placements(self) -> Iterator[tuple[ChosenDevice, ...]]:
        """Yield the devices that the scheduler would take on each node where devices and pod certainly fit.

        Each is tried when it is asked for.
        """
        for one in self.tried:
            for node in _taking_the_pod([one] if one.fits else ()):
                if node.metadata.name not in self.uncounted:
                    yield self._placement_on(one, node)

    def groups(self) -> tuple[NodeGroup, ...]:
        """Group the nodes by their reasons. Nodes without any reason come first."""
        found: dict[Kinds, NodeGroup] = {}
        for one in self.tried:
            for kinds, reasons, nodes in self._by_pod_reasons(one):
                for devices, names in self._by_devices(one, nodes).items():
                    key = (one.fits and names[0], devices, kinds)
                    known = found.get(key)
                    together = (*(known.nodes if known else ()), *names)
                    found[key] = NodeGroup(
                        count=len(together),
                        nodes=together,
                        devices=tuple(one.verdict for one in devices),
                        requests=self._names_of(devices),
                        pod=of_both(known.pod if known else reasons, reasons),
                        placement=self._placement_on(one, nodes[0]) if one.fits else (),
                    )
        return tuple(sorted(found.values(), key=_first_what_fits))

    def _by_pod_reasons(
        self, tried: TriedNodes
    ) -> Iterator[tuple[Kinds, tuple[Verdict, ...], Sequence[Node]]]:
        """Yield the nodes by what keeps the pod off them, with a doubt about those that are uncounted."""
        for kinds, (reasons, nodes) in tried.by_pod_reasons.items():
            uncounted = () if kinds else self.uncounted
            counted = [one for one in nodes if one.metadata.name not in uncounted]
            others = [one for one in nodes if one.metadata.name in uncounted]
            if counted:
                yield kinds, reasons, counted
            if others:
                names = [one.metadata.name for one in others]
                doubts = doubts_about_nodes(self._facts.fleet.state, names)
                yield doubts, doubts, others

    def _names_of(self, reasons: Sequence[NodeReason]) -> tuple[str, ...]:
        """Return the request of each reason, if several are asked for; with its claim, if these are of several claims."""
        if len(self._requests) == 1:
            return ()
        several = len({full_name(one.request.claim.metadata) for one in self._requests}) > 1
        asked = [one.request.request if one.request else None for one in reasons]
        return tuple((one.place if several else one.name) if one else "" for one in asked)

    def _by_devices(
        self, tried: TriedNodes, nodes: Sequence[Node]
    ) -> dict[tuple[NodeReason, ...], list[str]]:
        """Group the names of the nodes by the reasons why the devices do not fit there."""
        found: dict[tuple[NodeReason, ...], list[str]] = {}
        left_out_on = self._facts.fleet.left_out_on
        for node in nodes:
            reasons = self._on(tried, node)
            left_out = (*left_out_on.get(node.metadata.name, ()), *left_out_on.get("", ()))
            if left_out and not tried.fits:
                still = ((still_true(*one, left_out), one.request) for one in reasons)
                doubts = doubts_about_left_out(self._facts.fleet.state, self._requests, left_out)
                reasons = (
                    *(NodeReason(verdict, of) for verdict, of in still if verdict is not None),
                    *map(NodeReason, doubts),
                )
            found.setdefault(reasons, []).append(node.metadata.name)
        return found

    def _on(self, tried: TriedNodes, node: Node) -> tuple[NodeReason, ...]:
        """Return why the devices do not fit on one node. On equivalent nodes, other claims may have the devices."""
        common = self.in_the_way(tried)
        if node is tried.group.example or not any(
            isinstance(one.verdict, _OF_ONE_NODE) for one in common
        ):
            return common
        place = self._equivalence.place(node)
        if place not in tried.places:
            found = self._counted(tried, self.devices_on(tried, node))
            everywhere = map(NodeReason, tried.ruled_out)
            tried.places[place] = tuple(dict.fromkeys((*everywhere, *found))) or common
        return tried.places[place]

    def in_the_way(self, tried: TriedNodes) -> tuple[NodeReason, ...]:
        """Return why the devices do not fit on the example of equivalent nodes."""
        if tried.reasons is None:
            tried.reasons = () if tried.fits else tuple(dict.fromkeys(self._reasons(tried)))
        return tried.reasons

    def _reasons(self, tried: TriedNodes) -> Iterator[NodeReason]:
        # The most certain reasons first: the facts of the node, then the limits of the allocator, then the reasons that counting
        # finds, then the error of the allocator. If none of these gives a reason, the requests exclude each other.
        yield from map(NodeReason, tried.ruled_out)
        result = tried.result
        if result.fits:
            return
        if result.cancelled:
            yield NodeReason(CouldNotTell("timeout", result.error))
            return
        if result.too_many:
            yield NodeReason(TooManyDevices(result.too_many))
            return
        found = self._counted(tried, tried.group.devices)
        if not found and result.fatal:
            found = self._problems(tried)
        if not found and result.error and result.failure is not ConstraintViolated:
            found = [NodeReason(meaning_of(result))]
        yield from found or [NodeReason(self._conflict(tried))]

    def _problems(self, tried: TriedNodes) -> list[NodeReason]:
        """Return what is wrong with a single alternative: it stops the pod although another alternative would get its devices."""
        return [NodeReason(what, one) for one in self._requests_of(tried) for what in one.problems]

    def _counted(self, tried: TriedNodes, devices: Sequence[SliceDevice]) -> list[NodeReason]:
        """Return the reasons that `counting` finds. If the allocator failed, its error is the cause, and not what comes from counting:
        false selectors, and devices that there was no time for.
        """
        found = [*unserved(self._requests_of(tried), devices)] or self._skipping(tried, devices)
        return [one for one in found if not (tried.result.fatal and _only_counts(one.verdict))]

    def _skipping(self, tried: TriedNodes, devices: Sequence[SliceDevice]) -> list[NodeReason]:
        """Return a reason if the requests need devices that only nodes with a certain feature can use, and these nodes lack it."""
        if skips_operations(tried.group.example) or not self._facts.fleet.rules.experimental:
            return []
        others = [one for one in devices if not one.slice.spec.skip_node_operations]
        if len(others) == len(devices) or not any(unserved(self._requests_of(tried), others)):
            return []
        return [NodeReason(FeatureOff(OPTIONAL_NODE_OPERATIONS, SKIPPING))]

    def _requests_of(self, tried: TriedNodes) -> list[RequestExplained]:
        # Compared by name: each group of nodes has its own claim object for the extended resources that the nodes lack.
        names = {
            (full_name(claim.metadata), name) for claim in tried.claims for name in _names(claim)
        }
        return [
            one
            for one in self._requests
            if (full_name(one.request.claim.metadata), one.request.name) in names
        ]

    def _conflict(self, tried: TriedNodes) -> Verdict:
        """Return which requests and constraints do not fit together, although each request alone has enough devices on the node."""
        parts = self._smallest_conflict(tried)
        requests = self._requests_of(tried)
        usable = [
            device
            for device in tried.group.devices
            if any(not request.reasons(device) for request in requests)
        ]
        return conflict.as_verdict(tried.claims, parts, usable)

    def _smallest_conflict(self, tried: TriedNodes) -> Sequence[conflict.ClaimPart]:
        """Return a smallest conflict. If it was searched often enough already: one that was found before and is there too, else all parts."""
        every = conflict.parts_of(tried.claims)
        known = (parts for parts in self._found if set(parts) <= set(every))
        for parts in known:
            rest = [one for one in every if one not in parts]
            smaller = conflict.without(tried.claims, rest)
            if self._are_known_to_fit(tried, smaller) is False:
                return parts
        if self._conflicts == MOST_CONFLICTS:
            return every
        self._conflicts += 1
        found = conflict.smallest(
            tried.claims, lambda claims: self._are_known_to_fit(tried, claims)
        )
        self._found.append(found)
        return found

    def _are_known_to_fit(self, tried: TriedNodes, claims: Sequence[ResourceClaim]) -> bool | None:
        """Return whether other claims fit on these nodes; None if the time was over before that was found out."""
        result = self.try_again(tried, claims)
        return None if result.cancelled else result.fits

    def _placement_on(self, tried: TriedNodes, node: Node) -> tuple[ChosenDevice, ...]:
        """Return the devices that the scheduler would take on this node. Device names differ between equivalent nodes, so try it."""
        if node is tried.group.example or not tried.claims:
            return placement(tried.claims, tried.result)
        claims = self._facts.on[node.metadata.name].claims
        result = try_on(self._facts.fleet.allocator, node, claims, self._facts.stop)
        return placement(claims, result)

    def try_again(self, tried: TriedNodes, claims: Sequence[ResourceClaim]) -> TrialResult:
        """Return the scheduler's answer for other claims on the example of these nodes."""
        allocator = self._facts.fleet.allocator
        return try_on(allocator, tried.group.example, claims, self._facts.stop)


def _taking_the_pod(tried: Iterable[TriedNodes]) -> list[Node]:
    return [node for one in tried if one.takes_the_pod for node in one.by_pod_reasons[()][1]]


def placement(claims: Sequence[ResourceClaim], result: TrialResult) -> tuple[ChosenDevice, ...]:
    """Return the devices of a result."""
    return tuple(
        ChosenDevice(full_name(claim.metadata), one.request, one.driver, one.pool, one.device)
        for claim, allocated in zip(claims, result.results or (), strict=False)
        for one in allocated.devices.results or ()
    )


def meaning_of(result: TrialResult) -> Verdict:
    """Return the verdict for an error of the allocator that no request and no device explains."""
    if result.too_many:
        return TooManyDevices(result.too_many)
    if result.failure is PoolUnusable:
        return AllUnsatisfied(result.error)
    return CouldNotTell(MALFORMED if result.fatal else "failed", result.error)


def _only_counts(reason: Verdict) -> bool:
    is_late = isinstance(reason, CouldNotTell) and reason.cause == "timeout"
    return is_late or isinstance(reason, SelectorFalse)


def _names(claim: ResourceClaim) -> list[str]:
    return [request.name for request in requests_in(claim)]


def _first_what_fits(group: NodeGroup) -> tuple[bool, bool, int]:
    return bool(group.devices), bool(group.pod), -group.count
