# SPDX-License-Identifier: Apache-2.0
"""How many pods that are alike find their devices, and where?

Node by node as many as it takes: what one node gives hardly depends on the others, so it does not matter in which order
the scheduler fills them.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.facts.pod_filters import PodFilters
from dra_driver.explain.nodes import NodesExplained
from dra_driver.explain.subject.subject import numbered
from dra_driver.explain.trial import ask
from dra_driver.explain.verdict import NodeSelectorMismatch, NodeTainted
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.resource_claim import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from dra_driver.model.cluster import ClusterState


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod with its node, and the claims that it made with what they got."""

    pod: Pod
    claims: tuple[ResourceClaim, ...]


class Placing(Protocol):
    """What is known of the pods that are placed."""

    fleet: Fleet

    @property
    def nodes(self) -> NodesExplained:
        """What is the matter on each node."""

    def claims_on(self, node: Node) -> list[ResourceClaim]:
        """The claims to allocate on a node."""

    def filters(self, pod: Pod, pods: Sequence[Pod]) -> PodFilters:
        """What nodes are asked for the pod, where these pods are there."""

    def cancelled(self) -> bool:
        """Whether to stop."""


def fill(
    placing: Placing, name: Callable[[int], Pod], count: int, among: Collection[str] | None
) -> list[Placed]:
    """Up to `count` pods, in the order of their numbers from 0; with `among` one on each of these nodes at most."""
    there = _Filling(placing, name)
    for node in _taking(placing.nodes):
        if among is None or node.metadata.name in among:
            most = count - len(there.placed)
            there.fill(node, most if among is None else min(most, 1))
    return there.placed


def daemon_nodes(nodes: NodesExplained) -> list[str]:
    """The nodes on which a DaemonSet wants its pod: those that it selects and whose taints its pods tolerate."""
    return [
        node.metadata.name
        for one in nodes.asked
        for reasons, there in one.filtered.values()
        if not any(isinstance(reason, NodeSelectorMismatch | NodeTainted) for reason in reasons)
        for node in there
    ]


def _taking(nodes: NodesExplained) -> Iterator[Node]:
    for one in nodes.asked:
        if one.fits and one.takes_the_pod:
            yield from one.filtered[()][1]


class _Filling:
    """The cluster while it fills."""

    def __init__(self, placing: Placing, name: Callable[[int], Pod]) -> None:
        self._placing = placing
        self._name = name
        self._allocator = placing.fleet.allocator
        self._held = placing.fleet.held_by(placing.fleet.state.resource_claims)
        self._pods: dict[str, list[Pod]] = {}
        for pod in placing.fleet.state.pods:
            self._pods.setdefault(pod.spec.node_name, []).append(pod)
        self.placed: list[Placed] = []

    def fill(self, node: Node, most: int) -> None:
        """As many as the node takes, and no more than `most`."""
        pods = self._pods.setdefault(node.metadata.name, [])
        for _ in range(most):
            pod = self._name(len(self.placed))
            if self._placing.cancelled() or self._placing.filters(pod, pods).reasons(node):
                return
            claims = self._placing.claims_on(node)
            answer = ask(self._allocator, node, claims, self._placing.cancelled) if claims else None
            if answer is not None and not answer.fits:
                return
            pod = running(pod, node)
            results = (answer.results if answer else None) or ()
            self._take(
                Placed(pod, tuple(given(*one, pod) for one in zip(claims, results, strict=True)))
            )

    def _take(self, placed: Placed) -> None:
        self._pods[placed.pod.spec.node_name].append(placed.pod)
        self.placed.append(placed)
        if placed.claims:
            consumable = self._placing.fleet.rules.consumable_capacity
            for claim in placed.claims:
                self._held.take(claim, consumable_capacity=consumable)
            self._allocator = self._allocator.after(self._held.state())


def running(pod: Pod, node: Node) -> Pod:
    """The pod, bound."""
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, node_name=node.metadata.name)
    )


def given(claim: ResourceClaim, result: AllocationResult, pod: Pod) -> ResourceClaim:
    """The claim with its devices. One that a pod of a workload made is named after that pod."""
    users = [ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name)]
    status = msgspec.structs.replace(claim.status, allocation=result, reserved_for=users)
    metadata = claim.metadata
    owner = next((one for one in metadata.owner_references or () if one.controller), None)
    if owner is not None and owner.name != pod.metadata.name:
        name, uid = metadata.name, f"{pod.metadata.uid}-{metadata.uid}"
        if name.startswith(owner.name):
            name = pod.metadata.name + name.removeprefix(owner.name)
        metadata = msgspec.structs.replace(metadata, name=name, uid=uid)
    return msgspec.structs.replace(claim, metadata=metadata, status=status)


def served(state: ClusterState, batch: Sequence[Placed]) -> ClusterState:
    """The cluster when these pods run."""
    ours = {_key(one.pod.metadata) for one in batch}
    pods = [one for one in state.pods if _key(one.metadata) not in ours]
    allocated = {_key(claim.metadata): claim for one in batch for claim in one.claims}
    claims = [allocated.pop(_key(claim.metadata), claim) for claim in state.resource_claims]
    return msgspec.structs.replace(
        state,
        pods=(*pods, *(one.pod for one in batch)),
        resource_claims=(*claims, *allocated.values()),
    )


def shares_a_claim(claims: Sequence[ResourceClaim], pod: Pod) -> bool:
    """Whether a claim that is still to be allocated is one that other pods use as well."""
    return any(
        all(owner.uid != pod.metadata.uid for owner in claim.metadata.owner_references or ())
        for claim in claims
    )


def names(pod: Pod, first: int) -> Callable[[int], Pod]:
    """The pods of a workload from number `first` on; 0 for a pod of its own."""
    return lambda index: numbered(pod, first + index) if first else pod


def _key(metadata: ObjectMeta) -> tuple[str, str, str]:
    return metadata.namespace, metadata.name, metadata.uid
