# SPDX-License-Identifier: Apache-2.0
"""What does the allocator answer on each node? Of equivalent nodes only one is tried.

Nodes that can use the same devices are told apart by what else keeps the pod off, because each reason is told with its nodes.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct, field

from dra_driver.allocator.amounts import amount
from dra_driver.explain.counting import NodeReason
from dra_driver.explain.equivalence import EquivalentNodes, NodeEquivalence, equivalence_for
from dra_driver.explain.facts.facts import Facts
from dra_driver.explain.selector_answers import answers_for
from dra_driver.explain.trial import TrialResult, try_on
from dra_driver.explain.verdict import NodeResources, Verdict
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import ResourceClaim

Kinds = tuple[object, ...]


class TriedNodes(Struct):
    """Equivalent nodes, the claims that were tried on one of them (`group.example`), and the result.

    `ruled_out` are reasons why no devices can be used there at all, or of which devices a device plugin has too few left.
    `by_pod_reasons` groups the nodes by the reasons other than devices that keep the pod off; the key () has the nodes that take the
    pod.
    """

    group: EquivalentNodes
    claims: tuple[ResourceClaim, ...]
    ruled_out: tuple[Verdict, ...]
    result: TrialResult
    by_pod_reasons: dict[Kinds, tuple[tuple[Verdict, ...], list[Node]]]

    reasons: tuple[NodeReason, ...] | None = None
    places: dict[object, tuple[NodeReason, ...]] = field(default_factory=dict)
    """The reasons on nodes other than the example; nodes that can use the same devices have one entry."""

    @property
    def fits(self) -> bool:
        """Whether the devices fit there."""
        return self.result.fits and not self.ruled_out

    @property
    def takes_the_pod(self) -> bool:
        """Whether at least one of the nodes takes the pod."""
        return () in self.by_pod_reasons

    @property
    def stops_the_pod(self) -> bool:
        """Whether the scheduler gets an error there that stops the pod on all nodes."""
        too_small = any(isinstance(one, NodeResources) for one in self.ruled_out)
        return self.result.fatal and self.takes_the_pod and not too_small


def try_all(facts: Facts, equivalence: NodeEquivalence) -> list[TriedNodes]:
    """Try the claims on every node of the facts, once for equivalent nodes."""
    extra = {name: (one.lacking, one.ruled_out) for name, one in facts.on.items()}
    pod = facts.subject.pod
    filters = facts.pod_filters(pod, facts.fleet.used) if pod else None
    found: list[TriedNodes] = []
    for group in equivalence.groups(extra):
        on = facts.on[group.example.metadata.name]
        for lacking, nodes in _by_reasons(group.nodes, filters.lacking if filters else _no_reason):
            part = group
            if len(nodes) < len(group.nodes):
                part = EquivalentNodes(nodes, equivalence.devices_on(nodes[0]))
            result = TrialResult(results=())
            if on.claims:
                result = try_on(facts.fleet.allocator, part.example, on.claims, facts.stop)
            others = _by_reasons(nodes, filters.others if filters else _no_reason)
            by_pod_reasons = {tuple(map(_kind, one[0])): one for one in others}
            ruled_out = (*on.ruled_out, *lacking)
            found.append(TriedNodes(part, on.claims, ruled_out, result, by_pod_reasons))
    return found


def _by_reasons(
    nodes: Iterable[Node], reasons_for: Callable[[Node], tuple[Verdict, ...]]
) -> list[tuple[tuple[Verdict, ...], list[Node]]]:
    """Group the nodes by the kinds of their reasons. The reasons of a group are true for each of its nodes."""
    found: dict[Kinds, tuple[tuple[Verdict, ...], list[Node]]] = {}
    for node in nodes:
        reasons = reasons_for(node)
        kinds = tuple(map(_kind, reasons))
        known, there = found.get(kinds, (reasons, []))
        there.append(node)
        found[kinds] = (of_both(known, reasons), there)
    return list(found.values())


def _no_reason(_: Node) -> tuple[Verdict, ...]:
    return ()


def try_on_all(facts: Facts) -> list[TriedNodes]:
    """Try the claims on every node of the facts, where the reasons against single devices do not matter."""
    looks = [answers_for(facts.fleet, request, facts.stop) for request in facts.requests]
    return try_all(facts, equivalence_for(facts.fleet, facts.nodes, looks, facts.requests))


def _kind(reason: Verdict) -> object:
    """Return a key for grouping nodes: the reason, without amounts of a resource. Nodes that lack different amounts are one group."""
    return (NodeResources, reason.resource) if isinstance(reason, NodeResources) else reason


def of_both(ones: Sequence[Verdict], others: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Combine the reasons of two nodes, which are of the same kinds, into reasons that are true for both nodes."""
    return tuple(map(_range, ones, others)) if ones != others else tuple(ones)


def _range(one: Verdict, other: Verdict) -> Verdict:
    """Combine two reasons about the same resource: with the smallest and the largest free amount of the nodes."""
    amounts = [part for part in (one, other) if isinstance(part, NodeResources)]
    free = [text for part in amounts for text in (part.least or part.free, part.free)]
    free.sort(key=lambda text: amount(text).nanos)
    least = free[0] if amount(free[0]).nanos != amount(free[-1]).nanos else ""
    return NodeResources(amounts[0].resource, amounts[0].needed, free[-1], least)
