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
from dra_driver.allocator.readable import readable
from dra_driver.allocator.search import MAX_RESULTS
from dra_driver.allocator.trial import Alikeness, ask
from dra_driver.model.api.core import Node, Pod
from dra_driver.model.api.resource_claim import AllocationResult, ResourceClaim
from dra_driver.model.cluster import ClusterState
from dra_driver.model.gates import ALLOCATION
from dra_driver.model.remedy import NO_NODES
from dra_driver.model.report import EXIT_CODES, Change, ClaimReport, NodeGroup, Outcome, Report
from dra_driver.model.verdict import (
    AdminAccessNotAllowed,
    ClaimMissing,
    ConstraintConflict,
    CouldNotTell,
    FeatureOff,
    Fits,
    OtherCondition,
    SchedulingGated,
    TooManyDevices,
    Verdict,
)
from dra_driver.services.explain_extended import Extended
from dra_driver.services.explain_gaps import about_devices, about_pods
from dra_driver.services.explain_nodes import MALFORMED, NodesExplained
from dra_driver.services.explain_requests import RequestsExplained
from dra_driver.services.explain_several import one_of, together
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

_NO_ALLOCATION = FeatureOff(ALLOCATION, "a claim")
_LABELS_SINCE = 33
"""The release from which on admin access needs a label of the namespace."""


def explain(
    state: ClusterState,
    subject: Subject,
    *,
    node: str = "",
    cancelled: Callable[[], bool] = lambda: False,
) -> Report:
    """The answer; with `node` for that node alone. Of several pods one that is not served. Raises Permanent."""
    state = readable(state)
    if node:
        node_named(state, node)
    subjects = list(resolve(state, subject))
    reports: list[Report] = []
    for place, one in enumerate(subjects, 1):
        reports.append(_Explanation(one, node, cancelled).report())
        if len(subjects) == 1:
            return reports[0]
        if reports[-1].exit_code:
            return one_of(reports[-1], place, len(subjects))
    if subjects[0].pod is None:
        return one_of(reports[0], 1, len(subjects))
    return together(subjects, reports, lambda one: _Explanation(one, node, cancelled))


class _Explanation:
    """The making of one report."""

    def __init__(self, resolved: Resolved, node: str, cancelled: Callable[[], bool]) -> None:
        self._resolved = resolved
        self._pod = resolved.pod
        self._fleet = Fleet(resolved.state)
        self._cancelled = cancelled
        self._node = node
        nodes = [node_named(resolved.state, node)] if node else resolved.state.nodes
        self._reach = Reach(nodes)
        self._extended = Extended(self._pod, self._fleet, self._reach)
        self._wanted = (*resolved.wanted, *self._extended.wanted())
        self._claim_verdicts = {one.name: tuple(self._judge_claim(one)) for one in self._wanted}
        claims = (one.claim for one in self._wanted if one.claim)
        self._new = [claim for claim in claims if not _is_allocated(claim)]
        self._requests = [
            RequestExplained(self._fleet, asked, self._reach)
            for claim in self._new
            for asked in asked_of(claim)
        ]

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
        if not self._fleet.is_on(ALLOCATION):
            yield _NO_ALLOCATION
        yield from _without_kind(claim)
        requests = list(asked_of(claim))
        least = sum(min(counts) for counts in _counts(requests).values())
        if least > MAX_RESULTS:
            yield TooManyDevices(least)
        admin = self._fleet.rules.admin_access and any(one.admin_access for one in requests)
        if admin and not wanted.made:
            yield from self._admin_access(claim)

    def _admin_access(self, claim: ResourceClaim) -> Iterator[Verdict]:
        state, name = self._resolved.state, claim.metadata.namespace
        if state.minor is not None and state.minor < _LABELS_SINCE:
            return
        found = next((one for one in state.namespaces if one.metadata.name == name), None)
        gap = state.unread("namespaces", name)
        if gap is not None and found is None:
            yield CouldNotTell(gap.reason, gap.message)
            return
        if not admin_access_allowed(found, state.minor):
            yield AdminAccessNotAllowed(name)

    def _is_bound(self) -> bool:
        return self._pod is not None and bool(self._pod.spec.node_name) and self._resolved.live

    def report(self) -> Report:
        """The answer."""
        if self._is_bound():
            return self._bound()
        nodes = self.nodes()
        requests = RequestsExplained(self._fleet, self._reach, self._requests, nodes)
        changes = () if nodes.some_fit and not nodes.fatal else requests.changes()
        claims = tuple(self._claim(one, requests) for one in self._wanted)
        verdicts = tuple(self._verdicts(nodes))
        outcome = self._outcome(claims, nodes, verdicts)
        if outcome == "devices fit" and (said := self._scheduler_says()) is not None:
            verdicts = (*verdicts, said)
            outcome = "devices fit, something else is in the way"
        elif outcome == "devices fit" and self._pod and (hidden := about_pods(self._fleet.state)):
            verdicts = (*verdicts, *hidden)
            outcome = "could not tell"
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

    def nodes(self) -> NodesExplained:
        """What is the matter on each node."""
        pods = self._resolved.state.pods
        filters = PodFilters(self._pod, pods, self._extended.names) if self._pod else None
        alikeness = Alikeness(self._fleet, self._reach, self._requests)
        return NodesExplained(self._fleet, alikeness, filters, self)

    def claims_on(self, node: Node) -> list[ResourceClaim]:
        """The claims that would have to be allocated if the pod went to the node."""
        made = [one for one in self._new if one.metadata.name != extended_resources.NAME]
        return [*made, *self._extended.claim_on(node)]

    def place(self, node: Node) -> list[tuple[ResourceClaim, AllocationResult]]:
        """What the claims get on a node where they fit."""
        claims = self.claims_on(node)
        answer = ask(self._fleet.allocator, node, claims, self._cancelled)
        return list(zip(claims, answer.results or (), strict=False))

    def elsewhere(self, node: Node) -> tuple[Verdict, ...]:
        """What is the same wherever one looks, and claims that have devices which cannot be used from the node."""
        allocated = tuple(
            reason
            for one in self._wanted
            if one.claim and _is_allocated(one.claim)
            for reason in elsewhere(one.claim, node)
        )
        off = bool(self._new) and not self._fleet.is_on(ALLOCATION)
        return (*((_NO_ALLOCATION,) if off else ()), *self._extended.refused, *allocated)

    def fatal_elsewhere(self) -> str:
        """The error that stops the pod on all nodes and that the scheduler meets on a node that is not looked at."""
        return _Explanation(self._resolved, "", self._cancelled).nodes().fatal if self._node else ""

    def offered(self, node: Node) -> tuple[str, ...]:
        """What the node lacks of the extended resources, so that nodes are told apart by it."""
        return self._extended.offered(node)

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
        classes = {one.asked.body.device_class_name for one in self._requests}
        names = {one.name for one in self._wanted}
        hidden = tuple(about_devices(self._fleet, classes, names, fit=nodes.some_fit))
        yield from hidden
        gates = (self._pod.spec.scheduling_gates or ()) if self._pod else ()
        if gates:
            yield SchedulingGated(tuple(gate.name for gate in gates))
        if nodes.malformed and not hidden:
            yield CouldNotTell(MALFORMED, nodes.malformed)
        if nodes.cancelled:
            yield CouldNotTell("timeout", "the search took too long on some node")
        if not state.nodes and state.unread("nodes") is None:
            yield OtherCondition(NO_NODES, "")

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
        known = self._new or all(one.claim for one in self._wanted)
        groups = nodes.groups() if known else ()  # nobody can say where it would fit
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
            summary=_summary(outcome, nodes, told, claims, self._pod),
            cluster=self._resolved.state.kubernetes_version,
            verdicts=verdicts,
            claims=claims,
            nodes=groups,
            changes=changes,
            not_read=self._resolved.state.not_read,
        )


def _is_allocated(claim: ResourceClaim) -> bool:
    return claim.status.allocation is not None


def _without_kind(claim: ResourceClaim) -> Iterator[Verdict]:
    """Requests that ask for nothing: in a newer API a request is one or the other, in an older one it was flat."""
    for request in claim.spec.devices.requests or ():
        if request.exactly is None and not request.first_available:
            yield CouldNotTell(
                MALFORMED,
                f"request {request.name} of claim {full_name(claim)} has neither exactly nor firstAvailable",
            )


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


def _refused(nodes: NodesExplained, claims: Sequence[ClaimReport]) -> str:
    """Why claims cannot be used although there are devices for those that have none."""
    for claim in claims:
        for one in claim.verdicts:
            if not (_can_still_come(one) or isinstance(one, CouldNotTell)):
                told = str(one).removeprefix(f"claim {claim.name} ")
                return f"claim {claim.name} cannot be used: {told}"
    return f"{nodes.allocated_elsewhere}, where the pod cannot run"


def _summary(
    outcome: Outcome,
    nodes: NodesExplained,
    verdicts: Sequence[Verdict],
    claims: Sequence[ClaimReport],
    pod: Pod | None,
) -> str:
    total = nodes.count
    if outcome == "devices fit":
        return f"the devices fit on {nodes.fitting:,} of {total:,} nodes"
    if outcome == "devices do not fit":
        if nodes.fatal:
            return f"the scheduler gives up on all nodes: {nodes.fatal.splitlines()[0]}"
        if not nodes.some_fit:
            return f"the devices fit on no node ({total:,} looked at)"
        return _refused(nodes, claims)
    if outcome == "could not tell":
        return next((str(one) for one in verdicts if isinstance(one, CouldNotTell)), outcome)
    where = f"the devices fit on {nodes.fitting:,} of {total:,} nodes"
    return f"{where}, something else holds the {'pod' if pod else 'claim'}"
