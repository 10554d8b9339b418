# SPDX-License-Identifier: Apache-2.0
"""Who has a device, since when, and does that end by itself?

A claim that is being deleted keeps its devices as long as pods use it, or a finalizer keeps it. A pod that is being deleted keeps its
claims as long as its containers run. A claim that is reserved for a pod group stays until the group is gone, whatever its pods do.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property

from dra_driver.allocator.allocated_devices import AllocatedClaim, allocated_claim
from dra_driver.allocator.state import DeviceID
from dra_driver.explain.facts.pod_groups import groups_of, members_by_group, reserved_pods
from dra_driver.explain.names import full_name, shown_finalizers
from dra_driver.explain.verdict import Ending, HeldByClaim
from dra_driver.model.api.core import OVER, Pod
from dra_driver.model.api.meta import ObjectMeta
from dra_driver.model.api.policy import PodDisruptionBudget
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.cluster import ClusterState


class Holders:
    """The claims of a cluster that have devices, and the pods that use them."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._known: dict[str, HeldByClaim] = {}

    def held_by(self, holder: AllocatedClaim) -> HeldByClaim:
        """Return the reason against a device that this claim has; the same object for all devices of the claim."""
        known = self._known.get(holder.claim)
        if known is None:
            known = self._known[holder.claim] = self._held_by(holder)
        return known

    def _held_by(self, holder: AllocatedClaim) -> HeldByClaim:
        claim = self._claims[holder.claim]
        allocation = claim.status.allocation
        namespace = claim.metadata.namespace
        names = [f"{namespace}/{name}" for name in reserved_pods(claim, self._members)]
        pods = tuple([name for name in dict.fromkeys(names) if self._may_run(name)])
        groups = [f"pod group {namespace}/{name}" for name in groups_of(claim)]
        return HeldByClaim(
            holder.claim,
            (*groups, *pods),
            (allocation.allocation_timestamp if allocation else None) or "",
            claim.metadata.creation_timestamp or "",
            self._ending(claim, pods),
            self.budgets(pods),
        )

    def _may_run(self, name: str) -> bool:
        """Whether the pod runs or may run. The controller takes one that is over out of the claim, and may be late."""
        pod = self._pods.get(name)
        return pod is None or pod.status.phase not in OVER

    def ending(self, holders: Iterable[AllocatedClaim]) -> tuple[Ending, ...]:
        """Return what of these claims and their pods is being deleted."""
        return tuple(one for holder in holders for one in self.held_by(holder).ending)

    def named(self, name: str) -> HeldByClaim:
        """Return the reason against a device that the claim of this name has."""
        return self._known.get(name) or self.held_by(allocated_claim(self._claims[name]))

    def devices_of(self, name: str) -> list[DeviceID]:
        """Return the devices of the claim of this name."""
        allocation = self._claims[name].status.allocation
        results = (allocation.devices.results or ()) if allocation else ()
        return [DeviceID(one.driver, one.pool, one.device) for one in results]

    def budgets(self, pods: Iterable[str]) -> tuple[str, ...]:
        """Return the PodDisruptionBudgets that forbid at present to evict one of these pods."""
        budgets = self._state.pod_disruption_budgets
        if not budgets:
            return ()
        there = [self._pods[name] for name in pods if name in self._pods]
        return tuple(
            full_name(budget.metadata)
            for budget in budgets
            if not budget.status.disruptions_allowed and any(_is_of(budget, pod) for pod in there)
        )

    def _ending(self, claim: ResourceClaim, pods: Iterable[str]) -> tuple[Ending, ...]:
        found = _of("claim", claim.metadata)
        for name in pods:
            pod = self._pods.get(name)
            if pod is not None:
                found += _of("pod", pod.metadata)
        return found

    @cached_property
    def _claims(self) -> Mapping[str, ResourceClaim]:
        return {full_name(one.metadata): one for one in self._state.resource_claims}

    @cached_property
    def _members(self) -> Mapping[tuple[str, str], list[Pod]]:
        return members_by_group(self._state.pods)

    @cached_property
    def _pods(self) -> Mapping[str, Pod]:
        return {full_name(one.metadata): one for one in self._state.pods}


def _of(kind: str, metadata: ObjectMeta) -> tuple[Ending, ...]:
    if metadata.deletion_timestamp is None:
        return ()
    kept = shown_finalizers(metadata)
    return (Ending(f"{kind} {full_name(metadata)}", metadata.deletion_timestamp, kept),)


def _is_of(budget: PodDisruptionBudget, pod: Pod) -> bool:
    selector = budget.spec.selector
    same = budget.metadata.namespace == pod.metadata.namespace
    return same and selector is not None and selector.matches(pod.metadata.labels or {})
