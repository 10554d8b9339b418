# SPDX-License-Identifier: Apache-2.0
"""How many equal pods find their devices, and where?

Each node gets as many as it takes, then the next one. What one node takes hardly depends on the others, so the order in which
the scheduler fills them does not matter.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import msgspec

from dra_driver.explain.facts.facts import Facts
from dra_driver.explain.nodes import NodesExplained
from dra_driver.explain.subject.wanted import POD_CLAIM_NAME, numbered
from dra_driver.explain.trial import try_on
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
    """A pod that has its node, and its claims that were allocated for it."""

    pod: Pod
    claims: tuple[ResourceClaim, ...]


@dataclass(frozen=True, slots=True)
class Replicas:
    """Equal pods: `count` of them from number `first` on. A pod that no workload makes has number 0, and is alone."""

    pod: Pod
    first: int
    count: int

    def at(self, index: int) -> Pod:
        """The pod at a place from 0; made when it is needed, because a workload may ask for millions."""
        return numbered(self.pod, self.first + index) if self.first else self.pod


def place_pods(
    facts: Facts, nodes: NodesExplained, replicas: Replicas, among: Collection[str] | None = None
) -> list[Placed]:
    """The first of the replicas, as many as find their devices; with `among` one on each of these nodes at most.

    They are all like the pod of the facts. If they share a claim that has no devices yet, only one is placed: the others follow
    when the claim is allocated.
    """
    if _shares_a_claim(facts):
        replicas = replace(replicas, count=1)
    cluster = _Filling(facts, replicas)
    for node in nodes.taking:
        if among is None or node.metadata.name in among:
            left = replicas.count - len(cluster.placed)
            cluster.fill(node, left if among is None else min(left, 1))
    return cluster.placed


def daemon_nodes(nodes: NodesExplained) -> list[str]:
    """The nodes on which a DaemonSet wants its pod: those that it selects and whose taints its pods tolerate."""
    return [
        node.metadata.name
        for one in nodes.tried
        for reasons, there in one.by_pod_reasons.values()
        if not any(isinstance(reason, NodeSelectorMismatch | NodeTainted) for reason in reasons)
        for node in there
    ]


class _Filling:
    """The cluster as it fills: pods are placed one after the other."""

    def __init__(self, facts: Facts, replicas: Replicas) -> None:
        self._facts = facts
        self._replicas = replicas
        fleet = facts.fleet
        self._allocator = fleet.allocator
        self._held = fleet.held_by(fleet.state.resource_claims)
        self._pods: dict[str, list[Pod]] = {}
        for pod in fleet.state.pods:
            self._pods.setdefault(pod.spec.node_name, []).append(pod)
        self.placed: list[Placed] = []

    def fill(self, node: Node, most: int) -> None:
        """As many of the next pods as the node takes, and no more than `most`."""
        there = self._pods.setdefault(node.metadata.name, [])
        claims = self._facts.on[node.metadata.name].claims
        for _ in range(most):
            pod = self._replicas.at(len(self.placed))
            if self._facts.stop() or self._facts.pod_filters(pod, there).reasons(node):
                return
            result = try_on(self._allocator, node, claims, self._facts.stop) if claims else None
            if result is not None and not result.fits:
                return
            # The next pod sees what this one has: its resources on the node, and its devices.
            results = (result.results if result else None) or ()
            bound = running(pod, node)
            given_to = tuple(given(*one, bound) for one in zip(claims, results, strict=True))
            self._take(Placed(bound, given_to))

    def _take(self, placed: Placed) -> None:
        self._pods[placed.pod.spec.node_name].append(placed.pod)
        self.placed.append(placed)
        if placed.claims:
            consumable = self._facts.fleet.rules.consumable_capacity
            for claim in placed.claims:
                self._held.take(claim, consumable_capacity=consumable)
            self._allocator = self._allocator.after(self._held.state())


def running(pod: Pod, node: Node) -> Pod:
    """The pod as the scheduler leaves it on the node."""
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, node_name=node.metadata.name)
    )


def given(claim: ResourceClaim, result: AllocationResult, pod: Pod) -> ResourceClaim:
    """The claim with its devices. A claim made from a template gets the name that it has for this pod."""
    users = [ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name)]
    status = msgspec.structs.replace(claim.status, allocation=result, reserved_for=users)
    metadata = claim.metadata
    owner = next((one for one in metadata.owner_references or () if one.controller), None)
    if owner is not None and owner.name != pod.metadata.name:
        name, uid = metadata.name, f"{pod.metadata.uid}-{metadata.uid}"
        entry = (metadata.annotations or {}).get(POD_CLAIM_NAME)
        if entry is not None:
            name = f"{pod.metadata.name}-{entry}"
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


def _shares_a_claim(facts: Facts) -> bool:
    """Whether a claim that is still to be allocated is one that other pods use as well."""
    pod = facts.subject.pod
    return pod is not None and any(
        all(owner.uid != pod.metadata.uid for owner in claim.metadata.owner_references or ())
        for claim in facts.own_claims
    )


def _key(metadata: ObjectMeta) -> tuple[str, str, str]:
    return metadata.namespace, metadata.name, metadata.uid
