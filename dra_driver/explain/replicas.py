# SPDX-License-Identifier: Apache-2.0
"""How many equal pods get their devices, and on which nodes?

The first node gets as many pods as it takes, then the second, and so on. The scheduler fills nodes in another order. But how many
pods a node takes hardly depends on the other nodes, so the order hardly changes the sum.
"""

from collections.abc import Collection, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dra_driver.explain.facts.claim_state import MOST_CONSUMERS, is_allocated
from dra_driver.explain.facts.facts import Facts
from dra_driver.explain.facts.pod_requests import asks_for_devices
from dra_driver.explain.facts.used_resources import UsedResources
from dra_driver.explain.nodes import NodesExplained
from dra_driver.explain.not_read import uncounted_nodes
from dra_driver.explain.subject.wanted import numbered
from dra_driver.explain.trial import try_on
from dra_driver.explain.verdict import NodeSelectorMismatch, NodeTainted
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.resource_claim import (
    POD_CLAIM_NAME,
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from dra_driver.model.cluster import ClusterState


class Placed(Struct, frozen=True):
    """A pod with its node, the claims that were allocated for it, and those that had their devices already (`joined`)."""

    pod: Pod
    claims: tuple[ResourceClaim, ...]
    joined: tuple[ResourceClaim, ...] = ()


class Replicas(Struct, frozen=True):
    """`count` equal pods of a workload, with the numbers from `first`. If `first` is 0: one pod, which no workload makes."""

    pod: Pod
    first: int
    count: int

    def at(self, index: int) -> Pod:
        """Return the pod at `index`, from 0. It is made only when it is needed, because a workload may have millions of pods."""
        return numbered(self.pod, self.first + index) if self.first else self.pod


def place_pods(
    facts: Facts, nodes: NodesExplained, replicas: Replicas, among: Collection[str] | None = None
) -> list[Placed]:
    """Place as many of the replicas as get their devices; with `among`, at most one on each of these nodes.

    All replicas are equal to the pod in `facts`. If they share a claim that has no devices yet, only one is placed: the caller
    places the others when the claim is allocated. On a node where something takes an amount that is unknown, nobody can count
    how many have room.
    """
    if shares_a_claim(facts):
        replicas = replace(replicas, count=1)
    cluster = _Filling(facts, replicas)
    uncounted = uncounted_nodes(facts.fleet.state)
    for node in nodes.taking:
        name = node.metadata.name
        if name not in uncounted and (among is None or name in among):
            left = replicas.count - len(cluster.placed)
            cluster.fill(node, left if among is None else min(left, 1))
    return cluster.placed


def place_without(
    facts: Facts, nodes: Sequence[Node], replicas: Replicas, ended: Collection[str], most: int
) -> int:
    """Return how many of the replicas get their devices on these nodes, at most `most` on each, if some claims have ended."""
    cluster = _Filling(facts, replicas, ended)
    for node in nodes:
        cluster.fill(node, min(most, replicas.count - len(cluster.placed)))
    return len(cluster.placed)


def place_devices(facts: Facts, nodes: NodesExplained, replicas: Replicas, most: int) -> int:
    """Return how many of the replicas get their devices, at most `most` on each node, whatever else keeps the pods off the nodes."""
    asks = facts.claims or asks_for_devices(replicas.pod)
    if not asks or shares_a_claim(facts):
        return replicas.count
    cluster = _Filling(facts, replicas, only_devices=True)
    for one in nodes.tried:
        for node in one.group.nodes if one.fits else ():
            cluster.fill(node, min(most, replicas.count - len(cluster.placed)))
    return len(cluster.placed)


def daemon_nodes(pod: Pod, nodes: NodesExplained) -> list[str]:
    """Return the nodes on which a DaemonSet wants such a pod: it names or selects the node, and tolerates the node's taints."""
    return [
        node.metadata.name
        for one in nodes.tried
        for reasons, there in one.by_pod_reasons.values()
        if not any(isinstance(reason, NodeSelectorMismatch | NodeTainted) for reason in reasons)
        for node in there
        if pod.spec.node_name in ("", node.metadata.name)
    ]


class _Filling:
    """A cluster in which pods are placed one after the other. `only_devices`: whatever else keeps them off the nodes."""

    def __init__(
        self,
        facts: Facts,
        replicas: Replicas,
        ended: Collection[str] = (),
        *,
        only_devices: bool = False,
    ) -> None:
        self._facts = facts
        self._only_devices = only_devices
        self._replicas = replicas
        fleet = facts.fleet
        self._allocator = fleet.allocator_without(ended, {})
        self._held = fleet.held_without(ended)
        joined = (one.claim for one in facts.subject.wanted if one.claim)
        self._joined = tuple(  # a pod may name a claim twice
            {_key(one.metadata): one for one in joined if is_allocated(one)}.values()
        )
        users = (len(claim.status.reserved_for or ()) for claim in self._joined)
        self._most = min((MOST_CONSUMERS - count for count in users), default=replicas.count)
        self._pods: dict[str, list[Pod]] = {}
        for pod in fleet.state.pods:
            self._pods.setdefault(pod.spec.node_name, []).append(pod)
        self.placed: list[Placed] = []

    def fill(self, node: Node, most: int) -> None:
        """Place as many of the next pods as the node takes, but at most `most`."""
        there = self._pods.setdefault(node.metadata.name, [])
        claims = self._facts.on[node.metadata.name].claims
        for _ in range(min(most, self._most - len(self.placed))):
            pod = self._replicas.at(len(self.placed))
            filters = self._facts.pod_filters(pod, UsedResources(there, self._facts.fleet.counts))
            reasons = filters.lacking if self._only_devices else filters.reasons
            if self._facts.stop() or reasons(node):
                return
            result = try_on(self._allocator, node, claims, self._facts.stop) if claims else None
            if result is not None and not result.fits:
                return
            # The next pod cannot use the resources and devices that this pod has now.
            results = (result.results if result else None) or ()
            bound = running(pod, node)
            given_to = tuple(given(*one, bound) for one in zip(claims, results, strict=True))
            self._take(Placed(bound, given_to, self._joined))

    def _take(self, placed: Placed) -> None:
        self._pods[placed.pod.spec.node_name].append(placed.pod)
        self.placed.append(placed)
        if placed.claims:
            consumable = self._facts.fleet.rules.consumable_capacity
            for claim in placed.claims:
                self._held.take(claim, consumable_capacity=consumable)
            self._allocator = self._allocator.after(self._held.state())


def running(pod: Pod, node: Node) -> Pod:
    """Return the pod as the scheduler binds it to the node."""
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, node_name=node.metadata.name)
    )


def given(claim: ResourceClaim, result: AllocationResult, pod: Pod) -> ResourceClaim:
    """Return the claim with its allocation. A claim made from a template gets the name of the claim for this pod."""
    status = msgspec.structs.replace(claim.status, allocation=result, reserved_for=[_user(pod)])
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
    """Return the cluster as it is when these pods run."""
    ours = {_key(one.pod.metadata) for one in batch}
    pods = [one for one in state.pods if _key(one.metadata) not in ours]
    allocated = {_key(claim.metadata): claim for one in batch for claim in one.claims}
    allocated |= _joined(batch)
    claims = [allocated.pop(_key(claim.metadata), claim) for claim in state.resource_claims]
    return msgspec.structs.replace(
        state,
        pods=(*pods, *(one.pod for one in batch)),
        resource_claims=(*claims, *allocated.values()),
    )


def _joined(batch: Sequence[Placed]) -> dict[tuple[str, str, str], ResourceClaim]:
    """Return the claims that had their devices before, with these pods as further users: a claim has MOST_CONSUMERS at most."""
    before: dict[tuple[str, str, str], ResourceClaim] = {}
    users: dict[tuple[str, str, str], list[ResourceClaimConsumerReference]] = {}
    for one in batch:
        for claim in one.joined:
            before[_key(claim.metadata)] = claim
            users.setdefault(_key(claim.metadata), []).append(_user(one.pod))
    return {key: _with_users(claim, users[key]) for key, claim in before.items()}


def _with_users(
    claim: ResourceClaim, more: Sequence[ResourceClaimConsumerReference]
) -> ResourceClaim:
    users = [*(claim.status.reserved_for or ()), *more]
    return msgspec.structs.replace(
        claim, status=msgspec.structs.replace(claim.status, reserved_for=users)
    )


def _user(pod: Pod) -> ResourceClaimConsumerReference:
    return ResourceClaimConsumerReference(
        resource="pods", name=pod.metadata.name, uid=pod.metadata.uid
    )


def shares_a_claim(facts: Facts) -> bool:
    """Return whether other pods also use one of the claims that are not allocated yet."""
    pod = facts.subject.pod
    return pod is not None and any(
        all(owner.uid != pod.metadata.uid for owner in claim.metadata.owner_references or ())
        for claim in facts.own_claims
    )


def _key(metadata: ObjectMeta) -> tuple[str, str, str]:
    return metadata.namespace, metadata.name, metadata.uid
