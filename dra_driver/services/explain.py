# SPDX-License-Identifier: Apache-2.0
"""Why is this pod or claim pending, or what would it get? The whole answer, from a cluster's state alone.

First the claims themselves: are they there, allocated, usable. Then each request before all devices, then all claims
together on each node by the scheduler's own allocator, whose word decides. Then what else keeps the pod from the nodes
whose devices fit. At last, where nothing fits, changes are tried until one would do.
"""

from collections.abc import Callable, Iterator, Sequence

from dra_driver.allocator import extended_resources
from dra_driver.allocator.asked import Asked, asked_of
from dra_driver.allocator.claim_state import (
    admin_access_allowed,
    binding,
    chosen,
    elsewhere,
    full_name,
    not_owned,
    unusable,
)
from dra_driver.allocator.explain import RequestExplained
from dra_driver.allocator.fleet import Fleet
from dra_driver.allocator.pod_filters import PodFilters
from dra_driver.allocator.reach import Reach
from dra_driver.allocator.search import MAX_RESULTS
from dra_driver.allocator.trial import Alikeness
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.resource_claim import ResourceClaim
from dra_driver.model.cluster import ClusterState
from dra_driver.model.report import EXIT_CODES, Change, ClaimReport, NodeGroup, Outcome, Report
from dra_driver.model.verdict import (
    AdminAccessNotAllowed,
    ClaimMissing,
    ConstraintConflict,
    CouldNotTell,
    Fits,
    OtherCondition,
    SchedulingGated,
    TooManyDevices,
    Verdict,
)
from dra_driver.services.explain_nodes import NodesExplained
from dra_driver.services.explain_requests import RequestsExplained
from dra_driver.services.subject import (
    ClaimSubject,
    ManifestSubject,
    PodSubject,
    Resolved,
    Subject,
    TemplateSubject,
    Wanted,
    node_named,
    resolve,
)

__all__ = [
    "ClaimSubject",
    "ManifestSubject",
    "PodSubject",
    "Subject",
    "TemplateSubject",
    "explain",
]

_DECIDING = ("resourceslices", "deviceclasses", "resourceclaims", "nodes")
_LABELS_SINCE = 33
"""The release from which on admin access needs a label of the namespace."""


def explain(
    state: ClusterState,
    subject: Subject,
    *,
    node: str = "",
    cancelled: Callable[[], bool] = lambda: False,
) -> Report:
    """The answer; with `node` for that node alone. Of several pods the first that is not served. Raises Permanent."""
    if node:
        node_named(state, node)
    reports: list[Report] = []
    for resolved in resolve(state, subject):
        reports.append(_Explanation(resolved, node, cancelled).report())
        if reports[-1].exit_code:
            return reports[-1]
    return reports[0]


class _Explanation:
    """The making of one report."""

    def __init__(self, resolved: Resolved, node: str, cancelled: Callable[[], bool]) -> None:
        self._resolved = resolved
        self._pod = resolved.pod
        self._fleet = Fleet(resolved.state)
        self._cancelled = cancelled
        nodes = [node_named(resolved.state, node)] if node else resolved.state.nodes
        self._reach = Reach(nodes)
        self._extended = self._extended_resources()
        self._wanted = (*resolved.wanted, *self._extended_claim())
        self._claim_verdicts = {one.name: tuple(self._judge_claim(one)) for one in self._wanted}
        claims = (one.claim for one in self._wanted if one.claim)
        self._new = [claim for claim in claims if not _is_allocated(claim)]
        self._requests = [
            RequestExplained(self._fleet, asked, self._reach)
            for claim in self._new
            for asked in asked_of(claim)
        ]

    def _extended_resources(self) -> tuple[str, ...]:
        if self._pod is None or not self._fleet.is_on("DRAExtendedResource"):
            return ()
        self._classes = extended_resources.classes_by_resource(self._resolved.state.device_classes)
        return extended_resources.backed_by_devices(self._pod, self._classes)

    def _extended_claim(self) -> Iterator[Wanted]:
        if self._pod is None or not self._extended:
            return
        resources = self._extended
        nodes = self._reach.nodes.values()
        if nodes:  # where every node offers a resource itself, no device has to
            needed = {one for node in nodes for one in extended_resources.on_node(resources, node)}
            resources = tuple(one for one in resources if one in needed)
        if resources:
            claim = extended_resources.claim_for(self._pod, resources, self._classes)
            yield Wanted(full_name(claim), claim, f"extended resources {', '.join(resources)}")

    def _judge_claim(self, wanted: Wanted) -> Iterator[Verdict]:
        yield from wanted.verdicts
        claim = wanted.claim
        if claim is None:
            return
        yield from unusable(claim, self._pod)
        if wanted.made and wanted.own and self._pod is not None:
            yield from not_owned(claim, self._pod)
        if _is_allocated(claim):
            if self._fleet.rules.binding_conditions and not self._is_bound():
                yield from binding(claim)
            return
        requests = list(asked_of(claim))
        least = sum(min(counts) for counts in _counts(requests).values())
        if least > MAX_RESULTS:
            yield TooManyDevices(least)
        if not wanted.made and any(asked.admin_access for asked in requests):
            yield from self._admin_access(claim)

    def _admin_access(self, claim: ResourceClaim) -> Iterator[Verdict]:
        state, name = self._resolved.state, claim.metadata.namespace
        if state.minor is not None and state.minor < _LABELS_SINCE:
            return
        gap = state.unread("namespaces")
        if gap is not None:
            yield CouldNotTell(gap.reason, gap.message)
            return
        found = next((one for one in state.namespaces if one.metadata.name == name), None)
        if not admin_access_allowed(found, state.minor):
            yield AdminAccessNotAllowed(name)

    def _is_bound(self) -> bool:
        return self._pod is not None and bool(self._pod.spec.node_name) and self._resolved.live

    def report(self) -> Report:
        """The answer."""
        if self._is_bound():
            return self._bound()
        nodes = self._nodes()
        requests = RequestsExplained(self._fleet, self._reach, self._requests, nodes)
        changes = () if nodes.some_fit else requests.changes()
        claims = tuple(self._claim(one, requests) for one in self._wanted)
        verdicts = tuple(self._verdicts(nodes))
        outcome = self._outcome(claims, nodes, verdicts)
        if outcome == "devices fit" and (said := self._scheduler_says()) is not None:
            verdicts = (*verdicts, said)
            outcome = "devices fit, something else is in the way"
        return self._finished(outcome, claims, nodes, (verdicts, changes))

    def _bound(self) -> Report:
        pod = self._pod
        where = pod.spec.node_name if pod else ""
        devices = tuple(one for w in self._wanted if w.claim for one in chosen(w.claim))
        claims = tuple(
            ClaimReport(name=one.name, origin=one.origin, allocated=chosen(one.claim))
            for one in self._wanted
            if one.claim and one.made
        )
        return Report(
            subject=self._resolved.title,
            outcome="devices fit",
            exit_code=0,
            summary=f"scheduled on node {where}",
            cluster=self._resolved.state.kubernetes_version,
            verdicts=(Fits(devices),),
            claims=claims,
            nodes=(NodeGroup(count=1, nodes=(where,), placement=devices),),
            not_read=self._resolved.state.not_read,
        )

    def _nodes(self) -> NodesExplained:
        pods = self._resolved.state.pods
        filters = PodFilters(self._pod, pods, frozenset(self._extended)) if self._pod else None
        alikeness = Alikeness(self._fleet, self._reach, self._requests)
        return NodesExplained(self._fleet, alikeness, filters, self)

    def claims_on(self, node: Node) -> list[ResourceClaim]:
        """The claims that would have to be allocated if the pod went to the node."""
        found: list[ResourceClaim] = []
        for claim in self._new:
            if claim.metadata.name != extended_resources.NAME or self._pod is None:
                found.append(claim)
                continue
            resources = extended_resources.on_node(self._extended, node)
            if resources:
                found.append(extended_resources.claim_for(self._pod, resources, self._classes))
        return found

    def elsewhere(self, node: Node) -> tuple[Verdict, ...]:
        """Claims that are allocated already and cannot be used from the node."""
        return tuple(
            reason
            for one in self._wanted
            if one.claim and _is_allocated(one.claim)
            for reason in elsewhere(one.claim, node)
        )

    def offered(self, node: Node) -> tuple[str, ...]:
        """What the node lacks of the extended resources, so that nodes are told apart by it."""
        return extended_resources.on_node(self._extended, node) if self._extended else ()

    def requests_of(self, claims: Sequence[ResourceClaim]) -> list[RequestExplained]:
        """The requests of these claims, explained; those of a claim for a node by their names."""
        names = {(full_name(claim), asked.name) for claim in claims for asked in asked_of(claim)}
        return [
            one for one in self._requests if (full_name(one.asked.claim), one.asked.name) in names
        ]

    def cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._cancelled()

    def _claim(self, wanted: Wanted, requests: RequestsExplained) -> ClaimReport:
        claim = wanted.claim
        return ClaimReport(
            name=wanted.name,
            origin=wanted.origin,
            verdicts=self._claim_verdicts[wanted.name],
            allocated=chosen(claim) if claim else (),
            requests=requests.reports(claim) if claim and not _is_allocated(claim) else (),
        )

    def _verdicts(self, nodes: NodesExplained) -> Iterator[Verdict]:
        state = self._resolved.state
        for resource in _DECIDING:
            gap = state.unread(resource)
            if gap is not None:
                yield CouldNotTell(gap.reason, f"{resource}: {gap.message}")
        gates = (self._pod.spec.scheduling_gates or ()) if self._pod else ()
        if gates:
            yield SchedulingGated(tuple(gate.name for gate in gates))
        if nodes.cancelled:
            yield CouldNotTell("timeout", "the search took too long on some node")
        if not state.nodes and state.unread("nodes") is None:
            yield OtherCondition("the cluster has no nodes", "")

    def _outcome(
        self, claims: Sequence[ClaimReport], nodes: NodesExplained, verdicts: Sequence[Verdict]
    ) -> Outcome:
        hard = [
            reason for claim in claims for reason in claim.verdicts if not _can_still_come(reason)
        ]
        of_claims = any(isinstance(one, CouldNotTell) for one in hard)
        unknown = of_claims or any(isinstance(one, CouldNotTell) for one in verdicts)
        refused = [one for one in hard if not isinstance(one, CouldNotTell)]
        if refused:
            return "devices do not fit"
        if unknown and (nodes.cancelled or of_claims or self._new):
            return "could not tell"
        if nodes.fatal or not nodes.some_fit:
            return "could not tell" if unknown else "devices do not fit"
        if nodes.allocated_elsewhere and not nodes.some_take_the_pod:
            return "devices do not fit"
        held = any(isinstance(one, SchedulingGated) for one in verdicts)
        late = any(_can_still_come(one) for claim in claims for one in claim.verdicts)
        if held or late or not nodes.some_take_the_pod:
            return "devices fit, something else is in the way"
        return "could not tell" if unknown else "devices fit"

    def _scheduler_says(self) -> Verdict | None:
        """What the pod's own condition says, where the pod is pending and everything here fits."""
        if self._pod is None or not self._resolved.live:
            return None
        for condition in self._pod.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                return OtherCondition(
                    condition.reason or "PodScheduled is False", condition.message
                )
        return None

    def _finished(
        self,
        outcome: Outcome,
        claims: tuple[ClaimReport, ...],
        nodes: NodesExplained,
        rest: tuple[tuple[Verdict, ...], tuple[Change, ...]],
    ) -> Report:
        verdicts, changes = rest
        groups = nodes.groups()
        together = [
            one for group in groups for one in group.devices if isinstance(one, ConstraintConflict)
        ]
        if not nodes.some_fit:
            verdicts = (*verdicts, *together[:1])
        told = (*verdicts, *(one for claim in claims for one in claim.verdicts))
        if outcome == "devices fit":
            verdicts = (Fits(nodes.first_placement()), *verdicts)
        return Report(
            subject=self._resolved.title,
            outcome=outcome,
            exit_code=EXIT_CODES[outcome],
            summary=_summary(outcome, nodes, told, self._pod),
            cluster=self._resolved.state.kubernetes_version,
            verdicts=verdicts,
            claims=claims,
            nodes=groups,
            changes=changes,
            not_read=self._resolved.state.not_read,
        )


def _is_allocated(claim: ResourceClaim) -> bool:
    return claim.status.allocation is not None


def _counts(requests: Sequence[Asked]) -> dict[int, list[int]]:
    """How many devices the alternatives of each request take at least."""
    counts: dict[int, list[int]] = {}
    for asked in requests:
        least = 0 if asked.all_devices else asked.body.count
        counts.setdefault(asked.indices[0], []).append(least)
    return counts


def _can_still_come(reason: Verdict) -> bool:
    """A claim that the controller makes sooner or later says nothing against its devices."""
    return isinstance(reason, ClaimMissing) and "yet" in reason.detail


def _summary(
    outcome: Outcome, nodes: NodesExplained, verdicts: Sequence[Verdict], pod: Pod | None
) -> str:
    total = nodes.count
    if outcome == "devices fit":
        return f"the devices fit on {nodes.fitting:,} of {total:,} nodes"
    if outcome == "devices do not fit":
        if nodes.fatal:
            return f"the scheduler gives up on all nodes: {nodes.fatal.splitlines()[0]}"
        return f"the devices fit on no node ({total:,} looked at)"
    if outcome == "could not tell":
        return next((str(one) for one in verdicts if isinstance(one, CouldNotTell)), outcome)
    where = f"the devices fit on {nodes.fitting:,} of {total:,} nodes"
    return f"{where}, something else holds the {'pod' if pod else 'claim'}"
