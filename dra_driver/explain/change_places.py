# SPDX-License-Identifier: Apache-2.0
"""Where can a change help? On the nodes that take the pod; on others only together with what keeps the pod off them."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from msgspec import Struct

from dra_driver.explain.costs import COSTS, Kind, costliest
from dra_driver.explain.facts.facts import Facts
from dra_driver.explain.nodes import NodesExplained
from dra_driver.explain.selector_answers import answers_for
from dra_driver.explain.tried_nodes import TriedNodes
from dra_driver.explain.verdict import (
    CouldNotTell,
    NodeSelectorMismatch,
    NodeTainted,
    NodeUnschedulable,
    Verdict,
)
from dra_driver.model.api.core import Node


class Place(Struct, frozen=True, eq=False):
    """Some of a group of equivalent nodes. `against` is all that keeps the pod off them, besides devices; () if they take the pod.

    `uncounted`: whether they have room for the pod is not known.
    """

    tried: TriedNodes
    nodes: Sequence[Node]
    against: tuple[Verdict, ...] = ()
    uncounted: bool = False

    @property
    def only_repels(self) -> bool:
        """Whether nothing but taints keeps the pod off."""
        return all(isinstance(one, NodeTainted) for one in self.against)

    @property
    def is_not_chosen(self) -> bool:
        """Whether the pod itself chooses other nodes."""
        return any(isinstance(one, NodeSelectorMismatch) for one in self.against)

    @property
    def cost(self) -> int:
        """What it costs to let the pod go there."""
        if not self.against:
            return 0
        return COSTS["tolerate" if self.only_repels else "edit"] * len(self.against)

    def kind(self, of_change: Kind) -> Kind:
        """Return the kind of a change together with what lets the pod go there."""
        if not self.against:
            return of_change
        return costliest((of_change, "tolerate" if self.only_repels else "edit"))

    @property
    def taints(self) -> list[str]:
        """The taints that keep the pod off."""
        return [one.taint for one in self.against if isinstance(one, NodeTainted)]

    @property
    def words(self) -> Iterator[str]:
        """What the user has to do besides, so that the pod can go there."""
        if self.uncounted:
            yield "see whether the node has room for the pod, for that could not be counted"
        if self.taints:
            yield f"tolerate the node's taint {' and '.join(self.taints)} in the pod (spec.tolerations)"
        for one in self.against:
            if isinstance(one, NodeUnschedulable):
                yield "uncordon the node"
            elif isinstance(one, NodeSelectorMismatch):
                yield f"let the pod's {one.part} match the node"
            elif not isinstance(one, NodeTainted):
                yield f"make room on the node ({one})"


def taking(tried: Iterable[TriedNodes], uncounted: Collection[str] = ()) -> list[Place]:
    """Return those of the nodes that take the pod; if there are `uncounted` ones among them, these apart."""
    found = [Place(one, one.by_pod_reasons[()][1]) for one in tried if one.takes_the_pod]
    return [part for one in found for part in _apart(one, uncounted)]


def _apart(place: Place, uncounted: Collection[str]) -> Iterator[Place]:
    others = [one for one in place.nodes if one.metadata.name in uncounted]
    counted = [one for one in place.nodes if one.metadata.name not in uncounted]
    if counted:
        yield Place(place.tried, counted)
    if others:
        yield Place(place.tried, others, uncounted=True)


def not_taking(facts: Facts, nodes: NodesExplained) -> list[Place]:
    """Return those of the other nodes where a change may help.

    If a node with devices for the pod takes it, these are only the nodes that just repel it. If only nodes without such devices take
    it, these are also cordoned and full nodes, but none that the pod itself does not choose.
    """
    pod = facts.subject.pod
    if pod is None:
        return []
    filters = facts.pod_filters(pod, facts.fleet.used)
    some_take = any(tried.takes_the_pod for tried in nodes.tried)
    some_could_serve = any(
        tried.takes_the_pod and _has_devices(facts, tried) for tried in nodes.tried
    )
    found = (
        Place(tried, [node], filters.reasons(node))
        for tried in nodes.tried
        for kinds, (_, there) in tried.by_pod_reasons.items()
        for node in (there if kinds else ())
    )
    return [
        one
        for one in _together(found)
        if not any(map(_stays, one.against))
        and (one.only_repels or not (some_could_serve or (some_take and one.is_not_chosen)))
    ]


def _has_devices(facts: Facts, tried: TriedNodes) -> bool:
    """Whether the nodes have for each request a device of its class, or of that of an alternative."""
    served = {
        request.main
        for request in facts.requests
        if any(map(answers_for(facts.fleet, request, facts.stop).of_class, tried.group.devices))
    }
    return all(request.main in served for request in facts.requests)


def _stays(reason: Verdict) -> bool:
    """Whether nobody should remove the reason: it is not known, the node is ill or goes away, or its taint ends pods."""
    unfit = isinstance(reason, NodeTainted) and (reason.is_unfit or reason.ends_pods)
    return unfit or isinstance(reason, CouldNotTell)


def _together(places: Iterable[Place]) -> Iterator[Place]:
    """Put the nodes of one group together that keep the pod off for the same reasons."""
    alike: dict[object, list[Place]] = {}
    for one in places:
        alike.setdefault((id(one.tried), one.against), []).append(one)
    for some in alike.values():
        first = some[0]
        yield Place(first.tried, [node for one in some for node in one.nodes], first.against)
