# SPDX-License-Identifier: Apache-2.0
"""Which changes make everything fit? Proposals, each tried by running the allocator on the changed claims."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from dra_driver.cel.reasons.similar import likely
from dra_driver.explain import conflict
from dra_driver.explain.combined_changes import combined_changes
from dra_driver.explain.facts.facts import Facts
from dra_driver.explain.names import full_name
from dra_driver.explain.nodes import NodesExplained, TriedNodes
from dra_driver.explain.outcome import Change
from dra_driver.explain.proposals import Proposal, fewer, from_errors, from_miss, other_class
from dra_driver.explain.reasons import RequestExplained
from dra_driver.explain.requests import RequestsExplained
from dra_driver.explain.trial import try_on
from dra_driver.explain.verdict import AllUnsatisfied, ClassMissing, NotEnoughDevices
from dra_driver.model.api.core import Node
from dra_driver.model.api.resource_claim import ResourceClaim

MOST_CHANGES = 3
MOST_TRIALS = 24
"""The largest number of nodes on which one change is tried."""


class TriedChanges:
    """The changes that help one pod or claim."""

    def __init__(self, facts: Facts, nodes: NodesExplained, requests: RequestsExplained) -> None:
        self._facts = facts
        self._fleet = facts.fleet
        self._nodes = nodes
        self._requests = requests

    def changes(self) -> tuple[Change, ...]:
        """Return up to MOST_CHANGES changes of which each makes everything fit. If none does, the first combination that does."""
        if self._nodes.fatal and not any(tried.result.fatal for tried in self._nodes.tried):
            return ()  # the error is on nodes that the report is not about, and changes are not tried there
        seen: dict[str, Proposal] = {}
        for proposal in self._proposals():
            seen.setdefault(proposal.what, proposal)
        tried = (
            (one.what, self._fits_on({full_name(one.claim.metadata): one.claim}, one.ended))
            for one in seen.values()
        )
        helping = (Change(what=what, on=node) for what, node in tried if node)
        return tuple(islice(helping, MOST_CHANGES)) or self._changes_together()

    def _changes_together(self) -> tuple[Change, ...]:
        """Return the first combination of changes that makes everything fit; () if there is none."""
        tried = (
            (one.what, self._fits_on(one.claims, one.ended, first=one.tried))
            for one in combined_changes(self._requests.requests, self._nodes.tried)
        )
        return tuple(islice((Change(what=what, on=node) for what, node in tried if node), 1))

    def _proposals(self) -> Iterator[Proposal]:
        for explained in self._requests.requests:
            if explained.problems:
                yield from self._other_classes(explained)
            else:
                yield from self._of_request(explained)
        yield from self._of_constraints()

    def _other_classes(self, explained: RequestExplained) -> Iterator[Proposal]:
        for problem in explained.problems:
            if isinstance(problem, ClassMissing):
                near = likely(problem.device_class, list(self._fleet.classes))
                if near:
                    yield other_class(explained.request, near)

    def _of_request(self, explained: RequestExplained) -> Iterator[Proposal]:
        request = explained.request
        for verdict in self._requests.verdicts(explained, self._requests.groups(explained)):
            if isinstance(verdict, NotEnoughDevices) and verdict.available:
                yield fewer(request, verdict.available)
            elif isinstance(verdict, AllUnsatisfied):
                yield from (fewer(request, most) for most in self._most_free(explained))
        # An error on any device of the cluster can stop the search, not only on the devices in the report.
        yield from from_errors(explained, list(self._fleet.devices.values()))
        miss = self._requests.miss(explained)
        if miss is not None:
            yield from from_miss(request, miss)

    def _most_free(self, explained: RequestExplained) -> list[int]:
        """Return the largest number of free devices on one node, as a list of one number; [] if no node has a free device."""
        counts = [
            sum(not explained.reasons(device) for device in tried.group.devices)
            for tried in self._nodes.tried
        ]
        return [max(counts)] if any(counts) else []

    def _of_constraints(self) -> Iterator[Proposal]:
        """Propose for each constraint: correct its attribute's name, if it looks mistyped, and leave the constraint out."""
        claims = {
            full_name(one.request.claim.metadata): one.request.claim
            for one in self._requests.requests
        }
        for claim in claims.values():
            for index, constraint in enumerate(claim.spec.devices.constraints or ()):
                near = conflict.near_attribute(constraint, self._requests.devices)
                if near:
                    right = conflict.with_attribute(claim, index, near)
                    wrong = conflict.attribute_of(constraint)
                    yield Proposal(f"write {near} instead of {wrong}", right)
                part = conflict.ClaimPart(0, "constraint", index)
                (rest,) = conflict.without([claim], [part])
                text = conflict.constraint_text(constraint)
                yield Proposal(f"leave out the constraint {text}", rest)

    def _fits_on(
        self,
        changed: Mapping[str, ResourceClaim],
        ended: Sequence[str],
        first: TriedNodes | None = None,
    ) -> str:
        """Return a node where everything fits with the change; "" if there is none. `first` are the nodes to try first."""
        allocator = self._fleet.allocator
        nodes = [(tried, tried.group.example) for tried in self._nodes.tried]
        if ended:
            claims = self._fleet.state.resource_claims
            kept = [one for one in claims if full_name(one.metadata) not in ended]
            allocator = self._fleet.allocator_with(self._fleet.held_by(kept))
            nodes = list(self._nodes_of(ended))
        # A change does not help if an error still stops the pod. So the nodes with an error come first.
        nodes.sort(key=lambda one: (not one[0].result.fatal, one[0] is not first))
        where = ""
        for tried, node in nodes[:MOST_TRIALS]:
            claims_there = [changed.get(full_name(one.metadata), one) for one in tried.claims]
            result = try_on(allocator, node, claims_there, self._facts.stop)
            if result.fatal and tried.takes_the_pod:
                return ""
            if result.fits and not tried.ruled_out:
                where = where or node.metadata.name
        return where

    def _nodes_of(self, ended: Sequence[str]) -> Iterator[tuple[TriedNodes, Node]]:
        """Yield from each group of nodes the first node that can use a device of one of these claims."""
        for tried in self._nodes.tried:
            for node in tried.group.nodes:
                devices = self._nodes.devices_on(tried, node)
                if any(
                    claim in ended for one in devices for claim in self._fleet.claims_on(one.id)
                ):
                    yield tried, node
                    break
