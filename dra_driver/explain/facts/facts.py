# SPDX-License-Identifier: Apache-2.0
"""What does `explain` know before it checks any device? The nodes, the claims to allocate on each, and why a node is ruled out.

The facts are made once for a pod or claim in a cluster. The later steps read only them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from dra_driver.explain.claim_request import ClaimRequest, requests_in
from dra_driver.explain.facts.claim_problems import NO_ALLOCATION, ClaimFacts, claim_facts
from dra_driver.explain.facts.claim_state import allocated_elsewhere, is_allocated
from dra_driver.explain.facts.device_nodes import DeviceNodes
from dra_driver.explain.facts.extended_resources import ExtendedResources
from dra_driver.explain.facts.fleet import Fleet
from dra_driver.explain.facts.pod_filters import PodFilters
from dra_driver.explain.facts.used_resources import UsedResources
from dra_driver.explain.names import full_name
from dra_driver.explain.subject.subject import Resolved
from dra_driver.explain.verdict import Verdict
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.gates import ALLOCATION


class NodeFacts(Struct, frozen=True):
    """The facts about one node.

    `claims` have to be allocated if the pod goes there. `ruled_out` are the reasons why the pod cannot use any devices there,
    whichever the node has. `lacking` are the extended resources that devices have to provide there.
    """

    claims: tuple[ResourceClaim, ...]
    ruled_out: tuple[Verdict, ...]
    lacking: tuple[str, ...]


class Facts:
    """The facts for the nodes in `only`; for all nodes of the cluster if `only` is None."""

    def __init__(
        self, subject: Resolved, fleet: Fleet, only: Sequence[Node] | None, stop: Callable[[], bool]
    ) -> None:
        self.subject = subject
        self.fleet = fleet
        self.nodes = fleet.nodes if only is None else DeviceNodes(only)
        self.stop = stop
        """Returns True when no caller waits for the report any more."""
        self._is_part = only is not None
        self._extended = ExtendedResources(subject.pod, fleet, tuple(self.nodes.nodes.values()))
        extended = tuple(self._extended.wanted())
        self.wanted = (*subject.wanted, *extended)
        self.own_claims = tuple(_unallocated(one.claim for one in subject.wanted))
        """The claims of the subject that have to be allocated, without the claim for extended resources."""
        self.claims = (*self.own_claims, *_unallocated(one.claim for one in extended))
        self.own_allocated = frozenset(
            full_name(one.claim.metadata)
            for one in subject.wanted
            if one.claim and is_allocated(one.claim)
        )
        """The claims of the subject ("namespace/name") that have their devices. The subject needs them: nobody should end them for it."""
        self.requests: tuple[ClaimRequest, ...] = tuple(
            request for claim in self.claims for request in requests_in(claim)
        )

    @cached_property
    def claims_explained(self) -> Sequence[ClaimFacts]:
        """Each claim of the subject once, with what keeps the pod from using it."""
        once = {id(one.claim) if one.claim else one.name: one for one in self.wanted}
        return [claim_facts(one, self.subject, self.fleet) for one in once.values()]

    @cached_property
    def on(self) -> Mapping[str, NodeFacts]:
        """The facts for each node, by its name."""
        off = bool(self.claims) and not self.fleet.is_on(ALLOCATION)
        everywhere = (*((NO_ALLOCATION,) if off else ()), *self._extended.refused)
        allocated = [one.claim for one in self.wanted if one.claim and is_allocated(one.claim)]
        claims: dict[tuple[str, ...], tuple[ResourceClaim, ...]] = {}
        found: dict[str, NodeFacts] = {}
        for name, node in self.nodes.nodes.items():
            lacking = self._extended.lacking(node)
            if lacking not in claims:
                claims[lacking] = (*self.own_claims, *self._extended.claims_for(lacking))
            away = (reason for one in allocated for reason in allocated_elsewhere(one, node))
            found[name] = NodeFacts(claims[lacking], (*everywhere, *away), lacking)
        return found

    def pod_filters(self, pod: Pod, used: UsedResources) -> PodFilters:
        """Return the scheduler's other checks of a node for the pod, or for an equal one, beside the pods of `used`."""
        return PodFilters(pod, used, self._extended.names)

    @cached_property
    def whole_cluster(self) -> "Facts | None":
        """The facts for all nodes, if the report is about some nodes only; else None.

        The scheduler also tries the other nodes, and an error on one of them can stop the pod on all nodes. `explain` tries them
        only to find such an error.
        """
        return Facts(self.subject, self.fleet, None, self.stop) if self._is_part else None


def _unallocated(claims: Iterable[ResourceClaim | None]) -> Iterator[ResourceClaim]:
    return (one for one in claims if one is not None and not is_allocated(one))
